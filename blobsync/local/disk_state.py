"""The state of the disk under a local store, and what to do about an error of a disk.

The state is remembered from the last failure, and cleared by the next success.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from blobsync.errors import LocalStoreError
from blobsync.listeners import Listeners
from blobsync.local.disk import NO_ROOM, free_bytes


class DiskCondition(StrEnum):
    """What keeps a disk from taking bytes."""

    OK = "ok"
    FULL = "full"
    READ_ONLY = "read_only"
    DENIED = "denied"
    FAILING = "failing"


_DENIED = frozenset({errno.EACCES, errno.EPERM})

_ADVICE = {
    DiskCondition.FULL: "the disk, or this user's quota, is full; make room (`df -h {0}`, `df -i {0}`)",
    DiskCondition.READ_ONLY: "the file system is read-only; look for errors (`dmesg`), and mount it anew",
    DiskCondition.DENIED: "this user may not: give it back what is below {0} (`ls -l {0}`)",
    DiskCondition.FAILING: "check that the disk is sound (`dmesg`) and has room (`df -h {0}`, `df -i {0}`)",
}


def condition_of(exc: OSError) -> DiskCondition:
    """What an error says of the disk."""
    if exc.errno in NO_ROOM:
        return DiskCondition.FULL
    if exc.errno == errno.EROFS:
        return DiskCondition.READ_ONLY
    return DiskCondition.DENIED if exc.errno in _DENIED else DiskCondition.FAILING


def advice(exc: OSError, folder: object) -> str:
    """What to do about an error of the disk.

    Args:
        exc: As raised.
        folder: Where it was to write.
    """
    return _ADVICE[condition_of(exc)].format(folder)


def disk_error_in(exc: BaseException) -> OSError | None:
    """The error of the disk that another one was raised from, however far; None: there is none."""
    cause = exc.__cause__
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return cause


@dataclass(frozen=True, slots=True)
class DiskState:
    """The last word of the disk. `reason` is for people; empty when all is well."""

    condition: DiskCondition = DiskCondition.OK
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the last write succeeded."""
        return self.condition is DiskCondition.OK


_VAIN_QUESTIONS = 3
_LAST_WORDS = "It is tried again; what was there is unharmed"


class DiskHealth:
    """Turns errors of the disk into ours, and remembers the last one. Thread-safe.

    Args:
        root: Of the store.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._needed_bytes = self._asked_in_vain = 0
        self.state = DiskState()
        self.listeners: Listeners[DiskState] = Listeners()
        """Told when the condition changes, on the thread that used the disk: must only enqueue. When two
        threads tell at once, `state` is what counts."""

    @contextmanager
    def errors(self, what: str, *, writes: bool = False) -> Iterator[None]:
        """Tell what failed on the disk, in our words.

        Args:
            what: What is being done, as "installing blob 12ab".
            writes: It always writes, so its success shows that the disk takes bytes again.
        """
        try:
            yield
        except OSError as exc:
            raise self.failed(what, exc) from exc
        except LocalStoreError as exc:
            cause = disk_error_in(exc)
            if cause is None or str(exc).endswith(_LAST_WORDS):
                raise
            raise self.failed(what, cause) from exc  # of a download, which knows nothing of this store
        if writes:
            self.wrote()

    def wrote(self) -> None:
        """Bytes are on the disk, so it takes them again."""
        if not self.state.ok:
            self._set(DiskState(), 0)

    def failed(self, what: str, exc: OSError) -> LocalStoreError:
        """Remember an error of the disk, and give it in our words.

        A file that vanished, as one that is collected does, says nothing of the disk; unless the store
        vanished with it.
        """
        if isinstance(exc, FileNotFoundError) and (self._root / "sessions").is_dir():
            return LocalStoreError(f"{what} failed: {exc}; another process removed it. {_LAST_WORDS}")
        return LocalStoreError(self._note(what, exc))

    def need_room(self, size_bytes: int, what: str) -> None:
        """Refuse what cannot succeed, before anything is fetched or written.

        Raises:
            OSError: there is not so much room.
        """
        free = free_bytes(self._root)
        if free < size_bytes:
            why = f"{os.strerror(errno.ENOSPC)}: {what} needs {size_bytes} bytes, {free} are free"
            raise _NoRoomError(errno.ENOSPC, why, str(self._root), size_bytes)

    def has_room(self) -> bool:
        """True if there is now the room that was missing.

        A need that was not repeated for `_VAIN_QUESTIONS` questions is forgotten: its object is not wanted
        any more. Else its next try is refused again, and notes the need again.
        """
        with self._lock:
            self._asked_in_vain += 1
            if self._asked_in_vain > _VAIN_QUESTIONS:
                self._needed_bytes = 0
            needed_bytes = self._needed_bytes
        return free_bytes(self._root) >= needed_bytes

    def _note(self, what: str, exc: OSError) -> str:
        reason = f"{what} failed: {exc}; {advice(exc, self._root)}. {_LAST_WORDS}"
        self._set(DiskState(condition_of(exc), reason), getattr(exc, "needed_bytes", 0))
        return reason

    def _set(self, state: DiskState, needed_bytes: int) -> None:
        with self._lock:
            turned = state.condition is not self.state.condition
            self.state, self._needed_bytes, self._asked_in_vain = state, needed_bytes, 0
        if turned:
            self.listeners.tell(state)


class _NoRoomError(OSError):
    def __init__(self, code: int, why: str, path: str, needed_bytes: int) -> None:
        super().__init__(code, why, path)
        self.needed_bytes = needed_bytes
