"""A lock that a process holds as long as it lives, in a file that identifies the process. Any thread.

A worker holds that of its folder, so only one live worker uses the folder.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from nimbus.domain.errors import NimbusError
from nimbus.worker.files import read_if_there
from nimbus.worker.identity import host_id, own_process
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


class WorkDirInUseError(NimbusError):
    """Two live workers share a folder."""

    code = "work_dir_in_use"
    exit_code = 4

    def __init__(self, work_dir: Path) -> None:
        super().__init__(
            f"{work_dir} is in use by another live worker. Give each worker its own `worker.work_dir`, or "
            "stop the other."
        )


def take_work_dir(work_dir: Path) -> int:
    """Lock the folder, created if needed, until the returned descriptor is closed.

    Raises:
        WorkDirInUseError: a live worker has it.
    """
    work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = ProcessLock(work_dir / "worker.lock").take(own_process())
    if fd is None:
        raise WorkDirInUseError(work_dir)
    return fd
