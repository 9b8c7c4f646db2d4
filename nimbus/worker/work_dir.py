"""A worker's folder belongs to one live worker."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from nimbus.domain.errors import NimbusError
from nimbus.worker.files import make_passage


class WorkDirInUseError(NimbusError):
    """Two live workers share a folder."""

    code = "work_dir_in_use"
    exit_code = 4

    def __init__(self, work_dir: Path) -> None:
        super().__init__(
            f"{work_dir} is in use by another live worker. Give each worker its own `worker.work_dir`, or "
            "stop the other."
        )


def open_to_users(work_dir: Path) -> None:
    """Let the users of drivers reach the folders of their attempts. Nothing else there is theirs to read."""
    for folder in (work_dir, work_dir / "attempts", work_dir / "executors", work_dir / "wheels"):
        make_passage(folder)


def take_work_dir(work_dir: Path) -> int:
    """Take the folder, made if need be, for as long as the returned descriptor is open.

    Raises:
        WorkDirInUseError: a live worker has it.
    """
    work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(work_dir / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(fd)
        raise WorkDirInUseError(work_dir) from exc
    return fd
