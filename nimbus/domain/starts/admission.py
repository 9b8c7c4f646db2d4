"""Decides whether a ready task may start, and on which worker. For the leader's rule and for explanations.

`nimbus.engine.run_queue` decides which run may start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import chain, takewhile
from typing import Literal, NamedTuple

from nimbus.domain.attempts.workers import Refusals, WorkerInfo, jvm_release
from nimbus.domain.cluster.schema import schema_for
from nimbus.domain.ids import PipelineName, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import (
    SPARK_KINDS,
    Priority,
    SparkDeploy,
    SparkMode,
    SparkReuse,
    TaskSpec,
)
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun, TaskState

Rank = tuple[int, int, float, WorkerId]
"""Rank of a worker: refusals in a row, free slots negated, load, id. The smallest is best."""


TaskRank = tuple[Priority, datetime, RunId, Priority, TaskName]
"""Priority of the run, its age, priority of the task; ids break ties. The smallest starts first."""


def task_rank(run: Run, task: TaskRun) -> TaskRank:
    """How urgent a ready task is."""
    return run.priority, run.created_at, run.id, task.spec.priority, task.spec.name


class Gate(NamedTuple):
    """A limit that several tasks share: that of their run, or of a pool."""

    kind: Literal["run", "pool"]
    name: str


class Need(NamedTuple):
    """What a task requires of a worker. The same workers can run all tasks with equal needs."""

    schema: int
    """Schema of the order, which the worker must be able to read."""
    java: bool
    target: str | None = None
    """Name of the place where the task's Spark runs."""
    in_cluster: bool = False
    """True when the driver runs at the target, too. Then it takes none of the worker's slots."""
    labels: tuple[str, ...] = ()
    """Labels that the worker must have."""


@dataclass(frozen=True, slots=True, eq=False)
class Want:
    """What tasks of a team take: slots, and pools. Equal ones are the same object, for fast look-ups."""

    team: str
    need: Need
    pools: tuple[str, ...] = ()

    def rivals(self, other: Want) -> bool:
        """True when two tasks take of the same slots, or of the same pool."""
        slots, others = self.need[2:], other.need[2:]
        return slots == others or not set(self.pools).isdisjoint(other.pools)


