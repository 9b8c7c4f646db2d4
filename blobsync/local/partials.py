"""Lets only one process of the host receive an object: the one that has locked its file below `partial/`.

A process that is stopped, or whose container is frozen, keeps its locks, and would block the object for all
other processes of its host. So a thread of the owner touches the file every `BEAT_S`. If a process sees that
a file was not touched for `STALLED_AFTER_S`, by its own clock, it receives the object into another file,
`<name>.2` to `.4`; the first file stays with its owner. A slow owner that runs touches its file, so no object
is fetched twice because of a slow server, network or disk. When a stopped owner wakes up, it finds the object
here and deletes its own file, or replaces the object by the same verified bytes.

The thread, `blobsync-partials`, runs while anything is received.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from blobsync.local.disk import FileIdentity, identity, regular

BEAT_S = 5.0
STALLED_AFTER_S = 30.0
_FILES = 4
"""Limit of files for one object: three owners that are stopped, and one that runs."""
_SEEN = 10_000
_END_S = 5.0
"""Longest wait for the end of the thread. It takes longer only if the disk hangs."""


class OwnedPartial(NamedTuple):
    """A file that this process owns until it closes `fd`. See `Partials.release`."""

    path: Path
    fd: int


class Partials:
    """The files of unfinished objects. Thread-safe."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._changed = threading.Condition()
        self._ours: set[int] = set()
        self._seen: dict[str, tuple[FileIdentity, float]] = {}
        self._thread: threading.Thread | None = None

    def claim(self, name: str) -> OwnedPartial | None:
        """Open and lock a file for an object. None: another owner, which runs, receives the object."""
        for number in range(1, _FILES + 1):
            path = self._path(name, number)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if _locked_still(fd, path):
                    if self._is_received(name, number + 1):
                        if os.fstat(fd).st_size == 0:
                            path.unlink(missing_ok=True)
                        os.close(fd)
                        return None
                    self._touch(fd)
                    return OwnedPartial(path, fd)
                runs = not self._is_stalled(path, fd)
            except BaseException:
                with self._changed:
                    self._ours.discard(fd)
                with contextlib.suppress(OSError):
                    os.close(fd)
                raise
            os.close(fd)
            if runs:
                return None
        return None

    def release(self, fd: int) -> None:
        """Stop touching a file. Call it before the file is closed or gets its name. Safe to repeat."""
        with self._changed:
            self._ours.discard(fd)
        self._end()

    def close(self) -> None:
        """Stop touching files."""
        with self._changed:
            self._ours.clear()
        self._end()

    def _end(self) -> None:
        """If no object is being received any more, wait until the thread has ended."""
        with self._changed:
            thread = self._thread
            if thread is None:
                return
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ours or self._thread is not thread, _END_S)
            ends = self._thread is not thread
        if ends:
            thread.join(_END_S)

    def _path(self, name: str, number: int) -> Path:
        return self._folder / (name if number == 1 else f"{name}.{number}")

    def _is_received(self, name: str, first: int) -> bool:
        """True if a running owner has one of the later files: it took over from an owner that has ended."""
        for number in range(first, _FILES + 1):
            path = self._path(name, number)
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if not _locked_still(fd, path) and not self._is_stalled(path, fd):
                        return True
                finally:
                    os.close(fd)
        return False

    def _is_stalled(self, path: Path, fd: int) -> bool:
        """True if a file that another owner has locked was not touched for `STALLED_AFTER_S`."""
        file, now = identity(os.fstat(fd)), self._clock()
        with self._changed:
            known = self._seen.get(path.name)
            if known is not None and known[0] == file:
                return now - known[1] >= STALLED_AFTER_S
            if len(self._seen) >= _SEEN:
                self._seen.clear()
            self._seen[path.name] = (file, now)
            return False

    def _touch(self, fd: int) -> None:
        with self._changed:
            self._ours.add(fd)
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="blobsync-partials", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        with self._changed:
            while self._ours:
                for fd in self._ours:
                    with contextlib.suppress(OSError):
                        os.utime(fd)
                until = time.monotonic() + BEAT_S
                while self._ours and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
            self._thread = None
            self._changed.notify_all()


def _locked_still(fd: int, path: Path) -> bool:
    """Lock the file. False: another owner has, or the file got its final name meanwhile."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    file, opened = regular(path), os.fstat(fd)
    return file is not None and (file.st_dev, file.st_ino) == (opened.st_dev, opened.st_ino)
