"""Says why a task is not running, in words for people. Pure: facts in, sentence out.

Follows the leader's own rules (`domain.lifecycle.is_ready`, `domain.admission.admit`,
`domain.supervision.supervise`), so that the answer is the reason and not a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from nimbus.domain.admission import Capacity, Grant, Need, WaitReason, admit, backs_off, need_of, suited
from nimbus.domain.ids import TaskName, WorkerId
from nimbus.domain.refusals import Refusals
from nimbus.domain.run import Run, RunState, TaskRun, TaskState
from nimbus.domain.slots import ClusterDriver, Slots
from nimbus.domain.workers import WorkerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a task's fate depends on, beside its own run."""

    now: datetime
    leader: str | None
    """Id of the confirmed leader."""
    capacity: Callable[[], Capacity]
    """Read when the first explanation asks for it: most runs have no task that waits for a worker."""


def why(run: Run, task: TaskRun, slots: Slots | None, around: Surroundings) -> str | None:
    """Explain a task that is neither computing nor succeeded.

    Args:
        run: The task's run.
        task: One of its tasks.
        slots: Of the task's open attempt, if it has one and they could be read.
        around: Leader, workers and time.

    Returns:
        One sentence, or None when there is nothing to explain: it computes, or it succeeded.
    """
    match task.state:
        case TaskState.SUCCEEDED:
            return None
        case TaskState.WAITING:
            return _waiting(run, task, around)
        case TaskState.RUNNING:
            return _running(task, slots, around)
        case TaskState.SKIPPED:
            return _skipped(run, task)
        case TaskState.FAILED:
            return _failed(task)


def _waiting(run: Run, task: TaskRun, around: Surroundings) -> str:
    unmet = [need for need in task.spec.needs if run.tasks[need].state is not TaskState.SUCCEEDED]
    if unmet:
        return "needs " + ", ".join(f"{need} ({run.tasks[need].state.value})" for need in unmet)
    if around.leader is None:
        return "no scheduler leads at the moment; it starts when one does"
    if run.state is RunState.STOPPING:
        return f"its run is being stopped: {run.reason}"
    if task.retry_at is not None and task.retry_at > around.now:
        last = task.attempts[-1] if task.attempts else None
        cause = f" after attempt {last.number}: {last.ending}" if last and last.outcome else ""
        return f"tried again at {task.retry_at:%Y-%m-%d %H:%M:%SZ}{cause}"
    return _admission(task, around.capacity(), around.now)


def _admission(task: TaskRun, capacity: Capacity, now: datetime) -> str:
    answer = admit(task, capacity, now)
    if isinstance(answer, Grant):
        return "ready: the leader gives it to a worker next"
    able = list(filter(suited(need_of(task.spec), capacity.workers), capacity.workers))
    match answer.reason:
        case WaitReason.NO_WORKER:
            return "no worker is registered: start one with `nimbus worker --config FILE`"
        case WaitReason.ALL_OLDER:
            return (
                f"all {len(capacity.workers)} workers are of a release that cannot run this task: upgrade one"
            )
        case WaitReason.NO_TARGET:
            return _no_target(need_of(task.spec))
        case WaitReason.TARGET_FULL:
            target = need_of(task.spec).target or ""
            return f"all {capacity.target_slots[target]} slots of target {target} are taken"
        case WaitReason.ALL_DRAINING:
            return f"all {len(able)} workers are draining: they end what they have and take nothing new"
        case WaitReason.ALL_BUSY:
            of_those = "" if len(able) == len(capacity.workers) else " that can run it"
            return f"no free worker{of_those}: " + "; ".join(_all_busy(able, capacity.refusals, now))
        case _:
            assert_never(answer.reason)


def _no_target(need: Need) -> str:
    where = "spark.targets of a worker's configuration"
    if need.in_cluster:
        return (
            f"no worker submits drivers to target {need.target}: see {where}; "
            "one of kind standalone or yarn needs `rest`"
        )
    return f"no worker has target {need.target}: add it to {where}"


def _all_busy(
    workers: list[WorkerInfo], refusals: Mapping[WorkerId, Refusals], now: datetime
) -> Iterator[str]:
    accepting = [worker for worker in workers if not worker.draining]
    resting = [worker for worker in accepting if backs_off(worker, refusals, now)]
    if len(resting) == len(accepting):
        resting = []  # when all of them back off, none is spared
    slots = sum(worker.slots for worker in accepting) - sum(worker.slots for worker in resting)
    yield f"all {slots} slots are busy"
    for worker in resting:
        found = refusals[worker.id]
        yield (
            f"worker {worker.id} did not start its last {found.count} attempts: "
            f"none before {found.until:%H:%M:%SZ}"
        )


def _running(task: TaskRun, slots: Slots | None, around: Surroundings) -> str | None:
    attempt = task.open_attempt
    if attempt is None or slots is None:
        return None
    if slots.end is not None:
        return "it has ended; the leader has yet to take that in" + (
            "" if around.leader else ", and none leads"
        )
    if slots.stop_requested or attempt.stop_requested:
        return "asked to stop; its driver is ending"
    if slots.claim is None and slots.submitted is not None:
        return _submitted(slots.submitted, slots)
    if slots.claim is None:
        if any(worker.id == attempt.worker for worker in around.capacity().workers):
            return f"worker {attempt.worker} is preparing it"
        return f"worker {attempt.worker}, which has it, is not registered: it is given to another one soon"
    if not slots.beating:
        where = f" on {attempt.reaper}'s host" if attempt.reaper else ""
        return f"its runner is silent; its driver is looked for{where}"
    if slots.claim.driver is not None and (words := slots.progress.get("silent")) is not None:
        return (
            f"its driver in target {slots.claim.driver.target} is not heard, and may live: "
            f"the cluster says {words}"
        )
    return None


def _submitted(driver: ClusterDriver, slots: Slots) -> str:
    told = f"submitted to target {driver.target} as {driver.id}"
    if not slots.beating:
        return f"{told}; a worker is asked to follow it"
    words = slots.progress.get("cluster")
    return f"{told}, where it waits for its start" + (f": {words}" if words else "")


def _skipped(run: Run, task: TaskRun) -> str:
    failed = sorted(
        name
        for name in _upstream(run, task)
        if run.tasks[name].state in (TaskState.FAILED, TaskState.SKIPPED)
    )
    if failed:
        return "skipped: " + ", ".join(failed) + " did not succeed"
    return f"skipped: {run.reason or 'its run ended'}"


def _upstream(run: Run, task: TaskRun) -> frozenset[TaskName]:
    found: set[TaskName] = set()
    edge = set(task.spec.needs)
    while edge:
        found |= edge
        edge = {need for name in edge for need in run.tasks[name].spec.needs} - found
    return frozenset(found)


def _failed(task: TaskRun) -> str | None:
    last = task.attempts[-1] if task.attempts else None
    if last is None or last.outcome is None:
        return None
    tried = f"{task.tried} attempt{'s' if task.tried > 1 else ''}"
    retries = task.spec.retries
    if task.failures <= retries.limit and not retries.covers(last.failure):
        tried += f", since its retries are not for {last.failure}"
    return f"failed after {tried}: {last.ending}{': ' + last.reason if last.reason else ''}"
