"""The earliest start of a task. Derived from the run's record, so every leader computes the same time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun, TaskState


def not_before(run: Run, task: TaskRun) -> datetime | None:
    """The end of a retry's pause, or of `start_after` before the first attempt; None: at once.

    Args:
        run: A run in which all needs of the task are met.
        task: A waiting task of the run.
    """
    if task.attempts or task.spec.start_after is None:
        return task.retry_at
    return waits_since(run, task) + task.spec.start_after


def waits_since(run: Run, task: TaskRun) -> datetime:
    """When the last need of a task was met; the start of the run, if it has none."""
    return max([run.started_at or run.created_at, *_ends(run, task)])


def queue_ends_at(run: Run, task: TaskRun) -> datetime | None:
    """When a task that waits for room fails; None: never. Arguments as of `not_before`."""
    if task.spec.queue_timeout is None:
        return None
    return (not_before(run, task) or waits_since(run, task)) + task.spec.queue_timeout


def gives_up_at(run: Run, task: TaskRun) -> datetime | None:
    """When a task that no worker runs fails, unless it ends before; None: never."""
    return None if task.spec.timeout is None else waits_since(run, task) + task.spec.timeout


def _ends(run: Run, task: TaskRun) -> Iterator[datetime]:
    """When the needs of a task ended. A need that never ran counts when it was settled."""
    seen, edge = set(task.spec.needs), list(task.spec.needs)
    while edge:
        need = run.tasks[edge.pop()]
        yield from _ended(need)
        if need.state in (TaskState.SKIPPED, TaskState.NOT_RUN):
            behind = set(need.spec.needs) - seen
            seen |= behind
            edge += behind
    if run.is_cleaning_up and any(run.tasks[name].state is TaskState.NOT_RUN for name in seen):
        failed = (task for task in run.tasks.in_order() if task.state is TaskState.FAILED)
        yield from sorted(end for one in failed if not one.spec.allow_failure for end in _ended(one))[:1]


def _ended(task: TaskRun) -> Iterator[datetime]:
    yield from (last.ended_at for last in task.attempts[-1:] if last.ended_at is not None)
    if task.settled is not None:
        yield task.settled.at
