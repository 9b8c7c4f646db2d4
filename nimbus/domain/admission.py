"""Decides whether a ready task may start, and on which worker. The leader's rule asks it, and explanations.

Pools and limits of pipelines, runs and the cluster will be asked here, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from nimbus.domain.ids import WorkerId
from nimbus.domain.refusals import Refusals
from nimbus.domain.run import TaskRun
from nimbus.domain.schema import schema_for
from nimbus.domain.workers import WorkerInfo

Rank = tuple[int, int, float, WorkerId]
"""Of a worker with free slots: refusals in a row, free slots negated, load, id. The least is best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What all tasks share."""

    workers: Collection[WorkerInfo]
    """Registered."""
    free: Iterable[WorkerInfo]
    """Those of them that may be given more, best first: see `rank`. Can be iterated more than once."""
    refusals: Mapping[WorkerId, Refusals]
    """Of workers that did not start their last attempts."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The task starts on this worker."""

    worker: WorkerInfo


class WaitReason(StrEnum):
    """Why a task does not start."""

    NO_WORKER = "no_worker"
    ALL_OLDER = "all_older"
    """No worker is of a release that can read the task's order."""
    ALL_DRAINING = "all_draining"
    ALL_BUSY = "all_busy"
    """No slot is free on a worker that may be given something."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The task starts later."""

    reason: WaitReason
    until: datetime | None = None
    """When the first worker with free slots ends its back-off; None: when a slot or a worker comes."""


def admit(task: TaskRun, capacity: Capacity, now: datetime) -> Grant | Wait:
    """Decide about a ready task. Workers that failed it by their own fault are taken when there is no other.

    The cost of a grant does not grow with the number of workers, but for those that back off.
    """
    schema = schema_for(task.spec)
    unlucky = {a.worker for a in task.attempts if a.outcome is not None and a.outcome.is_infrastructure}
    last_choice = None
    for worker in candidates(capacity, now, schema):
        if worker.id not in unlucky:
            return Grant(worker)
        last_choice = last_choice or worker
    if last_choice is not None:
        return Grant(last_choice)
    if not capacity.workers:
        return Wait(WaitReason.NO_WORKER)
    able = knowing(schema, capacity.workers)
    if not able:
        return Wait(WaitReason.ALL_OLDER)
    if all(worker.draining for worker in able):
        return Wait(WaitReason.ALL_DRAINING)
    free = knowing(schema, capacity.free)
    until = min((capacity.refusals[worker.id].until for worker in free), default=None)
    return Wait(WaitReason.ALL_BUSY, until)


def candidates(capacity: Capacity, now: datetime, schema: int = 1) -> Iterator[WorkerInfo]:
    """Free workers that may be given something now: none that backs off, unless all that are open do.

    Args:
        capacity: What there is.
        now: The time.
        schema: That the workers must know, as of `schema_for`.
    """
    refusals = capacity.refusals
    backing_off = []
    for worker in capacity.free:
        if worker.newest_schema < schema:
            continue
        if backs_off(worker, refusals, now):
            backing_off.append(worker)
        else:
            yield worker
    if backing_off and all(
        w.draining or backs_off(w, refusals, now) for w in knowing(schema, capacity.workers)
    ):
        yield from backing_off


def knowing(schema: int, workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Those of the workers that know a schema."""
    return [worker for worker in workers if worker.newest_schema >= schema]


def backs_off(worker: WorkerInfo, refusals: Mapping[WorkerId, Refusals], now: datetime) -> bool:
    """Whether a worker refused so many attempts of late that it is given none for a while."""
    found = refusals.get(worker.id)
    return found is not None and found.until > now


def rank(worker: WorkerInfo, busy: int, refused: Refusals | None) -> Rank | None:
    """How good a choice a worker is; None: it drains, or has no free slot.

    Args:
        worker: Which.
        busy: Its open attempts.
        refused: Its refusals, if it has any.
    """
    if worker.draining or busy >= worker.slots:
        return None
    return (refused.count if refused else 0, busy - worker.slots, worker.load_average, worker.id)


def by_rank(
    workers: Iterable[WorkerInfo], busy: Mapping[WorkerId, int], refusals: Mapping[WorkerId, Refusals]
) -> list[WorkerInfo]:
    """The workers that may be given more, best first."""
    ranked = ((rank(w, busy.get(w.id, 0), refusals.get(w.id)), w) for w in workers)
    return [w for _, w in sorted((found, w) for found, w in ranked if found is not None)]
