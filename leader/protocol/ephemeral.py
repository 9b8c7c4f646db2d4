"""An ephemeral node that this process keeps correct: the leader node, a member node, a component's node.

If another client deletes, overwrites or replaces the node, `keep` corrects it. Steps only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import structlog

from leader.errors import RecordError
from leader.protocol import requests as r

_log = structlog.get_logger(__name__)

_TRIES = 4


class EphemeralNode:
    """See the module. Only one thread may run its steps at a time.

    Creates a missing parent. `raise_if_foreign` is called with the content of another session's node, and
    raises if that node must not be replaced.
    """

    def __init__(self, path: str, raise_if_foreign: Callable[[bytes], None] = lambda _data: None) -> None:
        self.path, self._raise_if_foreign = path, raise_if_foreign
        self._wrote: tuple[bytes, int] | None = None  # content and session of the last write that was sent

    @property
    def may_be_ours(self) -> bool:
        """True when a node that this object wrote may exist."""
        return self._wrote is not None

    def keep(
        self, data: bytes, session_id: int, fences: tuple[r.Check, ...] = (), *, watch: bool
    ) -> r.Steps[r.RequestRefusedError | None]:
        """Write the node, or correct it. A correct node that this session wrote is only read.

        Each write is one transaction with the checks `fences`. `watch`: the last step is a read that finds
        the node correct and watches it; otherwise nothing is read after a write. Returns why a fence refused
        the write; None if the node is correct.

        Raises:
            NotPermittedError: An access list forbids it.
            NotEmptyError: A node with children is in the way.
            RecordError: Another client changes the node as fast as this one writes it.
        """
        node: tuple[bytes, r.Stat] | None = None
        # Written in another session, or never, it most likely does not exist.
        may_exist = self._wrote is not None and self._wrote[1] == session_id
        for _ in range(_TRIES):
            if may_exist:
                node = yield from r.get_if_there(self.path, watch=watch)
                if node is not None and node[0] == data and node[1].owner == session_id:
                    self._wrote = (data, session_id)
                    return None
                self._check_found(node, session_id)
            failed = yield from self._write(node, data, session_id, fences)
            if failed is None and not watch:
                return None
            if failed is not None and failed.index < len(fences):
                return failed.cause
            may_exist = True  # another client may have changed the node before this read sets the watch
        raise RecordError(
            f"another client keeps changing {self.path}: {_TRIES} times during one write; find that client"
        )

    def withdraw(self, session_id: int | None) -> r.Steps[None]:
        """Delete the node, if this object wrote it and the present session owns it.

        If another client replaces the node between the read and the delete, the new node may be deleted. Its
        owner watches it, or reads it again later, and creates it again. If another session wrote the node,
        ZooKeeper deletes it with that session, and no request is sent.
        """
        if self._wrote is not None and self._wrote[1] == session_id:
            with suppress(r.NodeMissingError, r.VersionMismatchError):
                _, stat = yield from r.get(self.path)
                if stat.owner == session_id:
                    yield from r.delete(self.path, stat.version)
        self._wrote = None

    def forget(self) -> None:
        """Note that the node is deleted."""
        self._wrote = None

    def _check_found(self, node: tuple[bytes, r.Stat] | None, session_id: int) -> None:
        """Log a change by another client. Call `raise_if_foreign` if another session owns the node."""
        if self._wrote is not None and (node is None or (node[0], node[1].owner) != self._wrote):
            _log.warning("ephemeral_node_corrected", path=self.path)
        if node is not None and node[1].owner != session_id:
            self._raise_if_foreign(node[0])

    def _write(
        self, node: tuple[bytes, r.Stat] | None, data: bytes, session_id: int, fences: tuple[r.Check, ...]
    ) -> r.Steps[r.TransactionFailedError | None]:
        """Write the node; `node` was read of it. Return why nothing was written; None after a write."""
        write: tuple[r.Operation, ...] = (r.Create(self.path, data, ephemeral=True),)
        if node is not None and node[1].owner == session_id:
            write = (r.SetData(self.path, data, node[1].version),)
        elif node is not None:
            write = (r.Delete(self.path, node[1].version), *write)
        before, self._wrote = self._wrote, (data, session_id)  # before the answer, which may be lost
        try:
            yield from r.transaction(*fences, *write)
        except r.TransactionFailedError as exc:
            self._wrote = before
            exc.raise_if_forbidden()
            if isinstance(exc.cause, r.NotEmptyError):
                raise exc.cause from exc
            if node is None and exc.index >= len(fences) and isinstance(exc.cause, r.NodeMissingError):
                yield from r.ensure_path(self.path.rpartition("/")[0])
            return exc
        return None
