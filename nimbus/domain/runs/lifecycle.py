"""The life of a run, from its start through its attempts to its end. Pure functions: Run in, Run out.

Laws, checked by `tests/nimbus/property/test_domain_lifecycle.py`:
  * at most one attempt of a task is open, and attempt n+1 opens only when n has an outcome;
  * a task that is final never changes again;
  * a final run has no open attempt and no task that is not final.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from nimbus.domain.attempts.slots import End, application_id
from nimbus.domain.errors import InvalidTransitionError
from nimbus.domain.ids import AttemptId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureStrategy
from nimbus.domain.runs.growth import with_attempt
from nimbus.domain.runs.run import Places, Run, RunState
from nimbus.domain.runs.task_run import Attempt, Outcome, Settlement, TaskRun, TaskState
from nimbus.domain.starts.needs import clean_up, conclude
from nimbus.domain.wording import shortened

INFRASTRUCTURE_PAUSE = timedelta(seconds=1)
"""First pause after an attempt that was lost or refused; doubled each time, up to the next."""
INFRASTRUCTURE_PAUSE_MAX = timedelta(seconds=30)
MAX_NAMED = 5
"""How many failed tasks a run's reason names. It only counts the others."""


def is_ready(run: Run, task: TaskRun) -> bool:
    """True when a task needs only a slot, and perhaps the end of a pause (`retry_at`).

    A task that may not begin leaves WAITING when its needs are final: see `nimbus.domain.starts.needs`.
    """
    return (
        run.opens_tasks
        and task.state is TaskState.WAITING
        and all(run.tasks[need].state.is_final for need in task.spec.needs)
    )


def begin(run: Run, now: datetime) -> Run:
    """Decide about the tasks of a new run that have no needs, and then about their dependents."""
    return finished_if_done(run.with_tasks(conclude(run.tasks, run.tasks)), now)


def must_stop(run: Run, name: TaskName) -> bool:
    """True when an open attempt of a task must stop."""
    if run.is_cleaning_up:
        return not run.tasks[name].spec.is_clean_up
    return run.state is RunState.STOPPING


def open_attempt(run: Run, name: TaskName, *, worker: WorkerId, epoch: int, now: datetime) -> Run:
    """Open the next attempt of a waiting task on a worker.

    Raises InvalidTransitionError: the task is not waiting, or the run does not start tasks (any more).
    """
    task = run.tasks[name]
    if not run.opens_tasks or task.state is not TaskState.WAITING:
        raise InvalidTransitionError(
            f"run {run.id} ({run.state}): task {name} ({task.state}) cannot open an attempt"
        )
    attempt = Attempt(number=task.tried + 1, worker=worker, opened_at=now, opened_by_epoch=epoch)
    opened = with_attempt(run, task, attempt, state=TaskState.RUNNING, retry_at=None)
    return _with_tasks(run, (opened,))


def close_attempt(
    run: Run, attempt: AttemptId, end: End, *, max_infrastructure_failures: int, now: datetime
) -> Run:
    """Apply an attempt's END to the run, with all that follows from it.

    `max_infrastructure_failures`: how many attempts of a task may be lost, fenced or refused. Raises
    InvalidTransitionError: the attempt is not the task's open one.
    """
    task = run.tasks[attempt.task]
    current = task.open_attempt
    if current is None or current.number != attempt.number:
        raise InvalidTransitionError(f"attempt {attempt} is not open: it cannot be closed")
    closed = replace(
        current,
        outcome=end.outcome,
        reason=shortened(end.reason),
        exit_code=end.exit_code,
        failure=end.failure,
        pipeline_at_fault=end.pipeline_at_fault,
        started_at=end.started_at,
        ended_at=end.ended_at,
        output=end.output if end.outcome is Outcome.SUCCEEDED else None,
        application=application_id(end.application),
        jvm=shortened(end.jvm),
        cost=end.cost,
        has_result=end.outcome is Outcome.SUCCEEDED and end.result is not None,
    )
    return after_attempt(
        run, replace(task, attempts=(*task.attempts[:-1], closed)), max_infrastructure_failures, now
    )


def after_attempt(run: Run, task: TaskRun, max_infrastructure_failures: int, now: datetime) -> Run:
    """The run after the end of a task's last attempt, with all that follows."""
    return _moved(run, _after_end(run, task, task.attempts[-1], max_infrastructure_failures, now), now)


