"""A lock that prevents two stacks in one folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from nimbus.localstack.errors import StackLockedError


class FolderLock:
    """An exclusive lock on a folder, which the kernel drops when its holder dies.

    The file contains the holder's process id, only for the message. The unlocked file stays, because removing
    it would let two processes lock two files of the same name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StackLockedError: another process, or another stack in this one, has it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._folder / "stack.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise StackLockedError(folder=self._folder, pid=holder) from exc
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Release the lock. Safe to repeat."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
