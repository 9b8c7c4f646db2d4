"""Finds runs that wait for each other in a circle, which only a person or a timeout ends. Pure.

A run that has begun and now waits keeps its place in `concurrency.limit`, and one whose child runs wait keeps
all its places. A queued run that waits for this place, and that the first one or its child run waits for,
closes a circle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nimbus.api.explain_queue import cluster_holders_of, holders_of
from nimbus.domain.child_runs import child_of, is_under_way
from nimbus.domain.children import ItemState
from nimbus.domain.ids import RunId
from nimbus.domain.lifecycle import is_ready
from nimbus.domain.places import can_begin
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
    view = None if run is None or around.queue is None else around.queue(run)
    holders = [] if run is None or view is None else holders_of(run, view) or cluster_holders_of(run, view)
    if holders and all(_waits(around.run(holder.id), around, seen) for holder in holders):
        return True
    seen[queued.id] = None
    return False


def _waits(held: Run | None, around: Surroundings, seen: _Seen) -> bool:
    if held is None:
        return False
    if held.state is RunState.QUEUED and held.holds is Places.NONE:
        return _is_stuck(held, around, seen)
    if held.holds is Places.ALL:
        below = _child_runs(held)
        is_stuck = bool(below) and all(_waits(around.run(child), around, seen) for child in below)
        seen[held.id] = is_stuck
        return is_stuck
    seen[held.id] = True
    for task in held.tasks.in_order():
        for one in _awaited(held, task, around):
            if _is_stuck(one, around, seen):
                seen[one.id] = True
                return True
    return False


def _child_runs(run: Run) -> list[RunId]:
    """The child runs that a run waits for; empty: it has work of its own, too."""
    if run.open_attempts() or any(can_begin(run, task) for task in run.tasks.in_order()):
        return []
    return [
        child
        for task in run.tasks.in_order()
        if task.children is not None and is_under_way(task)
        for index in task.children.having(ItemState.OPEN)
        if (child := child_of(run, task.spec.name, index)) is not None
    ]


def _awaited(run: Run, task: TaskRun, around: Surroundings) -> Iterator[RunHeader]:
    """The queued runs that a task waits for."""
    if not is_ready(run, task):
        return
    for wait in task.spec.waits_for:
        if isinstance(wait, PipelineWait):
            for other in around.upstream(upstream_of(wait, run)).live:
                if other.state is RunState.QUEUED and awaits(wait, run, other):
                    yield other