def end_task(run: Run, name: TaskName, *, state: TaskState, settlement: Settlement, now: datetime) -> Run:
    """End a ready task that no worker runs, as succeeded or failed, with all that follows.

    Raises InvalidTransitionError: workers run the task, or it is not ready.
    """
    task = run.tasks[name]
    if task.spec.kind.uses_worker or not is_ready(run, task):
        raise InvalidTransitionError(f"run {run.id} ({run.state}): task {name} ({task.state}) cannot end now")
    said = replace(settlement, by=shortened(settlement.by), reason=shortened(settlement.reason))
    return _moved(run, replace(task, state=state, settled=said), now)


def mark_task(run: Run, name: TaskName, *, state: TaskState, settlement: Settlement, now: datetime) -> Run:
    """End a waiting task in the state that an operator chose, with all that follows.

    Raises InvalidTransitionError: the task does not wait, or its run is ending.
    """
    task = run.tasks[name]
    if task.state is not TaskState.WAITING or run.state.is_ending:
        raise InvalidTransitionError(f"run {run.id} ({run.state}): task {name} ({task.state}) does not wait")
    said = replace(settlement, by=shortened(settlement.by), reason=shortened(settlement.reason))
    return _moved(run, replace(task, state=state, settled=said, retry_at=None), now)


def conclude_waiting(run: Run, name: TaskName, state: TaskState, now: datetime, reason: str = "") -> Run:
    """End a waiting task without an attempt, with all that follows.

    Raises InvalidTransitionError: the task does not wait.
    """
    task = run.tasks[name]
    if task.state is not TaskState.WAITING:
        raise InvalidTransitionError(f"run {run.id}: task {name} ({task.state}) does not wait")
    said = Settlement(at=now, reason=shortened(reason)) if reason else None
    return _moved(run, replace(task, state=state, settled=said, retry_at=None), now)


def _moved(run: Run, task: TaskRun, now: datetime) -> Run:
    """The run with a task in its new state, and with all that follows."""
    tasks = run.tasks.replaced((task,))
    if task.state is TaskState.FAILED and run.state is RunState.RUNNING and not task.spec.allow_failure:
        run = _failed(run.with_tasks(tasks), now)
        tasks = run.tasks
    if task.state.is_final:
        tasks = conclude(tasks, tasks.dependents(task.spec.name))
    return finished_if_done(run.with_tasks(tasks), now)


def _after_end(
    run: Run, task: TaskRun, closed: Attempt, max_infrastructure_failures: int, now: datetime
) -> TaskRun:
    if task.spec.keeps_running and not must_stop(run, task.spec.name):
        return _started_again(task, closed, now)
    if closed.outcome is Outcome.SUCCEEDED:
        return replace(task, state=TaskState.SUCCEEDED)
    is_infrastructure = closed.outcome is not None and closed.outcome.is_infrastructure
    if must_stop(run, task.spec.name):
        unfinished = is_infrastructure or closed.outcome is Outcome.STOPPED
        return replace(task, state=TaskState.NOT_RUN if unfinished else TaskState.FAILED)
    if closed.outcome is Outcome.STOPPED:  # stopped from outside, not with its run: do not retry
        return replace(task, state=TaskState.FAILED)
    if is_infrastructure:
        if task.infrastructure_failures >= max_infrastructure_failures:
            return replace(task, state=TaskState.FAILED)
        return replace(
            task, state=TaskState.WAITING, retry_at=now + _infrastructure_pause(task.infrastructure_failures)
        )
    if task.failures > task.spec.retries.limit or not task.spec.retries.covers(closed.failure):
        return replace(task, state=TaskState.FAILED)
    pause = task.spec.retries.pause_after(task.failures)
    return replace(task, state=TaskState.WAITING, retry_at=now + pause)


def _started_again(task: TaskRun, closed: Attempt, now: datetime) -> TaskRun:
    """A task that is kept running waits for its next attempt, whatever ended the last one.

    The pause grows with each attempt that ends early. One that lasted for at least the longest pause did not.
    """
    if closed.stop_requested:  # it moves to another worker
        return replace(task, state=TaskState.WAITING, retry_at=None)
    lasted = now - (closed.started_at or closed.opened_at)
    early = 1 if lasted >= task.spec.retries.max_delay else task.early_ends + 1
    is_infrastructure = closed.outcome is not None and closed.outcome.is_infrastructure
    pause = (
        _infrastructure_pause(early)
        if is_infrastructure
        else max(INFRASTRUCTURE_PAUSE, task.spec.retries.pause_after(early))
    )
    return replace(task, state=TaskState.WAITING, retry_at=now + pause, early_ends=early)


def _infrastructure_pause(count: int) -> timedelta:
    return min(INFRASTRUCTURE_PAUSE * (1 << min(count - 1, 16)), INFRASTRUCTURE_PAUSE_MAX)


def queued(run: Run) -> Run:
    """A new run, queued until there is room for it."""
    return replace(run, state=RunState.QUEUED, started_at=None, deadline=None, holds=Places.NONE)


