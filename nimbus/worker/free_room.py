"""Checks a worker's host for free memory and disk. Worker thread; takes less than a millisecond."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from nimbus.worker.warm.memory import available_memory

MIN_FREE_BYTES = 64 << 20
"""Free disk space below which every attempt is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinFree:
    """Limits below which a worker gets no new attempts. None: not checked."""

    memory_bytes: int | None = None
    """Free on the host, or in the worker's control group if that has less."""
    disk_bytes: int | None = None
    """Free on the file system of the work folder."""


def lacking(least: MinFree, work_dir: Path) -> str:
    """What there is too little of, as text; empty if there is enough."""
    if least.memory_bytes is not None and (free := available_memory()) < least.memory_bytes:
        return f"{_mib(free)} of memory free, and worker.min_free.memory is {_mib(least.memory_bytes)}"
    try:
        free = shutil.disk_usage(work_dir).free
    except OSError as exc:
        return f"worker.work_dir {work_dir}: {exc.strerror}"
    if free < MIN_FREE_BYTES:
        return f"{_mib(free)} of disk free in {work_dir}, and an attempt needs {_mib(MIN_FREE_BYTES)}"
    if least.disk_bytes is not None and free < least.disk_bytes:
        return f"{_mib(free)} of disk free, and worker.min_free.disk is {_mib(least.disk_bytes)}"
    return ""


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"
