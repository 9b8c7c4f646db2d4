"""When a task may start, when its waiting ends, and when a run or task is late. Pure.

All is derived from records, so every leader computes the same times.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from nimbus.domain.cluster.alerts import Lateness
from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun, TaskState


def not_before(run: Run, task: TaskRun) -> datetime | None:
    """The end of a retry's pause, or of `start_after` before the first attempt; None: at once.

    `run`: a run in which all needs of the task are met.
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
        yield from sorted(end for task in failed if not task.spec.allow_failure for end in _ended(task))[:1]


def _ended(task: TaskRun) -> Iterator[datetime]:
    yield from (last.ended_at for last in task.attempts[-1:] if last.ended_at is not None)
    if task.settled is not None:
        yield task.settled.at


def late_at(run: Run, fastest: timedelta | None = None) -> dict[Lateness, datetime]:
    """The times from which an unended run is late, for each kind of lateness that was not raised yet.

    Args:
        run: A run. Kinds that count from its start are left out until it starts.
        fastest: Nine of ten runs of its pipeline take longer than this; None: not known.
    """
    times = {}
    if run.warn_after is not None and run.started_at is not None:
        times[Lateness.WARN_AFTER] = run.started_at + run.warn_after
    if run.expect is not None:
        limit = times[Lateness.EXPECT] = run.created_at + run.expect
        if fastest is not None and not begins_by(run, limit - fastest):
            times[Lateness.EXPECT_SOON] = max(limit - fastest, run.created_at)
    return {lateness: at for lateness, at in times.items() if lateness not in run.late}


def begins_by(run: Run, moment: datetime) -> bool:
    """True when the run had started at `moment`."""
    return run.started_at is not None and run.started_at <= moment


def passed(run: Run, now: datetime, fastest: timedelta | None = None) -> tuple[Lateness, ...]:
    """Kinds of lateness to raise now. `expect_soon` is left out once `expect` is due."""
    passed = [lateness for lateness, at in sorted(late_at(run, fastest).items()) if at <= now]
    if Lateness.EXPECT in (*passed, *run.late) and Lateness.EXPECT_SOON in passed:
        passed.remove(Lateness.EXPECT_SOON)
    return tuple(passed)


def task_late_at(run: Run, task: TaskRun) -> datetime | None:
    """When an open attempt, or the wait of a ready task without one, becomes late; None: never, or raised.

    `task`: a task with an open attempt, or one that no worker runs and whose needs are met.
    """
    if task.spec.warn_after is None:
        return None
    if not task.spec.kind.uses_worker:
        return None if task.warned else waits_since(run, task) + task.spec.warn_after
    attempt = task.open_attempt
    if attempt is None or task.warned >= attempt.number:
        return None
    return attempt.opened_at + task.spec.warn_after


def newly_late(before: Run | None, run: Run) -> Iterator[tuple[TaskRun, int]]:
    """Tasks that became late, with the attempt's number: marked as late, or ended late."""
    for was, task in run.tasks.changes_since(None if before is None else before.tasks):
        if was is None or task.spec.warn_after is None:
            continue
        if task.warned > was.warned:
            yield task, task.warned
        elif (
            was.open_attempt is not None
            and task.warned < task.tried
            and _lasted(task) >= task.spec.warn_after
        ):
            yield task, task.tried


def _lasted(task: TaskRun) -> timedelta:
    """Duration of the last attempt; 0 if it is open."""
    last = task.attempts[-1]
    return timedelta(0) if last.ended_at is None else last.ended_at - last.opened_at


def newly_asked(before: Run | None, run: Run) -> Iterator[TaskRun]:
    """Approval tasks that were marked as asked since `before`, so that an alert is due."""
    for was, task in run.tasks.changes_since(None if before is None else before.tasks):
        if task.spec.kind is TaskKind.APPROVAL and task.asked and was is not None and not was.asked:
            yield task
