"""Says why a task is not running, in words for people. Pure: facts in, sentence out.

Follows the leader's own rules (`domain.lifecycle.ready_tasks`, `domain.workers.choose_worker`,
`domain.supervision.supervise`), so that the answer is the reason and not a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nimbus.domain.ids import TaskName, WorkerId
from nimbus.domain.refusals import Refusals
from nimbus.domain.run import Run, RunState, TaskRun, TaskState
from nimbus.domain.slots import Slots
from nimbus.domain.workers import WorkerInfo, free_slots, open_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a task's fate depends on, beside its own run."""

    now: datetime
    leader: str | None
    """Id of the confirmed leader."""
    workers: Sequence[WorkerInfo] = ()
    busy: Mapping[WorkerId, int] = field(default_factory=dict)
    """Open attempts of each worker, over all runs."""
    refusals: Mapping[WorkerId, Refusals] = field(default_factory=dict)
    """Workers that did not start their last attempts."""


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
        cause = f" after attempt {last.number} ({last.outcome})" if last and last.outcome else ""
        return f"tried again at {task.retry_at:%Y-%m-%d %H:%M:%SZ}{cause}"
    return _no_slot(around)


def _no_slot(around: Surroundings) -> str:
    if not around.workers:
        return "no worker is registered: start one with `nimbus worker --config FILE`"
    draining = sum(worker.draining for worker in around.workers)
    if draining == len(around.workers):
        return f"all {draining} workers are draining: they end what they have and take nothing new"
    able = open_workers(around.workers, around.refusals, around.now)
    if not any(free_slots(worker, around.busy.get(worker.id, 0)) for worker in able):
        slots = sum(worker.slots for worker in able)
        return "; ".join([f"no free worker: all {slots} slots are busy", *_backing_off(around, able)])
    return "ready: the leader gives it to a worker next"


def _backing_off(around: Surroundings, able: Sequence[WorkerInfo]) -> Iterator[str]:
    for worker in around.workers:
        found = around.refusals.get(worker.id)
        if found is not None and worker not in able and not worker.draining:
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
    if slots.claim is None:
        if attempt.worker in {worker.id for worker in around.workers}:
            return f"worker {attempt.worker} is preparing it"
        return f"worker {attempt.worker}, which has it, is not registered: it is given to another one soon"
    if not slots.beating:
        where = f" on {attempt.reaper}'s host" if attempt.reaper else ""
        return f"its runner is silent; its driver is looked for{where}"
    return None


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
    return f"failed after {tried}: {last.outcome.value}{': ' + last.reason if last.reason else ''}"