def need_of(task: TaskSpec) -> Need:
    """The need of a task."""
    place = task.spark_place
    return Need(
        schema_for(task),
        java=task.kind.uses_spark and task.spark_mode is SparkMode.CLASSIC,
        target=None if place is None else place.target,
        in_cluster=place is not None and place.deploy is SparkDeploy.CLUSTER,
        labels=task.labels,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The capacity that all tasks share."""

    workers: Collection[WorkerInfo]
    """All registered workers."""
    free: Iterable[WorkerInfo]
    """Workers that may get more attempts, best first: see `rank`. Can be iterated more than once."""
    submitting: Iterable[WorkerInfo]
    """Workers that may get more drivers to submit to clusters, likewise."""
    refusals: Mapping[WorkerId, Refusals]
    """Refusals of workers that did not start their last attempts."""
    target_slots: Mapping[str, int]
    """Slots of each target, see `target_slots`."""
    open_at: Callable[[str], int]
    """Number of open attempts whose Spark runs at a target."""
    pools: Mapping[str, int]
    """The size of each pool."""
    used: Callable[[str], int]
    """How much of a pool open attempts take."""
    busy: Callable[[WorkerId], int] = lambda _worker: 0
    """Slots of a worker that open attempts take."""
    jvm_releases: Collection[str] = frozenset()
    """Releases for which any worker keeps a Spark JVM: see `WorkerInfo.jvm_releases`."""
    holder: Callable[[str], PoolHolder | None] = lambda _pool: None
    """The task that holds a pool. Only for explanations: the leader keeps tasks in queues instead."""

    share: Callable[[PipelineName, str], str] = lambda _pipeline, _of: ""
    """What the team of a pipeline has of `slots` or of `pool NAME`, as text. Only for explanations."""

    def takers(self, need: Need) -> Iterable[WorkerInfo]:
        """Workers that have room for a task with this need, best first."""
        return self.submitting if need.in_cluster else self.free


@dataclass(frozen=True, slots=True)
class Grant:
    """The task starts on this worker."""

    worker: WorkerInfo


class WaitReason(StrEnum):
    """Why a task does not start."""

    RUN_FULL = "run_full"
    """The run has `max_parallel_tasks` open tasks already."""
    NO_POOL = "no_pool"
    """A pool of the task does not exist."""
    POOL_FULL = "pool_full"
    """A pool has less left than the task takes."""
    NO_WORKER = "no_worker"
    ALL_OLDER = "all_older"
    """No worker runs a release of Nimbus that can read the task's order."""
    NO_TARGET = "no_target"
    """No worker has the target of the task, or none submits drivers to it."""
    NO_LABELS = "no_labels"
    """No worker has all labels that the task asks for."""
    TARGET_FULL = "target_full"
    """Open attempts take all slots of the target."""
    ALL_DRAINING = "all_draining"
    ALL_LOW = "all_low"
    """No worker takes new attempts: all drain, or their hosts have too little memory or disk free."""
    ALL_BUSY = "all_busy"
    """No worker that takes new attempts has a free slot."""


ENDED_BY_A_WORKER = frozenset(WaitReason) - {
    WaitReason.RUN_FULL,
    WaitReason.NO_POOL,
    WaitReason.POOL_FULL,
    WaitReason.TARGET_FULL,
}
"""Reasons that another worker would end, if it had the task's target and labels."""

WORDS = {
    WaitReason.RUN_FULL: "max_parallel_tasks of its run was reached",
    WaitReason.NO_POOL: "pool {about} did not exist",
    WaitReason.POOL_FULL: "pool {about} had too little left",
    WaitReason.NO_WORKER: "no worker was registered",
    WaitReason.ALL_OLDER: "all workers were of an older release",
    WaitReason.NO_TARGET: "no worker had its target",
    WaitReason.NO_LABELS: "no worker had all of its labels: {labels}",
    WaitReason.TARGET_FULL: "all slots of its target were taken",
    WaitReason.ALL_DRAINING: "all workers were draining or cordoned",
    WaitReason.ALL_LOW: "all workers drained, or had too little memory or disk free",
    WaitReason.ALL_BUSY: "no slot was free",
}
"""Why a task waited, in the past tense."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The task starts later."""

    reason: WaitReason
    until: datetime | None = None
    """When the first worker with free slots ends its back-off; None: a slot or a worker must become free."""
    gates: tuple[Gate, ...] = ()
    """Limits that no less urgent task may pass before this one. Empty: the task waits for a worker."""
    about: str = ""
    """Name of the pool."""


def held_by(task: TaskRun, answer: Grant | Wait) -> str:
    """Why a task still waited when it was decided about for the last time."""
    if isinstance(answer, Grant):
        return "more urgent tasks took all room"
    return WORDS[answer.reason].format(about=answer.about, labels=", ".join(task.spec.labels))


class PoolHolder(NamedTuple):
    """A ready task that holds a pool for itself until it fits."""

    rank: TaskRank
    run: Run
    task: TaskRun
    wait: Wait


def admit(run: Run, task: TaskRun, capacity: Capacity, now: datetime) -> Grant | Wait:
    """Decide about a ready task. Workers that refused recent attempts are used only when there is no other.

    The cost of a grant grows only with the number of workers that back off or do not suit; if a worker keeps
    a JVM that the task may use, also with the number of workers that are as free as the best one.
    """
    held = _held_at_gate(run, task, capacity)
    if held is not None:
        return held
    need = need_of(task.spec)
    if _is_full(need, capacity):
        return Wait(WaitReason.TARGET_FULL)
    suits = suited(need, capacity.workers)
    unlucky = {a.worker for a in task.attempts if a.outcome is not None and a.outcome.is_infrastructure}
    last_choice = None
    fitting = candidates(capacity, need, now, suits)
    for worker in fitting:
        if worker.id not in unlucky:
            others = (other for other in fitting if other.id not in unlucky)
            return Grant(_with_jvm(worker, others, _reused(run, task.spec), capacity))
        last_choice = last_choice or worker
    if last_choice is not None:
        return Grant(last_choice)
    able = [worker for worker in capacity.workers if suits(worker)]
    if not able:
        return Wait(_why_none(need, capacity.workers))
    if all(worker.draining for worker in able):
        return Wait(WaitReason.ALL_DRAINING)
    if all(worker.draining or worker.lacks for worker in able):
        return Wait(WaitReason.ALL_LOW)
    free = (worker for worker in capacity.takers(need) if suits(worker))
    until = min((capacity.refusals[worker.id].until for worker in free), default=None)
    return Wait(WaitReason.ALL_BUSY, until)


def _reused(run: Run, task: TaskSpec) -> str:
    """The release whose kept JVM a task may use; empty: it starts its own, or needs none."""
    is_kept = task.kind in SPARK_KINDS and task.spark_mode is SparkMode.CLASSIC
    own = task.spark_reuse is SparkReuse.OFF or task.spark_place is not None or task.environment
    return jvm_release(run.pipeline, run.release) if is_kept and not own else ""


def _with_jvm(best: WorkerInfo, others: Iterable[WorkerInfo], release: str, capacity: Capacity) -> WorkerInfo:
    """Of the best worker and the others that are as free, the first that keeps a JVM of the release."""
    if release not in capacity.jvm_releases:
        return best

    def standing(worker: WorkerInfo) -> tuple[int, int]:
        refused = capacity.refusals.get(worker.id)
        return refused.count if refused else 0, worker.slots - capacity.busy(worker.id)

    equal = takewhile(lambda other: standing(other) == standing(best), others)
    return next((worker for worker in chain((best,), equal) if release in worker.jvm_releases), best)


def holder_of(run: Run, task: TaskRun, capacity: Capacity) -> PoolHolder | None:
    """A ready task as the holder of its pools; None: it does not wait for a pool."""
    held = _held_at_gate(run, task, capacity)
    return None if held is None or not held.about else PoolHolder(task_rank(run, task), run, task, held)


def held_behind(run: Run, task: TaskRun, capacity: Capacity) -> PoolHolder | None:
    """The other task that holds a pool which this task needs; None: there is none."""
    held = [holder for pool in task.spec.pools if (holder := capacity.holder(pool)) is not None]
    first = min(held, key=lambda holder: holder.rank, default=None)
    return first if first is not None and first.rank != task_rank(run, task) else None


def _held_at_gate(run: Run, task: TaskRun, capacity: Capacity) -> Wait | None:
    most = run.max_parallel_tasks
    if most is not None and run.tasks.count(TaskState.RUNNING) >= most:
        return Wait(WaitReason.RUN_FULL, gates=(Gate("run", run.id),))
    pools = task.spec.pools
    gates = tuple(Gate("pool", name) for name in sorted(pools))
    for name in sorted(pools):
        if name not in capacity.pools:
            return Wait(WaitReason.NO_POOL, gates=gates, about=name)
        if capacity.used(name) + pools[name] > capacity.pools[name]:
            return Wait(WaitReason.POOL_FULL, gates=gates, about=name)
    return None


def room_at_gates(run: Run, task: TaskRun, capacity: Capacity) -> int | None:
    """How many tasks like this one the limits of run, pools and target admit, however many workers there are.

    None: they have no limit.
    """
    pools = task.spec.pools
    room = [(capacity.pools.get(name, 0) - capacity.used(name)) // pools[name] for name in pools]
    if run.max_parallel_tasks is not None:
        room.append(run.max_parallel_tasks - run.tasks.count(TaskState.RUNNING))
    place = task.spec.spark_place
    if place is not None and (slots := capacity.target_slots.get(place.target)) is not None:
        room.append(slots - capacity.open_at(place.target))
    return min(room, default=None)


def _is_full(need: Need, capacity: Capacity) -> bool:
    slots = None if need.target is None else capacity.target_slots.get(need.target)
    return slots is not None and capacity.open_at(need.target or "") >= slots


def _why_none(need: Need, workers: Collection[WorkerInfo]) -> WaitReason:
    if not workers:
        return WaitReason.NO_WORKER
    newer = [worker for worker in workers if worker.newest_schema >= need.schema]
    if not newer:
        return WaitReason.ALL_OLDER
    if not any(set(need.labels) <= set(worker.labels) for worker in newer):
        return WaitReason.NO_LABELS
    return WaitReason.NO_TARGET


def target_slots(workers: Iterable[WorkerInfo]) -> dict[str, int]:
    """How many attempts of each target may be open at once: the smallest number that a worker reports."""
    slots: dict[str, int] = {}
    for worker in workers:
        for target, said in worker.targets.items():
            slots[target] = min(said, slots.get(target, said))
    return slots


def candidates(
    capacity: Capacity, need: Need, now: datetime, suits: Callable[[WorkerInfo], bool]
) -> Iterator[WorkerInfo]:
    """Free workers that suit. Workers that back off are included only if all of them do."""
    refusals = capacity.refusals
    backing_off = []
    for worker in capacity.takers(need):
        if not suits(worker):
            continue
        if backs_off(worker, refusals, now):
            backing_off.append(worker)
        else:
            yield worker
    if backing_off and all(
        w.draining or w.lacks or backs_off(w, refusals, now) for w in capacity.workers if suits(w)
    ):
        yield from backing_off


def suited(need: Need, workers: Collection[WorkerInfo]) -> Callable[[WorkerInfo], bool]:
    """A predicate for workers that can run a task: they read its order, and have its target, labels and Java.

    If none has Java, the predicate ignores Java: the chosen worker refuses the attempt with that reason.
    """

    def could(worker: WorkerInfo) -> bool:
        places = worker.submits if need.in_cluster else worker.targets
        has_target = need.target is None or need.target in places
        has_labels = set(need.labels) <= set(worker.labels)
        return has_target and has_labels and worker.newest_schema >= need.schema

    java = need.java and any(worker.has_java and could(worker) for worker in workers)
    return lambda worker: could(worker) and (worker.has_java or not java)


def backs_off(worker: WorkerInfo, refusals: Mapping[WorkerId, Refusals], now: datetime) -> bool:
    """True while a worker gets no attempts because it refused several lately."""
    refusal = refusals.get(worker.id)
    return refusal is not None and refusal.until > now


def rank(worker: WorkerInfo, busy: int, refused: Refusals | None) -> Rank | None:
    """Rank of a worker; None: it takes no new attempts, or has no free slot.

    `refused`: its refusals, if it has any.
    """
    if worker.draining or worker.lacks or busy >= worker.slots:
        return None
    return (refused.count if refused else 0, busy - worker.slots, worker.load_average, worker.id)


def rank_to_submit(worker: WorkerInfo, submitted: int, refused: Refusals | None) -> Rank | None:
    """As `rank`, for tasks whose drivers run in clusters. `submitted`: open attempts of this kind."""
    if worker.draining or worker.lacks:
        return None
    return (refused.count if refused else 0, submitted, worker.load_average, worker.id)


def by_rank(
    workers: Iterable[WorkerInfo], busy: Mapping[WorkerId, int], refusals: Mapping[WorkerId, Refusals]
) -> list[WorkerInfo]:
    """The workers that may get more attempts, best first."""
    ranked = ((rank(w, busy.get(w.id, 0), refusals.get(w.id)), w) for w in workers)
    return [w for _, w in sorted((rank, w) for rank, w in ranked if rank is not None)]
