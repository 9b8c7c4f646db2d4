"""The cost of a waiting participant: CPU time and threads, minus those of an empty process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmark.leader.contenders import HOSTS
from tests.benchmark.leader.handover import Queue

_SETTLE_S = 2.0
"""After this time, processes and participants that have just started are idle."""


@dataclass(frozen=True)
class Idle:
    """One host process while nothing happens."""

    cpu_s_per_s: float
    threads: int


def look(made: Sequence[Queue], seconds: float) -> dict[str, list[Idle]]:
    """Measure all host processes of all contenders during the same time."""
    processes = {q.contender.name: [psutil.Process(host.pid) for host in q.group.hosts] for q in made}

    def used() -> dict[str, list[float]]:
        return {name: [_cpu_s(process) for process in found] for name, found in processes.items()}

    if seconds > 0:
        time.sleep(_SETTLE_S)
    before, began = used(), time.monotonic()
    time.sleep(seconds)
    after, took = used(), max(time.monotonic() - began, 1e-6)
    return {
        name: [
            Idle((late - early) / took, process.num_threads())
            for process, early, late in zip(found, before[name], after[name], strict=True)
        ]
        for name, found in processes.items()
    }


def per_participant(
    made: Sequence[Queue], empty: dict[str, list[Idle]], full: dict[str, list[Idle]]
) -> dict[str, dict[str, float]]:
    """Differences, divided by the number of participants, without the process that has the leader."""
    costs = {}
    for queue in made:
        name, leading = queue.contender.name, queue.order[0] % HOSTS
        pairs = [(empty[name][n], full[name][n]) for n in range(HOSTS) if n != leading]
        waiting = len(queue.order) / HOSTS * len(pairs)
        cpu_s = sum(late.cpu_s_per_s - early.cpu_s_per_s for early, late in pairs)
        threads = sum(late.threads - early.threads for early, late in pairs)
        costs[name] = {
            "cpu_us_per_s": round(1e6 * cpu_s / waiting, 2),
            "threads": round(threads / waiting, 2),
            "process_cpu_us_per_s": round(1e6 * sum(late.cpu_s_per_s for _, late in pairs) / len(pairs)),
        }
    return costs


def _cpu_s(process: psutil.Process) -> float:
    """CPU time of its threads, measured in ns, because `stat` counts only in hundredths of a second."""
    used_ns = 0
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            used_ns += int((thread / "schedstat").read_text().split()[0])
    return used_ns / 1e9
