"""Gives a ready task to a worker."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain import lifecycle
from nimbus.domain.admission import Wait, admit
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.orders import order_for
from nimbus.domain.workers import AssignmentKind
from nimbus.domain.writes import Assign, CreateAttempt, PutRun
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.state import State


def open_attempt(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    """A ready task goes to the best worker: the intent is written."""
    run = state.runs[run_id]
    task = run.tasks[name]
    answer = admit(run, task, state.capacity(), now)
    if isinstance(answer, Wait):
        return Nothing(gates=answer.gates)  # what it waits for reopens admission
    worker = answer.worker
    opened = lifecycle.open_attempt(run, name, worker=worker.id, epoch=state.epoch, now=now)
    attempt = AttemptId(run_id, name, task.tried + 1)
    rendered = state.rendered_task(run_id, task)
    order = order_for(opened, attempt, epoch=state.epoch, kind=AssignmentKind.RUN, rendered=rendered)
    return Decision(
        name="attempt_opened",
        writes=(PutRun(opened, run), CreateAttempt(attempt), Assign(worker.id, order)),
        about={"attempt": str(attempt), "worker": worker.id},
    )
