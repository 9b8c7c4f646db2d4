"""Finds runs that wait for each other in a circle, which only a person or a timeout ends. Pure.

A run that has begun and now waits keeps its place in `concurrency.limit`. A queued run that waits for this
place, and that the first one or its child run waits for, closes a circle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nimbus.api.explain_queue import holders_of
from nimbus.domain.child_runs import child_of, is_under_way
from nimbus.domain.children import ItemState
from nimbus.domain.ids import RunId
from nimbus.domain.lifecycle import is_ready
from nimbus.domain.run import Places, Run, RunHeader, RunState
from nimbus.domain.task_run import TaskRun
from nimbus.domain.upstream import awaits, upstream_of
from nimbus.domain.waits import PipelineWait

if TYPE_CHECKING:
    from nimbus.api.explain import Surroundings

_Seen = dict[RunId, bool | None]
"""Runs that were looked at; True: it waits for another one, or another one for it. None: it will go on."""


def circle_of(run: Run, around: Surroundings) -> str:
    """The end of the explanation of a queued run that waits for a circle; empty: it does not."""
    seen: _Seen = {}
    return _told(seen) if _is_stuck(run, around, seen) else ""


def circle_through(run: Run, task: TaskRun, around: Surroundings) -> str:
    """The same for a ready task that waits for runs of pipelines."""
    for queued in _awaited(run, task, around):
        seen: _Seen = {}
        if _is_stuck(queued, around, seen) and seen.get(run.id):
            return _told(seen)
    return ""


def _told(seen: _Seen) -> str:
    names = sorted(run for run, in_circle in seen.items() if in_circle)
    return (
        f"; this is a circle: {' and '.join(names)} wait for each other. "
        "Stop one of them, mark the task that waits, or raise the limit"
    )


def _is_stuck(queued: RunHeader, around: Surroundings, seen: _Seen) -> bool:
    """True when all runs whose places it waits for wait themselves, for runs in `seen` or stuck runs."""
    if queued.id in seen:
        return seen[queued.id] is not None
    seen[queued.id] = False
    run = around.run(queued.id)
    holders = [] if run is None or around.queue is None else holders_of(run, around.queue(run))
    if holders and all(_waits(around.run(holder.id), around, seen) for holder in holders):
        return True
    seen[queued.id] = None
    return False


def _waits(run: Run | None, around: Surroundings, seen: _Seen) -> bool:
    if run is None or run.holds is Places.ALL:  # it has work
        return False
    if run.state is RunState.QUEUED:
        return _is_stuck(run, around, seen)
    seen[run.id] = any(_waits_for(run, task, around, seen) for task in run.tasks.in_order())
    return bool(seen[run.id])


def _waits_for(run: Run, task: TaskRun, around: Surroundings, seen: _Seen) -> bool:
    """True when a task waits for stuck runs: a queued one, or one of its child runs."""
    for queued in _awaited(run, task, around):
        if _is_stuck(queued, around, seen):
            seen[queued.id] = True
            return True
    below = [] if task.children is None or not is_under_way(task) else task.children.having(ItemState.OPEN)
    children = (child_of(run, task.spec.name, index) for index in below)
    return any(_waits(around.run(child), around, seen) for child in children if child is not None)


def _awaited(run: Run, task: TaskRun, around: Surroundings) -> Iterator[RunHeader]:
    """The queued runs that a task waits for."""
    if not is_ready(run, task):
        return
    for wait in task.spec.waits_for:
        if isinstance(wait, PipelineWait):
            for other in around.upstream(upstream_of(wait, run)).live:
                if other.state is RunState.QUEUED and awaits(wait, run, other):
                    yield other