def started(run: Run, now: datetime) -> Run:
    """Start a run: its timeout counts from here. One that had started before it was queued goes on."""
    if run.started_at is not None and run.state is RunState.QUEUED:
        return replace(run, state=RunState.RUNNING)
    deadline = None if run.timeout is None else now + run.timeout
    return replace(run, state=RunState.RUNNING, started_at=now, deadline=deadline)


def stop(run: Run, *, verdict: RunState, reason: str, now: datetime) -> Run:
    """Start no more tasks. The run ends as `verdict` when its open attempts have ended.

    A second stop changes nothing: the first reason stays. In a failed run, a stop ends the clean-up.
    """
    if run.state.is_ending:
        return run
    if run.verdict is not None:
        verdict, reason = run.verdict, f"{run.reason}; its clean-up was stopped: {reason}"
    return finished_if_done(_stopping(run, verdict, shortened(reason), now), now)


def finished_if_done(run: Run, now: datetime) -> Run:
    """Finish a run that has nothing left to do."""
    if run.state.is_final or run.tasks.count(TaskState.WAITING, TaskState.RUNNING):
        return run
    if run.state is RunState.STOPPING:
        return replace(run, state=run.verdict or RunState.STOPPED, finished_at=now)
    return replace(run, state=RunState.FAILED if any(_failures(run)) else RunState.SUCCEEDED, finished_at=now)


def _failures(run: Run) -> Iterator[TaskName]:
    """Tasks whose failure makes their run fail."""
    if run.tasks.count(TaskState.FAILED):
        for task in run.tasks.in_order():
            if task.state is TaskState.FAILED and not task.spec.allow_failure:
                yield task.spec.name


def _stopping(
    run: Run,
    verdict: RunState,
    reason: str,
    now: datetime,
    kept: Collection[TaskName] = (),
    state: RunState = RunState.STOPPING,
) -> Run:
    """Start no more tasks except `kept`."""
    hindered = (
        replace(task, state=TaskState.NOT_RUN)
        for task in run.tasks.in_order()
        if task.state is TaskState.WAITING and task.spec.name not in kept
    )
    ending = replace(run, state=state, verdict=verdict, reason=reason, stopping_at=run.stopping_at or now)
    stopping = _with_tasks(ending, tuple(hindered))
    return stopping.with_tasks(conclude(stopping.tasks, kept))


def _failed(run: Run, now: datetime) -> Run:
    """The run after one of its tasks has failed for good."""
    failed = list(_failures(run))
    more = len(failed) - MAX_NAMED
    named = ", ".join(sorted(failed[:MAX_NAMED]))
    reason = shortened(f"failed: {named}{f' and {more} more' if more > 0 else ''}")
    if run.failure_strategy is FailureStrategy.END and not run.is_cleaning_up:
        kept = clean_up(run.tasks)
        state = RunState.RUNNING if kept or _cleans_up(run) else RunState.STOPPING
        return _stopping(run, RunState.FAILED, reason, now, kept, state)
    return replace(run, reason=reason)


def _cleans_up(run: Run) -> bool:
    """True while a clean-up task runs."""
    if not run.tasks.count(TaskState.RUNNING):
        return False
    return any(task.state is TaskState.RUNNING and task.spec.is_clean_up for task in run.tasks.in_order())


def ask_to_stop(run: Run, attempt: AttemptId) -> Run:
    """Record that a stop was requested for an open attempt, so that it is requested only once."""
    return _change_open(run, attempt, stop_requested=True)


def ask_to_reap(run: Run, attempt: AttemptId, reaper: WorkerId | None) -> Run:
    """Record the worker that reaps an open attempt; None: no worker on its host is alive."""
    return _change_open(run, attempt, reaper=reaper)


def _change_open(run: Run, attempt: AttemptId, **changes: object) -> Run:
    task = run.tasks[attempt.task]
    current = task.open_attempt
    if current is None or current.number != attempt.number:
        raise InvalidTransitionError(f"attempt {attempt} is not open")
    return _with_tasks(run, (replace(task, attempts=(*task.attempts[:-1], replace(current, **changes))),))  # type: ignore[arg-type]  # keys are fixed above


def committed_outputs(run: Run, needs: Iterable[TaskName]) -> Mapping[str, str]:
    """Output folders of tasks that succeeded, relative to the shared data folder."""
    committed = ((need, run.tasks[need].committed) for need in needs)
    return {
        str(need): attempt.output for need, attempt in committed if attempt is not None and attempt.output
    }


def _with_tasks(run: Run, tasks: Iterable[TaskRun]) -> Run:
    return run.with_tasks(run.tasks.replaced(tasks))
