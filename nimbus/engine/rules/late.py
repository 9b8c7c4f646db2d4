"""Records once that a run or a task is late. `nimbus.engine.rules.raised` raises the alert."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.lateness import late_at, passed, task_late_at
from nimbus.domain.lifecycle import is_ready
from nimbus.domain.pipeline_health import fastest
from nimbus.domain.writes import PutRun
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.state import State


def note_late(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    """Record the lateness of a run or of one of its tasks. `name` is empty for the whole run."""
    run = state.runs.live.get(run_id)
    if run is None:
        return Nothing()
    if name:
        return _note_task(state, run_id, name, now)
    usual = fastest(state.alerts.health.get(run.pipeline))
    found = passed(run, now, usual)
    if not found:
        return Nothing(at=min((at for at in late_at(run, usual).values() if at > now), default=None))
    return Decision(
        name="run_late",
        writes=(PutRun(replace(run, late=(*run.late, *found)), run),),
        about={"run": run_id, "late": ", ".join(found)},
    )


def _note_task(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    run = state.runs.live[run_id]
    task = run.tasks[name]
    if not task.spec.kind.uses_worker and not is_ready(run, task):
        return Nothing()
    due = task_late_at(run, task)
    if due is None or due > now:
        return Nothing(at=due)
    noted = replace(task, warned=max(1, task.tried))
    return Decision(
        name="task_late",
        writes=(PutRun(replace(run, tasks=run.tasks.replaced([noted])), run),),
        about={"run": run_id, "task": name, "attempt": str(task.tried)},
    )
