"""Workers, what they are given to do, and which of them gets the next task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from nimbus.domain.ids import HostId, PipelineName, ReleaseDigest, RunId, WorkerId
from nimbus.domain.pipeline import TaskSpec
from nimbus.domain.refusals import Refusals
from nimbus.domain.run import Run
from nimbus.domain.slots import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker's registration: it is alive while this stands in ZooKeeper."""

    id: WorkerId
    host: HostId
    hostname: str
    pid: int
    slots: int
    version: str
    started_at: datetime
    draining: bool = False
    load_average: float = 0.0
    memory_available_bytes: int = 0
    scheduler_id: str | None = None
    """The scheduler it is embedded in."""
    newest_schema: int = 1
    """As that of a scheduler, see `SchedulerInfo.newest_schema`."""


class AssignmentKind(StrEnum):
    """What a worker is asked to do with an attempt."""

    RUN = "run"
    REAP = "reap"
    """Look for what is left of it on this host; if its driver is gone, end the rest and write END: what the
    runner had recorded and could not deliver, or lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An order to one worker: the intent, written before anything is started. Safe to read twice."""

    attempt: str
    kind: AssignmentKind
    epoch: int
    pipeline: PipelineName
    release: ReleaseDigest
    run: RunId
    task: TaskSpec
    logical_date: datetime
    parameters: Mapping[str, Any] = field(default_factory=dict)
    python_path: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Committed output folders of the needed tasks, relative to the shared data folder."""
    output: str = ""
    """The attempt's own output folder, relative to the shared data folder."""
    timeout: timedelta | None = None
    claim: Claim | None = None
    """For REAP: whom to look for."""


def busy_workers(runs: Iterable[Run]) -> Mapping[WorkerId, int]:
    """Count the open attempts of each worker."""
    return Counter(
        attempt.worker
        for run in runs
        if not run.state.is_final
        for task in run.tasks.values()
        if (attempt := task.open_attempt) is not None
    )


def free_slots(worker: WorkerInfo, busy: int) -> int:
    """How many more attempts a worker may be given."""
    return 0 if worker.draining else max(0, worker.slots - busy)


def open_workers(
    workers: Iterable[WorkerInfo], refusals: Mapping[WorkerId, Refusals], now: datetime
) -> tuple[WorkerInfo, ...]:
    """Workers that may be given something: not draining, and not backing off, unless all of them do."""
    accepting = tuple(worker for worker in workers if not worker.draining)
    rested = tuple(w for w in accepting if w.id not in refusals or refusals[w.id].until <= now)
    return rested or accepting


def choose_worker(
    workers: Iterable[WorkerInfo],
    busy: Mapping[WorkerId, int],
    refusals: Mapping[WorkerId, Refusals],
    avoid: frozenset[WorkerId] = frozenset(),
) -> WorkerInfo | None:
    """Pick the worker for the next attempt: fewest refusals in a row, most free slots, least load, its id.

    Args:
        workers: Those that may be given something, see `open_workers`.
        busy: Open attempts of each.
        refusals: Of those that have any.
        avoid: Workers that failed this task by their own fault; taken only when there is no other.

    Returns:
        None when no slot is free.
    """
    able = [worker for worker in workers if free_slots(worker, busy.get(worker.id, 0)) > 0]
    return min(
        able,
        key=lambda w: (
            w.id in avoid,
            refusals[w.id].count if w.id in refusals else 0,
            -free_slots(w, busy.get(w.id, 0)),
            w.load_average,
            w.id,
        ),
        default=None,
    )
