"""Processor time and memory that processes used. Standard library only: a driver in a cluster imports it.

The kernel counts both for each process and the children that it waited for, so nothing is sampled. Memory is
the most that one process had in RAM at a time, with pages that it shares: a forked driver begins with those
of the process that forked it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """What some processes used."""

    cpu_ms: int = 0
    peak_memory_bytes: int = 0
    """That of the largest process."""

    def plus(self, other: Usage) -> Usage:
        """What both used."""
        most = max(self.peak_memory_bytes, other.peak_memory_bytes)
        return Usage(self.cpu_ms + other.cpu_ms, most)


def of_ended(used: resource.struct_rusage) -> Usage:
    """That of a process that was waited for."""
    return Usage(round((used.ru_utime + used.ru_stime) * 1000), used.ru_maxrss << 10)


def of_children() -> Usage:
    """That of all children that this process has waited for."""
    return of_ended(resource.getrusage(resource.RUSAGE_CHILDREN))


def of_living(pids: Iterable[int]) -> Usage:
    """That of processes until now, with children that they waited for. An ended one counts nothing."""
    total = Usage()
    for pid in pids:
        with suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
            peak = Path(f"/proc/{pid}/status").read_bytes().partition(b"\nVmHWM:")[2].split()
            cpu_ms = round(sum(map(int, stat[11:15])) * _TICK_MS)
            total = total.plus(Usage(cpu_ms, int(peak[0]) << 10 if peak else 0))  # a zombie has no memory
    return total


def forget_peaks(pids: Iterable[int]) -> None:
    """Let the peak of memory begin anew. A kernel or sandbox may refuse: then it is that since the start."""
    for pid in pids:
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_bytes(b"5")
