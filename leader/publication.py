"""The node of one component: written by whoever leads, corrected by it, and by nobody else. Steps only."""

from __future__ import annotations

from contextlib import suppress

from leader.errors import RecordError
from leader.fencing import FencingToken
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import (
    Check,
    Create,
    Delete,
    NodeMissingError,
    NotPermittedError,
    Operation,
    SetData,
    Stat,
    Steps,
    TransactionFailedError,
    VersionMismatchError,
    delete,
    ensure_path,
    exists,
    get,
    transaction,
)

_TRIES = 4


def watched(path: str) -> Steps[tuple[bytes, Stat] | None]:
    """Read a node and watch it, there or not. RecordError if it comes and goes all the time."""
    for _ in range(_TRIES):
        with suppress(NodeMissingError):
            return (yield from get(path, watch=True))
        if (yield from exists(path, watch=True)) is None:
            return None
    raise RecordError(f"{path} comes and goes, {_TRIES} times while we read it; find out who does that")


class ComponentNode:
    """See the module. `may_be_ours` says whether there may be something to take away."""

    def __init__(self, paths: ElectionPaths, name: str) -> None:
        self._parent, self.path = paths.components, paths.component(name)
        self._token: FencingToken | None = None
        self._session_id = 0

    @property
    def may_be_ours(self) -> bool:
        """Whether a node that we wrote may be there."""
        return self._token is not None

    def keep(self, token: FencingToken, data: bytes, session_id: int) -> Steps[bool]:
        """Write the node, or correct it, and watch it. Whatever is written is fenced.

        Returns:
            False if the token's term is over, so that nothing was written.

        Raises:
            NotPermittedError: An access list forbids it.
            RecordError: Somebody changes it as fast as we do.
        """
        for _ in range(_TRIES):
            found = yield from watched(self.path)
            if found is not None and found[0] == data and found[1].owner == session_id:
                return True
            self._token, self._session_id = token, session_id  # from here on something may be there
            fencing = fences(token)
            try:
                # It fires the watch that we have just set, and so we come back here and set another.
                yield from transaction(*fencing, *placing(self.path, data, session_id, found))
            except TransactionFailedError as exc:
                if exc.index < len(fencing):
                    return False
                if isinstance(exc.cause, NotPermittedError):
                    raise exc.cause from exc
                if found is None and isinstance(exc.cause, NodeMissingError):
                    yield from ensure_path(self._parent)
                continue
            return True
        raise RecordError(
            f"somebody keeps changing {self.path}, {_TRIES} times while we wrote it; find out who"
        )

    def withdraw(self, session_id: int | None) -> Steps[None]:
        """Take away what we wrote, if it is there and ours. `session_id` is that of our present session."""
        token = self._token
        if token is None:
            return
        if session_id == self._session_id:  # else it went with the session it belonged to
            with suppress(NodeMissingError, VersionMismatchError):
                yield from self._delete(token)
        self._token = None

    def _delete(self, token: FencingToken) -> Steps[None]:
        _, stat = yield from get(self.path)
        if stat.owner != self._session_id:
            return
        try:
            yield from transaction(*fences(token), Delete(self.path, stat.version))
        except TransactionFailedError:
            # Our term is over, but this is still ours and wrong. Should the next leader replace it in this
            # very moment, we may delete the replacement, which it watches and makes again.
            yield from delete(self.path, stat.version)


def placing(
    path: str, data: bytes, session_id: int, found: tuple[bytes, Stat] | None
) -> tuple[Operation, ...]:
    """What makes an ephemeral node of ours hold `data`, in the place of what was found there."""
    if found is None:
        return (Create(path, data, ephemeral=True),)
    stat = found[1]
    if stat.owner == session_id:
        return (SetData(path, data, stat.version),)
    return (Delete(path, stat.version), Create(path, data, ephemeral=True))


def fences(token: FencingToken) -> tuple[Check, ...]:
    """What a transaction begins with that only this term may commit."""
    epoch = Check(token.path, token.version)
    return (epoch,) if token.latch is None else (epoch, Check(token.latch))
