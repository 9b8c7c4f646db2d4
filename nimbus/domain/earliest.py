"""When a task may start at the earliest. Derived from the run's record, so each leader finds the same."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.run import Run, TaskRun


def not_before(run: Run, task: TaskRun) -> datetime | None:
    """The end of a retry's pause, or of `start_after`, which counts for the first attempt; None: at once.

    Args:
        run: With all needs of the task met.
        task: One of its tasks that waits.
    """
    if task.attempts or task.spec.start_after is None:
        return task.retry_at
    ends = [last.ended_at for need in task.spec.needs for last in run.tasks[need].attempts[-1:]]
    met_at = max([run.started_at or run.created_at, *(end for end in ends if end is not None)])
    return met_at + task.spec.start_after
