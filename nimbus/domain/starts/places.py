"""The places of a run in `concurrency.limit` and `runs.max_running`, and who gets the next one. Pure.

A run that only waits for data, datasets, runs or people needs no place: what it waits for may need one. The
runs of a tree, a run and all child runs below it, share one place in `runs.max_running`, which they need
while one of them has work. Once a task of a run has begun, the run keeps its place in `concurrency.limit` to
its end, so that the work of two runs of a pipeline with a limit of 1 never mixes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from nimbus.domain.data.reads import awaits_inputs
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.pipeline import Priority
from nimbus.domain.runs.child_runs import is_under_way
from nimbus.domain.runs.children import ItemState, Parent
from nimbus.domain.runs.lifecycle import must_stop
from nimbus.domain.runs.run import Places, Run, RunCause, RunState
from nimbus.domain.runs.task_run import TaskRun, TaskState

TURN = 10
"""If runs of backfills wait, every tenth started run is one of them, so that others cannot starve them."""

RunRank = tuple[Priority, bool, datetime, RunId]


class Ranked(Protocol):
    """The fields of a run that decide when it starts."""

    @property
    def id(self) -> RunId: ...  # noqa: D102
    @property
    def pipeline(self) -> PipelineName: ...  # noqa: D102
    @property
    def state(self) -> RunState: ...  # noqa: D102
    @property
    def priority(self) -> Priority: ...  # noqa: D102
    @property
    def cause(self) -> RunCause: ...  # noqa: D102
    @property
    def created_at(self) -> datetime: ...  # noqa: D102
    @property
    def started_at(self) -> datetime | None: ...  # noqa: D102
    @property
    def parent(self) -> Parent | None: ...  # noqa: D102
    @property
    def backfill(self) -> object | None: ...  # noqa: D102
    @property
    def holds(self) -> Places: ...  # noqa: D102


def needed(run: Run) -> Places:
    """The places that a run needs to go on."""
    tasks = run.tasks
    if not tasks.may_wait or tasks.count(TaskState.RUNNING) > tasks.parents:  # attempts are open
        return Places.ALL
    has_begun = False
    for task in tasks.in_order():
        if has_work(run, task):
            return Places.ALL
        has_begun |= bool(task.attempts) or task.state is TaskState.RUNNING
    return Places.PIPELINE if has_begun else Places.NONE


def in_pipeline(run: Ranked) -> bool:
    """True when a live run counts for `concurrency.limit`."""
    return run.holds is not Places.NONE


def top_of(run: Ranked) -> RunId:
    """The run at the top of a run's tree: itself, if it has no parent."""
    return run.id if run.parent is None else run.parent.top


def in_cluster(live: Iterable[Ranked]) -> frozenset[RunId]:
    """The tops of the trees that count for `runs.max_running`, among all live runs."""
    return frozenset(top_of(run) for run in live if run.holds is Places.ALL)


def has_work(run: Run, task: TaskRun) -> bool:
    """True when a task computes, starts child runs, or needs only a worker, room, or the end of a pause."""
    if task.state is TaskState.WAITING:
        met = task.spec.kind.uses_worker and all(run.tasks[need].state.is_final for need in task.spec.needs)
        return met and not (task.spec.uses and awaits_inputs(run, task.spec.name))
    return task.state is TaskState.RUNNING and not (is_under_way(task) and _only_awaits(run, task))


def _only_awaits(run: Run, task: TaskRun) -> bool:
    """True when a task with child runs goes on only after the end of one of them."""
    children, spec = task.children, task.spec.children
    if children is None or spec is None or must_stop(run, task.spec.name):
        return True
    under_way, left = children.count(ItemState.OPEN), children.count(ItemState.WAITING)
    return under_way > 0 and (not left or under_way >= (spec.max_parallel or len(children.states)))


def run_rank(run: Ranked) -> RunRank:
    """Rank by priority; what people asked for comes last; then by age. The smallest starts first."""
    by_itself = run.cause in (RunCause.SCHEDULE, RunCause.DATA, RunCause.PARENT)
    return run.priority, not by_itself, run.created_at, run.id
