"""Gives a ready task to a worker, after its templates are rendered."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.attempts.orders import order_for
from nimbus.domain.attempts.workers import AssignmentKind
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.starts.admission import Wait, admit, held_by
from nimbus.domain.starts.timing import queue_ends_at
from nimbus.domain.writes import Assign, CreateAttempt, PutRun, RemoveAttempt
from nimbus.engine.decision import Answer, Decision, NoDecision, Refusal, RenderTask, put_run
from nimbus.engine.rules import reads
from nimbus.engine.state import State
from nimbus.engine.work_queue import Key


def open_attempt(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    """Assign a ready task to the best worker, by writing the order."""
    run = state.runs.live[run_id]
    task = run.tasks[name]
    answer = admit(run, task, state.capacity(), now)
    if isinstance(answer, Wait):
        return NoDecision(gates=answer.gates)  # a free slot, worker or gate reopens admission
    worker = answer.worker
    opened = lifecycle.open_attempt(run, name, worker=worker.id, epoch=state.epoch, now=now)
    attempt = AttemptId(run_id, name, task.tried + 1)
    rendered = state.tasks.rendered(run_id, task)
    order = order_for(
        opened,
        attempt,
        epoch=state.epoch,
        kind=AssignmentKind.RUN,
        rendered=rendered,
        host_lost_after=state.policy.timings.host_lost_after,
    )
    return Decision(
        name="attempt_opened",
        writes=(
            PutRun(opened, run),
            CreateAttempt(attempt),
            Assign(worker.id, order),
            *_dropped(opened, name),
        ),
        about={"attempt": str(attempt), "worker": worker.id},
    )


def _dropped(run: Run, name: TaskName) -> tuple[RemoveAttempt, ...]:
    """Remove the attempt that a run's record no longer holds, if its task is kept running for ever."""
    task = run.tasks[name]
    oldest = task.attempts[0].number
    if not task.spec.keeps_running or oldest == 1:
        return ()
    return (RemoveAttempt(AttemptId(run.id, name, oldest - 1)),)


def fail_overdue(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    """Fail a task that has waited for room longer than its `queue_timeout`, with the reason of the wait.

    Startable tasks are started first. So a task that waited too long without a leader may still start.
    """
    run = state.runs.live.get(run_id)
    task = None if run is None else run.tasks[name]
    if run is None or task is None or task.state is not TaskState.WAITING or not run.opens_tasks:
        return NoDecision()
    due = queue_ends_at(run, task)
    if due is None or due > now:
        return NoDecision(at=due)
    lacks = reads.lacking(state, run, name)
    held = f"no {lacks}" if lacks else held_by(task, admit(run, task, state.capacity(), now))
    reason = f"waited longer than its queue_timeout ({task.spec.queue_timeout}): {held}"
    failed = lifecycle.conclude_waiting(run, name, TaskState.FAILED, now, reason)
    return put_run("task_queue_timed_out", failed, run, task=name, reason=reason)


def render_task(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    """Start the rendering of a task's templates that read results of other tasks.

    It is an effect, because a template may take long. The results are final, so every leader renders the same
    texts. They are stored only in the order of the attempt. The task ends if rendering fails, or if its
    condition is false.
    """
    run, key = state.runs.live[run_id], Key("rendering", run_id, name)
    if key in state.tasks.renderings.under_way:
        return NoDecision()
    rendering = state.tasks.renderings.results.get(key)
    if rendering is None:
        about = {"run": run_id, "task": name}
        return Decision(name="task_rendering_started", effects=(RenderTask(run, name),), about=about)
    if isinstance(rendering, Refusal):
        failed = lifecycle.conclude_waiting(run, name, TaskState.FAILED, now, rendering.message)
        return put_run("task_rendering_refused", failed, run, task=name, error=rendering.message)
    if not rendering.is_wanted:
        skipped = lifecycle.conclude_waiting(run, name, TaskState.SKIPPED, now)
        return put_run("task_skipped", skipped, run, task=name)
    return NoDecision()  # the task is in the ready queue now
