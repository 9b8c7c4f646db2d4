"""A lock that a process holds as long as it lives, in a file that identifies the process. Any thread."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from nimbus.worker.files import read_if_there
from nimbus.worker.identity import host_id
from nimbus.worker.procfs import ProcessId


class ProcessLock:
    """flock on a file that contains pid, start ticks and host of the last holder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self, holder: ProcessId) -> int | None:
        """Take the lock until the returned descriptor is closed; None: a living process holds it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{holder.pid} {holder.start_ticks} {host_id()}\n".encode(), 0)
        return fd

    def is_held(self) -> bool:
        """True if the holder is alive."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def last_holder(self) -> ProcessId | None:
        """The last holder in this boot, dead or alive."""
        words = (read_if_there(self.path) or b"").split()
        if len(words) != 3 or words[2].decode() != host_id():
            return None  # being written, or from an earlier boot, whose pids are meaningless
        return ProcessId(int(words[0]), int(words[1]))
