"""How much memory this machine, or the control group of this process, can still give. Any thread."""

from __future__ import annotations

from pathlib import Path

import psutil


def available_memory(
    groups: Path = Path("/sys/fs/cgroup"), own_group: Path = Path("/proc/self/cgroup")
) -> int:
    """Bytes. Of a group with a limit (a container, `MemoryMax`) file cache that is not in use counts as free.

    Args:
        groups: Where control groups of version 2 are mounted.
        own_group: Says which is ours.
    """
    free = int(psutil.virtual_memory().available)
    try:
        name = own_group.read_text().partition("0::/")[2].strip()
        limit, used = ((groups / name / file).read_text() for file in ("memory.max", "memory.current"))
        return min(free, int(limit) - int(used) + _idle_file_cache(groups / name))
    except (OSError, ValueError):  # no such group, or "max"
        return free


def _idle_file_cache(group: Path) -> int:
    """Bytes that the kernel takes back before it refuses memory."""
    try:
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return 0
