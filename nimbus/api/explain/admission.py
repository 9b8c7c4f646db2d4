"""Explains why no worker gets a ready task, as text for people. It uses the leader's own rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal, assert_never

from nimbus.domain.attempts.workers import Refusals, WorkerInfo
from nimbus.domain.ids import WorkerId
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.starts.admission import (
    Capacity,
    Grant,
    Need,
    Wait,
    WaitReason,
    admit,
    backs_off,
    held_behind,
    need_of,
    suited,
    task_rank,
)
from nimbus.domain.wording import counted

MAX_NAMED = 5


def why_not_admitted(run: Run, task: TaskRun, capacity: Capacity, now: datetime) -> str:
    """Explain a task that needs only room or a worker."""
    answer = admit(run, task, capacity, now)
    behind = held_behind(run, task, capacity)
    if behind is not None and (isinstance(answer, Grant) or not answer.gates):
        rank, ahead_run, ahead, held = behind
        goes_first = (
            "is more urgent" if rank < task_rank(run, task) else "is of a team with less of its share"
        )
        shared = ", ".join(sorted(task.spec.pools.keys() & ahead.spec.pools.keys()))
        return (
            f"pool {shared} is held for task {ahead.spec.name} of run {ahead_run.id}, which {goes_first}: "
            + _at_pool(held, ahead, capacity)
            + capacity.share(run.pipeline, f"pool {held.about}")
        )
    if isinstance(answer, Grant):
        if task.spec.reads:
            return (
                f"ready: the leader renders its templates, which take results of "
                f"{', '.join(task.spec.reads)}, and gives it to a worker next"
            )
        return "ready: the leader gives it to a worker next"
    match answer.reason:
        case WaitReason.RUN_FULL:
            opened = ", ".join(_open_tasks(run)[:MAX_NAMED])
            count = f"{counted(run.max_parallel_tasks or 0, 'task')} of its run"
            is_are = "is" if run.max_parallel_tasks == 1 else "are"
            return f"{count} {is_are} open ({opened}): max_parallel_tasks is reached"
        case WaitReason.NO_POOL | WaitReason.POOL_FULL:
            return _at_pool(answer, task, capacity) + capacity.share(run.pipeline, f"pool {answer.about}")
        case reason:
            share = capacity.share(run.pipeline, "slots") if reason is WaitReason.ALL_BUSY else ""
            return _no_worker(reason, task, capacity, now) + share


def _open_tasks(run: Run) -> list[str]:
    return [task.spec.name for task in run.tasks.in_order() if task.open_attempt is not None]


def _no_worker(
    reason: Literal[
        WaitReason.NO_WORKER,
        WaitReason.ALL_OLDER,
        WaitReason.NO_TARGET,
        WaitReason.NO_LABELS,
        WaitReason.TARGET_FULL,
        WaitReason.ALL_DRAINING,
        WaitReason.ALL_LOW,
        WaitReason.ALL_BUSY,
    ],
    task: TaskRun,
    capacity: Capacity,
    now: datetime,
) -> str:
    able = list(filter(suited(need_of(task.spec), capacity.workers), capacity.workers))
    match reason:
        case WaitReason.NO_WORKER:
            return "no worker is registered: start one with `nimbus worker --config FILE`"
        case WaitReason.ALL_OLDER:
            return (
                f"{_all(len(capacity.workers), 'worker')} of a release that cannot run this task: upgrade one"
            )
        case WaitReason.NO_TARGET:
            return _no_target(need_of(task.spec))
        case WaitReason.NO_LABELS:
            return _no_labels(need_of(task.spec).labels, capacity)
        case WaitReason.TARGET_FULL:
            target = need_of(task.spec).target or ""
            return f"{_all(capacity.target_slots[target], 'slot', f' of target {target}')} taken"
        case WaitReason.ALL_DRAINING:
            named = ", ".join(sorted(worker.id for worker in able)[:MAX_NAMED])
            return (
                f"{_all(len(able), 'worker')} draining or cordoned: tasks that run go on, "
                f"nothing new starts ({named}); "
                "`nimbus worker uncordon ID` ends a cordon"
            )
        case WaitReason.ALL_LOW:
            return "no worker takes anything new: " + "; ".join(_low(able))
        case WaitReason.ALL_BUSY:
            of_those = "" if len(able) == len(capacity.workers) else " that can run it"
            return f"no free worker{of_those}: " + "; ".join(_all_busy(able, capacity.refusals, now))
        case _:
            assert_never(reason)


def _no_target(need: Need) -> str:
    where = "spark.targets of a worker's configuration"
    if need.in_cluster:
        return (
            f"no worker submits drivers to target {need.target}: see {where}; "
            "one of kind standalone or yarn needs `rest`"
        )
    return f"no worker has target {need.target}: add it to {where}"


def _no_labels(labels: tuple[str, ...], capacity: Capacity) -> str:
    known = {label for worker in capacity.workers for label in worker.labels}
    missing = [label for label in labels if label not in known]
    environments = [label for label in missing if ":" in label]
    if environments:
        name = environments[0].partition(":")[2]
        for worker in capacity.workers:
            if why := worker.environments.get(name):
                return (
                    f"environment {name} of worker {worker.id} cannot be used: {why}; mend it, the worker "
                    "looks again every 5 minutes"
                )
        return (
            f"no worker has environment {name}: add it to worker.environments of a worker; `nimbus doctor` "
            "checks it there"
        )
    if missing:
        return f"no worker has label {', '.join(missing)}: add it to worker.labels of a worker"
    return f"no worker has all of the labels {', '.join(labels)}"


def _all(count: int, noun: str, of: str = "") -> str:
    return f"the only {noun}{of} is" if count == 1 else f"all {count} {noun}s{of} are"


def _low(workers: list[WorkerInfo]) -> Iterator[str]:
    for worker in workers:
        yield f"worker {worker.id} {'drains' if worker.draining else 'has ' + worker.lacks}"


def _at_pool(wait: Wait, task: TaskRun, capacity: Capacity) -> str:
    name = wait.about
    if name not in capacity.pools:
        return f"there is no pool {name}: `nimbus pool set {name} SIZE`"
    size, used, wanted = capacity.pools[name], capacity.used(name), task.spec.pools[name]
    if wanted > size:
        return f"it takes {wanted} of pool {name}, which has {size}: `nimbus pool set {name} {wanted}`"
    return f"it takes {wanted} of pool {name}, of which {used} of {size} are taken"


def _all_busy(
    workers: list[WorkerInfo], refusals: Mapping[WorkerId, Refusals], now: datetime
) -> Iterator[str]:
    accepting = [worker for worker in workers if not (worker.draining or worker.lacks)]
    resting = [worker for worker in accepting if backs_off(worker, refusals, now)]
    if len(resting) == len(accepting):
        resting = []  # when all of them back off, they are used all the same
    slots = sum(worker.slots for worker in accepting) - sum(worker.slots for worker in resting)
    yield f"{_all(slots, 'slot')} busy"
    for worker in resting:
        refusal = refusals[worker.id]
        yield (
            f"worker {worker.id} did not start its last {counted(refusal.count, 'attempt')}: "
            f"none before {refusal.until:%H:%M:%SZ}"
        )
