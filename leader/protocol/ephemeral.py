"""An ephemeral node that this process keeps as it should be: the leader node, a card, a component's node.

Whatever somebody did to it (deleted it, wrote over it, put another node in its place), `keep` puts it right.
Steps only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import structlog

from leader.errors import RecordError
from leader.protocol.requests import (
    Check,
    Create,
    Delete,
    NodeMissingError,
    NotEmptyError,
    Operation,
    RefusedError,
    SetData,
    Stat,
    Steps,
    TransactionFailedError,
    VersionMismatchError,
    delete,
    ensure_path,
    get,
    transaction,
)

_log = structlog.get_logger(__name__)

_TRIES = 4


class EphemeralNode:
    """See the module. One driver at a time.

    Args:
        path: Of the node. Its parent is made where it is missing.
        objects: Called with the content of another session's node; raises if that must not be replaced.
    """

    def __init__(self, path: str, objects: Callable[[bytes], None] = lambda _data: None) -> None:
        self.path, self._objects = path, objects
        self._wrote: tuple[bytes, int] | None = None  # what we asked for last, and our session then

    @property
    def may_be_ours(self) -> bool:
        """Whether a node that we wrote may be there."""
        return self._wrote is not None

    def keep(
        self, data: bytes, session_id: int, fences: tuple[Check, ...] = (), *, watch: bool
    ) -> Steps[RefusedError | None]:
        """Write the node, or correct it. A node of ours that is right already is only read.

        Args:
            data: What it must hold.
            session_id: Of the present session, which must own it.
            fences: What each write is checked against, in the same transaction.
            watch: Whether to end with a read that finds the node right and watches it. Without it nothing is
                read after a write.

        Returns:
            Why a fence refused the write; None if the node is as it should be.

        Raises:
            NotPermittedError: An access list forbids it.
            NotEmptyError: What is in the way has children.
            RecordError: Somebody changes it as fast as we do.
        """
        found: tuple[bytes, Stat] | None = None
        look = self._wrote is not None and self._wrote[1] == session_id  # else it is most likely not there
        for _ in range(_TRIES):
            if look:
                found = yield from self._look(watch)
                if found is not None and found[0] == data and found[1].owner == session_id:
                    self._wrote = (data, session_id)
                    return None
                self._judge(found, session_id)
            failed = yield from self._write(found, data, session_id, fences)
            if failed is None and not watch:
                return None
            if failed is not None and failed.index < len(fences):
                return failed.cause
            look = True  # what we wrote may be touched before we watch it
        raise RecordError(
            f"somebody keeps changing {self.path}, {_TRIES} times while we wrote it; find out who"
        )

    def withdraw(self, session_id: int | None) -> Steps[None]:
        """Delete what we wrote, if it is there and ours.

        Should another put a node in its place at that very moment, that may be deleted: its owner watches it,
        or looks again, and makes it anew.

        Args:
            session_id: Of the present session. A node of another session went with it: nothing is asked then.
        """
        if self._wrote is not None and self._wrote[1] == session_id:
            with suppress(NodeMissingError, VersionMismatchError):
                _, stat = yield from get(self.path)
                if stat.owner == session_id:
                    yield from delete(self.path, stat.version)
        self._wrote = None

    def forget(self) -> None:
        """The node is known to be deleted."""
        self._wrote = None

    def _look(self, watch: bool) -> Steps[tuple[bytes, Stat] | None]:
        try:
            return (yield from get(self.path, watch=watch))
        except NodeMissingError:
            return None

    def _judge(self, found: tuple[bytes, Stat] | None, session_id: int) -> None:
        """Say that our node was touched, and ask whether another's must stay."""
        if self._wrote is not None and (found is None or (found[0], found[1].owner) != self._wrote):
            _log.warning("ephemeral_node_corrected", path=self.path)
        if found is not None and found[1].owner != session_id:
            self._objects(found[0])

    def _write(
        self, found: tuple[bytes, Stat] | None, data: bytes, session_id: int, fences: tuple[Check, ...]
    ) -> Steps[TransactionFailedError | None]:
        """Write in the place of what was found there. Returns why nothing was written."""
        write: tuple[Operation, ...] = (Create(self.path, data, ephemeral=True),)
        if found is not None and found[1].owner == session_id:
            write = (SetData(self.path, data, found[1].version),)
        elif found is not None:
            write = (Delete(self.path, found[1].version), *write)
        before, self._wrote = self._wrote, (data, session_id)  # also if we never hear that it is there
        try:
            yield from transaction(*fences, *write)
        except TransactionFailedError as exc:
            self._wrote = before
            exc.raise_if_forbidden()
            if isinstance(exc.cause, NotEmptyError):
                raise exc.cause from exc
            if found is None and exc.index >= len(fences) and isinstance(exc.cause, NodeMissingError):
                yield from ensure_path(self.path.rpartition("/")[0])
            return exc
        return None
