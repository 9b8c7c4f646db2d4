"""Explains what a task that no worker runs waits for, child runs included, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from nimbus.domain.child_runs import child_of
from nimbus.domain.children import Children, ItemState
from nimbus.domain.earliest import gives_up_at
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.lifecycle import must_stop
from nimbus.domain.pipeline import TaskKind
from nimbus.domain.run import Run, RunState
from nimbus.domain.task_run import Settlement, TaskRun, TaskState
from nimbus.domain.upstream import Standing, Upstream, judge, upstream_of
from nimbus.domain.waits import DataSource, Look, LookReport, PipelineWait, looks_of


def why_it_waits(
    run: Run,
    task: TaskRun,
    looks: Mapping[str, LookReport],
    upstream: Callable[[PipelineName], Upstream],
    now: datetime,
) -> str:
    """What a ready task waits for, and what ends the wait."""
    until = gives_up_at(run, task)
    end = "" if until is None else f"; it fails at {until:%Y-%m-%d %H:%M:%SZ} without it"
    if task.spec.kind is TaskKind.WAIT:
        wanted = looks_of(task.spec.waits_for, task.spec.args)
        waited = [_looked(look, looks.get(look.name), now) for look in wanted]
        for wait in task.spec.waits_for:
            if isinstance(wait, PipelineWait):
                pipeline = upstream_of(wait, run)
                found = judge(wait, run, upstream(pipeline))
                waited += [f"pipeline {pipeline}: {found.missing}"] if found.standing is Standing.OPEN else []
        return f"waits for {', and for '.join(waited) or 'the leader, to see that all is there'}{end}"
    name = task.spec.name
    return (
        f"waits for an approval: {task.spec.args[0]}; end it with "
        f"`nimbus run approve {run.id} {name} --reason ...` (--reject: it fails){end}"
    )


def _looked(look: Look, last: LookReport | None, now: datetime) -> str:
    where = f"file {look.name} on the leader's host" if look.source is DataSource.FILE else look.name
    if last is None:
        return where
    ago_s, next_s = (now - last.at).total_seconds(), (last.next_at - now).total_seconds()
    return (
        f"{where} (last looked {max(ago_s, 0):.0f} s ago: {last.said}; next look in {max(next_s, 0):.0f} s)"
    )


def how_settled(task: TaskRun, settled: Settlement) -> str:
    """How a task that no worker ran has ended."""
    if task.spec.kind is not TaskKind.APPROVAL and settled.by:
        return f"marked {task.state} by {settled.by}: {settled.reason}"
    if task.spec.kind is not TaskKind.APPROVAL or not settled.by:
        return settled.reason
    verb = "approved" if task.state is TaskState.SUCCEEDED else "rejected"
    return f"{verb} by {settled.by}: {settled.reason}"


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
