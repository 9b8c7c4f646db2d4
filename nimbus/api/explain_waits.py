"""Says what a task waits for that no worker runs, and how it ended. Pure."""

from __future__ import annotations

from nimbus.domain.earliest import gives_up_at
from nimbus.domain.pipeline import TaskKind
from nimbus.domain.run import Run, TaskRun, TaskState
from nimbus.domain.settlement import Settlement


def why_it_waits(run: Run, task: TaskRun) -> str:
    """What a ready task waits for, and what ends that."""
    until = gives_up_at(run, task)
    end = "" if until is None else f"; it fails at {until:%Y-%m-%d %H:%M:%SZ} without it"
    name = task.spec.name
    return (
        f"waits for an approval: {task.spec.args[0]}; end it with "
        f"`nimbus run approve {run.id} {name} --reason ...` (--reject: it fails){end}"
    )


def how_settled(task: TaskRun, settled: Settlement) -> str:
    """How a task ended that no worker ran."""
    if task.spec.kind is not TaskKind.APPROVAL and settled.by:
        return f"marked {task.state} by {settled.by}: {settled.reason}"
    if task.spec.kind is not TaskKind.APPROVAL or not settled.by:
        return settled.reason
    verb = "approved" if task.state is TaskState.SUCCEEDED else "rejected"
    return f"{verb} by {settled.by}: {settled.reason}"
