"""Explains what a task with child runs waits for, as text for people."""

from __future__ import annotations

from collections.abc import Callable

from nimbus.domain.child_runs import child_of
from nimbus.domain.children import Children, ItemState
from nimbus.domain.ids import RunId
from nimbus.domain.lifecycle import must_stop
from nimbus.domain.run import Run, RunState
from nimbus.domain.task_run import TaskRun

NO_LEADER = "no scheduler leads at the moment"


def why_children(
    run: Run,
    task: TaskRun,
    leader: str | None,
    read: Callable[[RunId], Run | None],
    why_run: Callable[[Run], str | None],
) -> str | None:
    """Explain a task that has begun its child runs: the first one that it waits for, and how many more.

    Args:
        run: The parent.
        task: One of its tasks, of kind `pipeline`.
        leader: Id of the confirmed leader.
        read: Reads a run that is in ZooKeeper.
        why_run: Explains a queued run.
    """
    children, spec = task.children, task.spec.children
    if children is None or spec is None:
        return None
    waits = _waits(run, task, children, leader, read, why_run)
    left = children.count(ItemState.WAITING)
    if must_stop(run, task.spec.name):
        return f"{waits}; its run is being stopped, and no more are started"
    if run.paused is not None:
        return f"{waits}; its run is paused, and no more are started"
    if left and children.count(ItemState.OPEN) == spec.max_parallel:
        return f"{waits}; {left} more are started as others end: max_parallel is {spec.max_parallel}"
    if left:
        return f"{waits}; the leader has {left} more to start"
    return waits


def _waits(
    run: Run,
    task: TaskRun,
    children: Children,
    leader: str | None,
    read: Callable[[RunId], Run | None],
    why_run: Callable[[Run], str | None],
) -> str:
    total, good = len(children.states), children.count(ItemState.SUCCEEDED)
    done = f"{good} of {total} child runs have succeeded"
    first = children.first(ItemState.OPEN)
    if first is None:
        return done if leader else f"{done}; {NO_LEADER}"
    name = child_of(run, task.spec.name, first)
    others = children.count(ItemState.OPEN) - 1
    more = f" and {others} more" if others else ""
    child = None if name is None else read(name)
    if child is None or child.state.is_final:
        return f"{done}; child run {name} has ended, and the leader has not applied that yet" + (
            "" if leader else f"; {NO_LEADER}"
        )
    queued = f": {why_run(child)}" if child.state is RunState.QUEUED else ""
    return f"{done}; waits for child run {name}, which is {child.state}{queued}{more}"
