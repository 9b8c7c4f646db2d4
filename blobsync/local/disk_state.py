"""The state of a local store's disk, and advice for each error of a disk.

The state is that of the last failure, until a write succeeds.
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
    """Why a disk accepts no writes."""

    OK = "ok"
    FULL = "full"
    READ_ONLY = "read_only"
    DENIED = "denied"
    FAILING = "failing"


_DENIED = frozenset({errno.EACCES, errno.EPERM})

_ADVICE = {
    DiskCondition.FULL: "the disk, or this user's quota, is full; make room (`df -h {0}`, `df -i {0}`)",
    DiskCondition.READ_ONLY: "the file system is read-only; look for errors (`dmesg`), and remount it",
    DiskCondition.DENIED: "no permission: give this user access to {0} and below (`ls -l {0}`)",
    DiskCondition.FAILING: "check that the disk is sound (`dmesg`) and has room (`df -h {0}`, `df -i {0}`)",
}


def condition_of(exc: OSError) -> DiskCondition:
    """The condition of the disk that an error shows."""
    if exc.errno in NO_ROOM:
        return DiskCondition.FULL
    if exc.errno == errno.EROFS:
        return DiskCondition.READ_ONLY
    return DiskCondition.DENIED if exc.errno in _DENIED else DiskCondition.FAILING


def advice(exc: OSError, folder: object) -> str:
    """Advice for the user about an error of the disk at a write into `folder`."""
    return _ADVICE[condition_of(exc)].format(folder)


def disk_error_in(exc: BaseException) -> OSError | None:
    """The nearest OSError in the chain of causes; None: there is none."""
    cause = exc.__cause__
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return cause


@dataclass(frozen=True, slots=True)
class DiskState:
    """Result of the last write. `reason` is for people; empty if the write succeeded."""

    condition: DiskCondition = DiskCondition.OK
    reason: str = ""

    @property
    def ok(self) -> bool:
        """True if the last write succeeded."""
        return self.condition is DiskCondition.OK


_VAIN_QUESTIONS = 3
_LAST_WORDS = "It is tried again; the files that were there are unchanged"


class _NotedError(LocalStoreError):
    """An error that is in the state of the disk already."""


class DiskHealth:
    """Translates errors of the disk into errors of this package, and keeps the last one. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._needed_bytes = self._asked_in_vain = 0
        self.state = DiskState()
        self.listeners: Listeners[DiskState] = Listeners()
        """Called when the condition changes, on the thread that used the disk: must only enqueue. Two threads
        may call a listener at the same time: read `state`."""

    @contextmanager
    def errors(self, what: str, *, writes: bool = False) -> Iterator[None]:
        """Raise errors of the disk as LocalStoreError, and keep them as the state of the disk.

        `writes`: it always writes, so its success shows that the disk accepts writes again.
        """
        try:
            yield
        except OSError as exc:
            raise self.failed(what, exc) from exc
        except _NotedError:
            raise
        except LocalStoreError as exc:  # raised by a download, which does not know this store
            cause = disk_error_in(exc)
            if cause is None:
                raise
            raise self.failed(what, cause) from exc
        if writes:
            self.wrote()

    def wrote(self) -> None:
        """Note that a write was flushed, so the disk works."""
        if not self.state.ok:
            self._set(DiskState(), 0)

    def failed(self, what: str, exc: OSError) -> LocalStoreError:
        """Keep an error of the disk as its state, and return the error to raise.

        A missing file does not count as a failure of the disk, because another process may have collected it;
        unless the whole store is missing.
        """
        if isinstance(exc, FileNotFoundError) and (self._root / "sessions").is_dir():
            return _NotedError(f"{what} failed: {exc}; another process removed it. {_LAST_WORDS}")
        return _NotedError(self._note(what, exc))

    def need_room(self, size_bytes: int, what: str) -> None:
        """Raise OSError, before anything is fetched or written, if an operation has not enough space."""
        free = free_bytes(self._root)
        if free < size_bytes:
            why = f"{os.strerror(errno.ENOSPC)}: {what} needs {size_bytes} bytes, {free} are free"
            raise _NoRoomError(errno.ENOSPC, why, str(self._root), size_bytes)

    def has_room(self) -> bool:
        """True if the disk now has the space that the last refused operation needs.

        After `_VAIN_QUESTIONS` calls without another refusal the need is dropped: its object is not wanted
        any more. If the object is still wanted, its next try is refused again and notes the need again.
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
