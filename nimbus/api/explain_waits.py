"""Explains what a task that no worker runs waits for, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from nimbus.domain.earliest import gives_up_at
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipeline import TaskKind
from nimbus.domain.run import Run
from nimbus.domain.settlement import Settlement
from nimbus.domain.task_run import TaskRun, TaskState
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
