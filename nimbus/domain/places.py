"""The places of a run in `concurrency.limit` and `runs.max_running`. Pure.

A run that only waits for data, runs or people needs no place: what it waits for may need one. Once one of
its tasks has run, it keeps its place in `concurrency.limit` to its end, so that the work of two runs of a
pipeline with a limit of 1 never mixes.
"""

from __future__ import annotations

from nimbus.domain.run import Places, Run
from nimbus.domain.run_rank import Ranked
from nimbus.domain.task_run import TaskRun, TaskState


def needed(run: Run) -> Places:
    """The places that a run needs to go on."""
    if run.state.is_ending or run.tasks.count(TaskState.RUNNING) or not run.tasks.has_waits:
        return Places.ALL
    if any(can_begin(run, task) for task in run.tasks.in_order()):
        return Places.ALL
    return Places.PIPELINE if any(map(_has_run, run.tasks.in_order())) else Places.NONE


def in_pipeline(run: Ranked) -> bool:
    """True when a live run counts for `concurrency.limit`."""
    return run.holds is not Places.NONE


def in_cluster(run: Ranked) -> bool:
    """True when a live run counts for `runs.max_running`. The parent of a child run counts in its place."""
    return run.holds is Places.ALL and run.parent is None


def can_begin(run: Run, task: TaskRun) -> bool:
    """True when a task needs only a worker, room, or the end of a pause."""
    return (
        task.state is TaskState.WAITING
        and task.spec.kind.uses_worker
        and all(run.tasks[need].state.is_final for need in task.spec.needs)
    )


def _has_run(task: TaskRun) -> bool:
    return bool(task.attempts)  # children alone can come from the run that this one repeats
