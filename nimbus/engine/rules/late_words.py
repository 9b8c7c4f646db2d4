"""Texts of alerts about lateness."""

from __future__ import annotations

from datetime import datetime

from nimbus.config.values import format_duration
from nimbus.domain.ids import PipelineName
from nimbus.domain.notify import Lateness
from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun


def deadline_words(pipeline: PipelineName, deadline: datetime, *, is_over: bool) -> str:
    """Text about a pipeline. `deadline`: in local time."""
    at = f"{deadline:%Y-%m-%d %H:%M %Z}"
    if is_over:
        return f"pipeline {pipeline} is late: no run of its last fire time succeeded by its deadline, {at}"
    return (
        f"pipeline {pipeline} will be late: the run of its last fire time has not started, or too late, "
        f"and most runs before it took longer than what was left until its deadline, {at}"
    )


def late_words(run: Run, what: Lateness) -> str:
    """Text about a run."""
    match what:
        case Lateness.WARN_AFTER if run.warn_after is not None:
            why = f"it has been under way for more than {format_duration(run.warn_after)} (warn_after)"
        case Lateness.EXPECT_SOON if run.expect is not None:
            why = (
                f"it did not start in time: most runs before it took longer than what was left of "
                f"{format_duration(run.expect)} since it was asked for (expect)"
            )
            return f"run {run.id} will be late: {why}"
        case Lateness.EXPECT if run.expect is not None:
            why = f"it has not ended {format_duration(run.expect)} after it was asked for (expect)"
        case Lateness.WARN_AFTER | Lateness.EXPECT | Lateness.EXPECT_SOON:
            why = what.value
    return f"run {run.id} is late: {why}"


def task_late_words(run: Run, task: TaskRun, attempt: int) -> str:
    """Text about a task."""
    longest = format_duration(task.spec.warn_after) if task.spec.warn_after is not None else ""
    what = f"attempt {attempt} of task {task.spec.name}" if task.spec.kind.uses_worker else task.spec.name
    does = "has lasted" if task.spec.kind.uses_worker else "has waited"
    return f"run {run.id} is late: {what} {does} longer than {longest} (warn_after)"
