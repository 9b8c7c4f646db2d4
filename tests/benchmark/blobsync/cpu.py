"""Measures who used the CPU: each process by its own clock, in ns, and the machine as a whole.

In an undisturbed run, only our processes and the kernel's own threads (which write to the disk) used it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PF_KTHREAD = 0x00200000
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_SAMPLED_SLACK_S = 0.03
"""The machine's sum is sampled at each tick, so it is only approximate for a short run."""


def process_cpu_s(pid: int) -> float:
    """CPU time of a process with all its threads, ended threads included, without its children.

    Source: clock_getcpuclockid(3): the clock of process `pid` has the number `~pid << 3 | 2`.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # the process has ended
        return 0.0


@dataclass(frozen=True)
class Usage:
    """CPU time since boot, in seconds.

    Args:
        ours: CPU time of our running processes.
        others: CPU time of each other process and of its ended children, by pid; without kernel threads.
        kernel: CPU time of the kernel's threads.
        busy: CPU time of the whole machine.
        stolen: CPU time that the hypervisor gave to other machines.
    """

    taken_s: float
    ours: float
    others: dict[int, float]
    kernel: float
    busy: float
    stolen: float


def usage(our_pids: Iterable[int]) -> Usage:
    """Read the counters now."""
    mine = {os.getpid(), *our_pids}
    others: dict[int, float] = {}
    kernel = 0.0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or (pid := int(entry.name)) in mine:
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[6]) & _PF_KTHREAD:
            kernel += process_cpu_s(pid)
        else:
            others[pid] = process_cpu_s(pid) + (int(fields[13]) + int(fields[14])) * _TICK_S
    busy, stolen = _machine()
    ours = sum(process_cpu_s(pid) for pid in mine)
    return Usage(time.monotonic(), ours, others, kernel, busy, stolen)


def others_share(before: Usage, after: Usage, children_s: float) -> float:
    """Share of the machine's CPU time that other processes used.

    Args:
        children_s: CPU time of our processes that started and ended between the two readings.
    """
    # If a process ended between the readings, its parent's figure contains all the time it ever used. So the
    # share may be too high, but never too low.
    seen = sum(max(0.0, used_s - before.others.get(pid, 0.0)) for pid, used_s in after.others.items())
    seen += after.stolen - before.stolen
    ours = after.ours - before.ours + children_s + after.kernel - before.kernel
    unseen = after.busy - before.busy - ours - _SAMPLED_SLACK_S  # for example of another container
    took_s = max(after.taken_s - before.taken_s, _TICK_S)
    return max(0.0, seen, unseen) / (took_s * (os.cpu_count() or 1))


def _machine() -> tuple[float, float]:
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(word) * _TICK_S for word in words[1:9])
    return user + nice + system + irq + softirq, steal
