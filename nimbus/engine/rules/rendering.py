"""Starts the rendering of a ready task's templates that read results of other tasks.

It is an effect, because a template may take long. The results are final, so every leader renders the same
texts. They are stored only in the order of the attempt.
"""

from __future__ import annotations

from datetime import datetime

from nimbus.domain import lifecycle
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.task_run import TaskState
from nimbus.domain.writes import PutRun
from nimbus.engine.agenda import about_rendering
from nimbus.engine.decision import Answer, Decision, Nothing, RenderTask
from nimbus.engine.refusal import Refusal
from nimbus.engine.state import State


def render_task(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    """Start rendering a task; end the task if rendering fails, or if its condition is false."""
    run, subject = state.runs.live[run_id], about_rendering(run_id, name)
    if subject in state.tasks.renderings.under_way:
        return Nothing()
    found = state.tasks.renderings.results.get(subject)
    about = {"run": run_id, "task": name}
    if found is None:
        return Decision(name="task_rendering_started", effects=(RenderTask(run, name),), about=about)
    if isinstance(found, Refusal):
        failed = lifecycle.conclude_waiting(run, name, TaskState.FAILED, now, found.message)
        about["error"] = found.message
        return Decision(name="task_rendering_refused", writes=(PutRun(failed, run),), about=about)
    if not found.is_wanted:
        skipped = lifecycle.conclude_waiting(run, name, TaskState.SKIPPED, now)
        return Decision(name="task_skipped", writes=(PutRun(skipped, run),), about=about)
    return Nothing()  # the task is in the ready queue now
