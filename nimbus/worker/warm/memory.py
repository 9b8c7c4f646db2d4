"""How much memory this machine, or the control group of this process, can still give. Any thread."""

from __future__ import annotations

from pathlib import Path

import psutil


def available_memory(
    groups: Path = Path("/sys/fs/cgroup"), own_group: Path = Path("/proc/self/cgroup")
) -> int:
    """Bytes. Of a group with a limit (a container, `MemoryMax`) its file cache counts as used.

    Args:
        groups: Where control groups of version 2 are mounted.
        own_group: Says which is ours.
    """
    free = int(psutil.virtual_memory().available)
    try:
        name = own_group.read_text().partition("0::/")[2].strip()
        limit, used = ((groups / name / file).read_text() for file in ("memory.max", "memory.current"))
        return min(free, int(limit) - int(used))
    except (OSError, ValueError):  # no such group, or "max"
        return free
