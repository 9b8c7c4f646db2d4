"""Whether a worker's host has memory and disk left for more. Worker thread; takes under a millisecond."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from nimbus.worker.warm.memory import available_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class MinFree:
    """Below this a worker is given nothing new. None: it is not looked at."""

    memory_bytes: int | None = None
    """Of the host, or of the worker's control group if that has less."""
    disk_bytes: int | None = None
    """Of the file system of the work folder."""


def lacking(least: MinFree, work_dir: Path) -> str:
    """What there is too little of, in words for people; empty if there is enough."""
    if least.memory_bytes is not None and (free := available_memory()) < least.memory_bytes:
        return f"{_mib(free)} of memory free, and worker.min_free.memory is {_mib(least.memory_bytes)}"
    if least.disk_bytes is not None and (free := shutil.disk_usage(work_dir).free) < least.disk_bytes:
        return f"{_mib(free)} of disk free, and worker.min_free.disk is {_mib(least.disk_bytes)}"
    return ""


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"
