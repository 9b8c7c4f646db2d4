"""How the disk under a local store does: remembered from the last failure, cleared by the next success."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from blobsync.errors import LocalStoreError
from blobsync.local.disk import free_bytes


class DiskCondition(StrEnum):
    """What keeps the store from writing."""

    OK = "ok"
    FULL = "full"
    READ_ONLY = "read_only"
    DENIED = "denied"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class DiskState:
    """The last word of the disk. `reason` is for people; empty when all is well."""

    condition: DiskCondition = DiskCondition.OK
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the last write succeeded."""
        return self.condition is DiskCondition.OK


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EACCES, errno.EPERM})

_ADVICE = {
    DiskCondition.FULL: "the disk, or this user's quota, is full; make room (`df -h`, `df -i`)",
    DiskCondition.READ_ONLY: "the file system is read-only; look for errors (`dmesg`), and mount it anew",
    DiskCondition.DENIED: "this user may not: give it back what is below the store's folder (`ls -l`)",
    DiskCondition.FAILING: "check that the disk is sound (`dmesg`) and has room (`df -h`, `df -i`)",
}


class DiskHealth:
    """Turns errors of the disk into ours, and remembers the last one. Thread-safe.

    Args:
        root: Of the store.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.state = DiskState()

    @contextmanager
    def errors(self, what: str, *, writes: bool = False) -> Iterator[None]:
        """Tell what failed on the disk, in our words.

        Args:
            what: What is being done, as "installing blob 12ab".
            writes: Its success shows that the disk takes bytes again.
        """
        try:
            yield
        except OSError as exc:
            raise self.failed(what, exc) from exc
        except LocalStoreError as exc:
            if isinstance(exc.__cause__, OSError) and self.state.ok:  # told elsewhere, as by a download
                self._note(what, exc.__cause__)
            raise
        if writes:
            self.state = DiskState()

    def failed(self, what: str, exc: OSError) -> LocalStoreError:
        """Remember an error of the disk, and give it in our words."""
        return LocalStoreError(self._note(what, exc))

    def need_room(self, size_bytes: int, what: str) -> None:
        """Refuse what cannot succeed, before anything is fetched or written.

        Raises:
            OSError: there is not so much room.
        """
        free = free_bytes(self._root)
        if free < size_bytes:
            why = f"{os.strerror(errno.ENOSPC)}: {what} needs {size_bytes} bytes, {free} are free"
            raise OSError(errno.ENOSPC, why, str(self._root))

    def _note(self, what: str, exc: OSError) -> str:
        condition = _condition(exc)
        reason = f"{what} failed: {exc}; {_ADVICE[condition]}. It is tried again; what was there is unharmed"
        self.state = DiskState(condition, reason)
        return reason


def _condition(exc: OSError) -> DiskCondition:
    if exc.errno in NO_ROOM:
        return DiskCondition.FULL
    if exc.errno == errno.EROFS:
        return DiskCondition.READ_ONLY
    return DiskCondition.DENIED if exc.errno in _DENIED else DiskCondition.FAILING
