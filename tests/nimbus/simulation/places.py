"""Who holds a place of a limit, computed from the tasks alone: a second opinion on `nimbus.domain.places`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.ids import PipelineName
from nimbus.domain.run import Run, RunState
from nimbus.domain.task_run import TaskState
from tests.nimbus.simulation.catalog import MAX_RUNNING


def is_busy(run: Run) -> bool:
    """True if a run that is not queued does more than wait."""
    return run.state is RunState.STOPPING or can_work(run)


def can_work(run: Run) -> bool:
    """True if a task is under way, or could be with a worker."""
    for task in run.tasks.values():
        if task.state is TaskState.RUNNING:
            return True
        met = all(run.tasks[need].state.is_final for need in task.spec.needs)
        if task.state is TaskState.WAITING and task.spec.kind.uses_worker and met:
            return True
    return False


def in_cluster(run: Run) -> bool:
    """True if a run counts for the limit of the cluster."""
    return run.parent is None and run.state is not RunState.QUEUED and is_busy(run)


def in_pipeline(run: Run) -> bool:
    """True if a run counts for the limit of its pipeline."""
    if any(task.attempts for task in run.tasks.values()):
        return True
    return run.state is not RunState.QUEUED and is_busy(run)


def is_overdue(run: Run, live: Collection[Run], pipelines: Mapping[PipelineName, PipelineRecord]) -> bool:
    """True if a queued run could be under way: nobody paused it, and each limit leaves it room."""
    record = pipelines.get(run.pipeline)
    if run.state is not RunState.QUEUED or run.paused is not None or record is None:
        return False
    if not can_work(run):
        return True
    if run.parent is None and sum(map(in_cluster, live)) >= MAX_RUNNING:
        return False
    concurrency = record.profile.concurrency
    own = sum(in_pipeline(other) for other in live if other.pipeline == run.pipeline)
    return concurrency is None or in_pipeline(run) or own < concurrency.limit
