"""Checks a worker's host for free memory and disk. Worker thread; takes less than a millisecond."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

MIN_FREE_BYTES = 64 << 20
"""Free disk space below which every attempt is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRoom:
    """Limits below which a worker gets no new attempts. None: not checked."""

    memory_bytes: int | None = None
    """Free on the host, or in the worker's control group if that has less."""
    disk_bytes: int | None = None


def lacking(least: FreeRoom, work_dir: Path) -> str:
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


def available_memory(
    groups: Path = Path("/sys/fs/cgroup"), own_group: Path = Path("/proc/self/cgroup")
) -> int:
    """In bytes. In a group with a limit (a container, `MemoryMax`), inactive file cache counts as free."""
    free = int(psutil.virtual_memory().available)
    try:
        name = own_group.read_text().partition("0::/")[2].strip()
        limit, used = ((groups / name / file).read_text() for file in ("memory.max", "memory.current"))
        return min(free, int(limit) - int(used) + _idle_file_cache(groups / name))
    except (OSError, ValueError):  # no such group, or no limit ("max")
        return free


def _idle_file_cache(group: Path) -> int:
    """Bytes of cache that the kernel reclaims before it refuses memory."""
    try:
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return 0
