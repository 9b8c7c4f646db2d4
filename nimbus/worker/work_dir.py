"""Ensures that only one live worker uses a worker's folder."""

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
    """Permit the users of drivers to traverse to the folders of their attempts, and to read nothing else."""
    for folder in (work_dir, work_dir / "attempts", work_dir / "executors", work_dir / "wheels"):
        make_passage(folder)


def take_work_dir(work_dir: Path) -> int:
    """Lock the folder, created if needed, until the returned descriptor is closed.

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
