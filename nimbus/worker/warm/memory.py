"""The available memory of this machine or of this process's control group. Any thread."""

from __future__ import annotations

from pathlib import Path

import psutil


def available_memory(
    groups: Path = Path("/sys/fs/cgroup"), own_group: Path = Path("/proc/self/cgroup")
) -> int:
    """In bytes. In a group with a limit (a container, `MemoryMax`), inactive file cache counts as free.

    Args:
        groups: Mount point of control groups, version 2.
        own_group: File that names our group.
    """
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
