"""Reads processor time and memory of a product from /proc: of one process and all its descendants.

The process at the root belongs to the benchmark. It adopts orphans (PR_SET_CHILD_SUBREAPER), so no process
leaves the tree, and the figures of a parent contain those of its reaped children.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 5.0
"""Not more often, because a sample reads the page tables of all processes, and stops them meanwhile."""
EXECUTOR, ZYGOTE, FORK_SERVER, HARNESS = "executor", "zygote", "fork server", "harness"
DRIVERS, HELPERS = "drivers", "helpers"
SCHEDULER, WORKER, ZOOKEEPER, S3 = "scheduler", "worker", "ZooKeeper", "S3"
_KINDS = (  # the first one whose text is in the command line
    ("nimbus.worker.pool.zygote", ZYGOTE),
    ("nimbus.worker.pool", EXECUTOR),
    ("nimbus.worker.fork_server", FORK_SERVER),
    ("nimbus.worker.runner", "runners"),
    ("nimbus.worker.driver", DRIVERS),
    ("nimbus.cli.main worker", WORKER),
    ("nimbus.cli.main scheduler", SCHEDULER),
    ("QuorumPeerMain", ZOOKEEPER),
    ("rclone", S3),
    ("leader/sentinel", HELPERS),
    ("nimbus.templates", HELPERS),
    ("tests.benchmark.tasks.stack_role", HARNESS),
    ("tests.benchmark.tasks.luigi_role", "Luigi"),
    ("tests.benchmark.tasks.prefect_role", "flows"),
    ("prefect.server", "server"),
    ("tests.benchmark.tasks.airflow_role", HARNESS),
    ("airflow worker", "tasks"),
    ("airflow api", "API server"),
    ("airflow dag-processor", "DAG processor"),
    ("airflow s", SCHEDULER),  # `airflow scheduler` and `airflow serve-logs`
    ("postgres", "Postgres"),
)
_ENDED_BELOW = {ZYGOTE: DRIVERS, FORK_SERVER: "runners and drivers"}
"""The kind of the ended children of such a process."""


@dataclass(frozen=True)
class Process:
    """A process of the tree.

    Args:
        own_s: Processor time of the process itself.
        ended_s: Processor time of its reaped children, and of their reaped children.
    """

    pid: int
    parent: int
    kind: str
    own_s: float
    ended_s: float


def tree(root: int) -> list[Process]:
    """The process, and all its descendants."""
    found = {process.pid: process for process in _all()}
    below: dict[int, list[int]] = {}
    for process in found.values():
        below.setdefault(process.parent, []).append(process.pid)
    members, todo = [], [root]
    while todo:
        pid = todo.pop()
        todo += below.get(pid, [])
        if pid in found:
            members.append(_named_by_parent(found[pid], found))
    return members


def _all() -> Iterator[Process]:
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            stat = (place / "stat").read_text()
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        fields = stat[stat.rindex(")") + 2 :].split()
        user, system, user_ended, system_ended = (int(value) * _TICK_S for value in fields[11:15])
        kind = next((kind for part, kind in _KINDS if part in words), "other")
        yield Process(int(place.name), int(fields[1]), kind, user + system, user_ended + system_ended)


def _named_by_parent(process: Process, found: dict[int, Process]) -> Process:
    """A forked driver shows the command line of the process that forked it."""
    parent = found.get(process.parent)
    if parent is not None and parent.kind == process.kind == ZYGOTE:
        return Process(process.pid, process.parent, DRIVERS, process.own_s, process.ended_s)
    return process


def cpu_s(root: int) -> dict[str, float]:
    """Processor time since the start, by kind of process."""
    used: defaultdict[str, float] = defaultdict(float)
    for process in tree(root):
        used[process.kind] += process.own_s
        kind = HELPERS if process.kind == HARNESS else process.kind
        used[_ENDED_BELOW.get(kind, kind)] += process.ended_s
    return used


def pss_mib(root: int) -> float:
    """Proportional set size (PSS) of all these processes."""
    total = 0
    for process in tree(root):
        if process.kind != HARNESS:
            total += _field(Path(f"/proc/{process.pid}/smaps_rollup"), "Pss:")
    return total / 1024


def rss_mib(pid: int) -> float:
    """Resident memory of one process; 0 if it has ended."""
    return _field(Path(f"/proc/{pid}/status"), "VmRSS:") / 1024


def _field(file: Path, name: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:  # the process has ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


@dataclass
class Used:
    """The resources that a workload used.

    Args:
        cpu_s: Processor time, by kind of process.
        wall_s: Duration of the workload.
    """

    cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    idle_mib: float = 0.0
    peak_mib: float = 0.0


@contextmanager
def watched(root: int) -> Iterator[Used]:
    """Measure the tree during the block. The result is filled at the end. A thread takes the samples."""
    used, over = Used(idle_mib=pss_mib(root)), threading.Event()
    used.peak_mib = used.idle_mib

    def sample() -> None:
        while not over.wait(_SAMPLE_S):
            used.peak_mib = max(used.peak_mib, pss_mib(root))

    sampler = threading.Thread(target=sample, name="bench-memory", daemon=True)
    before, began = cpu_s(root), time.monotonic()
    sampler.start()
    try:
        yield used
    finally:
        over.set()
        sampler.join()
        used.wall_s = time.monotonic() - began
        after = cpu_s(root)
        used.cpu_s = {
            kind: round(after[kind] - before[kind], 2)
            for kind in sorted(after, key=lambda kind: before[kind] - after[kind])
            if kind != HARNESS and after[kind] - before[kind] >= _TICK_S / 2
        }
        used.peak_mib = max(used.peak_mib, pss_mib(root))
