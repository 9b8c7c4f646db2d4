"""Who holds a place of a limit, from the tasks alone: a second opinion on `nimbus.domain.starts.places`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from nimbus.domain.cluster.settings import Hold, HoldOf
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import TaskRun, TaskState
from tests.nimbus.simulation.catalog import MAX_RUNNING


def can_work(run: Run) -> bool:
    """True if a task is under way, or could be with a worker, or has a child run to start."""
    for task in run.tasks.values():
        if task.state is TaskState.RUNNING and not _awaits_child_runs(run, task):
            return True
        met = all(run.tasks[need].state.is_final for need in task.spec.needs)
        if task.state is TaskState.WAITING and task.spec.kind.uses_worker and met and _has_data(run, task):
            return True
    return False


def _has_data(run: Run, task: TaskRun) -> bool:
    """True unless a task waits for data of others. What is new, or of its own runs, it takes in its place."""
    own = {one.dataset for other in run.tasks.values() for one in other.spec.publishes}
    others = {read.name for read in run.reads if not (read.dataset in own or read.of or read.new)}
    return others.intersection(task.spec.uses) <= run.pins.keys()


def _awaits_child_runs(run: Run, task: TaskRun) -> bool:
    if task.children is None or task.spec.children is None:
        return False
    if run.state is RunState.STOPPING or (run.verdict is not None and not task.spec.is_clean_up):
        return True
    under_way, left = (task.children.states.count(letter) for letter in "ow")
    most = task.spec.children.max_parallel
    return under_way > 0 and (left == 0 or (most is not None and under_way >= most))


def works(run: Run) -> bool:
    """True if a run that is not queued does more than wait."""
    return run.state is not RunState.QUEUED and can_work(run)


def top_of(run: Run, live: Collection[Run]) -> RunId:
    """The run at the top of a tree."""
    parents = {other.id: other.parent for other in live}
    top, above = run.id, run.parent
    while above is not None:
        top, above = above.run, parents[above.run]
    return top


def in_cluster(live: Collection[Run]) -> Set[RunId]:
    """The tops of the trees that count for the limit of the cluster."""
    return {top_of(run, live) for run in live if works(run)}


def in_pipeline(run: Run) -> bool:
    """True if a run counts for the limit of its pipeline."""
    begun = any(task.attempts or task.state is TaskState.RUNNING for task in run.tasks.values())
    return begun or works(run)


def is_held(run: Run, pipelines: Mapping[PipelineName, PipelineRecord], holds: Mapping[str, Hold]) -> bool:
    """True if a run may not begin: it is no child run, has not begun, and a hold is about its pipeline."""
    record = pipelines.get(run.pipeline)
    if record is None or run.parent is not None or run.started_at is not None:
        return False
    return any(
        hold.of is HoldOf.ALL
        or (hold.of is HoldOf.TEAM and record.owner == hold.name)
        or (hold.of is HoldOf.TAG and hold.name in record.profile.tags)
        or (hold.of is HoldOf.PREFIX and record.name[: len(hold.name)] == hold.name)
        for hold in holds.values()
    )


def is_overdue(
    run: Run,
    live: Collection[Run],
    pipelines: Mapping[PipelineName, PipelineRecord],
    holds: Mapping[str, Hold],
) -> bool:
    """True if a queued run could be under way: nobody paused or holds it, and each limit leaves it room."""
    record = pipelines.get(run.pipeline)
    if run.state is not RunState.QUEUED or run.paused is not None or record is None:
        return False
    if is_held(run, pipelines, holds):
        return False
    if not can_work(run):
        return True
    counted = in_cluster(live)
    if len(counted) >= MAX_RUNNING and top_of(run, live) not in counted:
        return False
    return could_start(run, live, pipelines, holds)


def could_start(
    run: Run,
    live: Collection[Run],
    pipelines: Mapping[PipelineName, PipelineRecord],
    holds: Mapping[str, Hold],
) -> bool:
    """True if a queued run wants only a place in the limit of the cluster."""
    record = pipelines.get(run.pipeline)
    if run.state is not RunState.QUEUED or run.paused is not None or record is None or not can_work(run):
        return False
    if is_held(run, pipelines, holds):
        return False
    concurrency = record.profile.concurrency
    own = sum(in_pipeline(other) for other in live if other.pipeline == run.pipeline)
    return concurrency is None or in_pipeline(run) or own < concurrency.limit
