"""The state of a run at a past moment, derived from its record alone. Pure.

The record has the times when attempts were opened and ended, when the run started and began to stop, and when
people decided. The rest follows by the leader's own rules. Facts that the record does not have are missing:
attempts that it only counts, pauses that are over, the progress of child runs, and when the clean-up of a run
was stopped. A clean-up task that never ran is shown as waiting until the run's end, if the record does not
have the time of that decision.

Laws: `tests/nimbus/property/test_domain_replay.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from graphlib import TopologicalSorter

from nimbus.domain.ids import TaskName
from nimbus.domain.pipelines.pipeline import FailureStrategy
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Attempt, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.needs import state_after


def as_at(run: Run, at: datetime) -> Run:
    """The run at the moment `at`, which must not be before its creation. Events at `at` are included.

    Times of attempts are from the worker's clock. They are adjusted so that an attempt never ends before it
    was opened, or after the next one was opened.
    """
    end = run.finished_at or max(_moments(run))
    if at >= end:
        return run
    finals = _finals(run, end)
    tasks = Tasks(_task(task, finals.get(name), at) for name, task in run.tasks.items())
    started = run.started_at is not None and run.started_at <= at
    changes = replace(
        run,
        tasks=tasks,
        finished_at=None,
        started_at=run.started_at if started else None,
        deadline=run.deadline if started else None,
        paused=run.paused if run.paused is not None and run.paused.at <= at else None,
    )
    if run.stopping_at is None or run.stopping_at > at:
        state = RunState.RUNNING if started else RunState.QUEUED
        return replace(changes, state=state, verdict=None, stopping_at=None, reason="")
    return replace(changes, state=RunState.RUNNING if _cleaned_up(run, finals) else RunState.STOPPING)


def _moments(run: Run) -> Iterator[datetime]:
    """All past moments that the record of a live run names."""
    moments = [run.created_at, run.started_at, run.stopping_at]
    if run.paused is not None:
        moments.append(run.paused.at)
    for task in run.tasks.in_order():
        if task.settled is not None:
            moments.append(task.settled.at)
        if task.children is not None:
            moments.append(task.children.began_at)
        for attempt in task.attempts:
            moments += [attempt.opened_at, attempt.started_at, attempt.ended_at]
    yield from (moment for moment in moments if moment is not None)


def _finals(run: Run, end: datetime) -> Mapping[TaskName, datetime]:
    """When each final task became final."""
    keeps = _failed_by_a_task(run)
    times: dict[TaskName, datetime] = {}
    for name in TopologicalSorter({name: task.spec.needs for name, task in run.tasks.items()}).static_order():
        task = run.tasks[name]
        if not task.state.is_final:
            continue
        own = _own_end(run, task)
        needs = max((times.get(need, end) for need in task.spec.needs), default=run.created_at)
        if task.state is TaskState.NOT_RUN and task.settled is None:
            stopped = None if keeps and task.spec.is_clean_up else run.stopping_at
            own = _hindered(run, task, own, needs, stopped) or end
        times[name] = min(own or needs, end)
    return times


def _own_end(run: Run, task: TaskRun) -> datetime | None:
    """When a final task ended, if its own record has the time."""
    if task.settled is not None:
        return task.settled.at
    if task.left_out or task.reused is not None:
        return run.created_at
    return _ended(task.attempts[-1]) if task.attempts else None


def _hindered(
    run: Run, task: TaskRun, own: datetime | None, needs: datetime, stopped: datetime | None
) -> datetime | None:
    """When it became certain that a task does not run; None: the record does not have the time."""
    if own is not None:
        return None if stopped is None else max(own, stopped)
    if state_after(task.spec, run.tasks.__getitem__) is TaskState.NOT_RUN:
        return needs if stopped is None else min(needs, stopped)
    return stopped


def _failed_by_a_task(run: Run) -> bool:
    """True when a task's failure began the run's end, so that clean-up may have followed."""
    if run.stopping_at is None or run.failure_strategy is not FailureStrategy.END:
        return False
    failed = (task for task in run.tasks.in_order() if task.state is TaskState.FAILED)
    ends = (_own_end(run, task) for task in failed if not task.spec.allow_failure)
    return any(end is not None and end <= run.stopping_at for end in ends)


def _cleaned_up(run: Run, finals: Mapping[TaskName, datetime]) -> bool:
    """True when the run, after it had failed, went on as running for its clean-up."""
    stopping_at = run.stopping_at
    return (
        stopping_at is not None
        and _failed_by_a_task(run)
        and any(
            task.spec.is_clean_up and (name not in finals or finals[name] > stopping_at)
            for name, task in run.tasks.items()
        )
    )


def _ended(attempt: Attempt) -> datetime | None:
    if attempt.outcome is None:
        return None
    return max(attempt.ended_at or attempt.opened_at, attempt.opened_at)


def _task(task: TaskRun, final_at: datetime | None, at: datetime) -> TaskRun:
    if final_at is not None and final_at <= at:
        return task
    nexts = (*(attempt.opened_at for attempt in task.attempts[1:]), None)
    attempts = tuple(
        _attempt(attempt, next_at, at)
        for attempt, next_at in zip(task.attempts, nexts, strict=False)
        if attempt.opened_at <= at
    )
    if attempts and attempts[-1].outcome is None:
        state = TaskState.RUNNING
    else:
        state = TaskState.RUNNING if _has_child_runs(task, len(attempts), at) else TaskState.WAITING
    return replace(
        task,
        state=state,
        attempts=attempts,
        retry_at=None,
        children=None,
        settled=None,
    )


def _has_child_runs(task: TaskRun, ended_count: int, at: datetime) -> bool:
    """True when its child runs were under way. They have no attempt until they have ended."""
    children = task.children
    if children is None or children.began_at > at:
        return False
    return not any(attempt.number == children.attempt for attempt in task.attempts[:ended_count])


def _attempt(attempt: Attempt, next_at: datetime | None, at: datetime) -> Attempt:
    ended = _ended(attempt)
    if ended is not None and min(ended, next_at or ended) <= at:
        return attempt
    started = attempt.started_at if attempt.started_at is not None and attempt.started_at <= at else None
    return Attempt(
        number=attempt.number,
        worker=attempt.worker,
        opened_at=attempt.opened_at,
        opened_by_epoch=attempt.opened_by_epoch,
        started_at=started,
    )
