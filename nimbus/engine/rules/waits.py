"""Tasks that no worker runs: each ends by a person, by existing data, by ended runs, or by its timeout."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nimbus.config.values import format_duration
from nimbus.domain.cluster.access import AccessDeniedError
from nimbus.domain.cluster.alerts import AlertEvent
from nimbus.domain.commands import DecideApproval
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import Settlement, TaskRun, TaskState
from nimbus.domain.starts.timing import gives_up_at
from nimbus.domain.starts.upstream import WaitState, judge, upstream_of
from nimbus.domain.starts.waits import PipelineWait, faults_of
from nimbus.domain.wording import shortened
from nimbus.domain.writes import PutRun
from nimbus.engine.decision import Answer, Decision, NoDecision, put_run
from nimbus.engine.rules.release_checks import check_uses
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant, Key

TIMED_OUT = "wait_timed_out"
SOMEBODY = "somebody"
"""The approver, if the command has no name."""


def end_wait(state: State, run_id: RunId, name: TaskName, now: Instant) -> Answer:
    """End a task: it succeeds when its conditions are met, and fails when its timeout passes."""
    run = state.runs.live.get(run_id)
    if run is None or not lifecycle.is_ready(run, run.tasks[name]):
        return NoDecision()
    task = run.tasks[name]
    if _must_ask(state, run, task):
        asked = run.tasks.replaced([replace(task, asked=True)])
        return put_run("approval_asked_for", replace(run, tasks=asked), run, task=name)
    faults = faults_of(task.spec.waits_for, task.spec.args)
    others = {upstream_of(wait, run) for wait in task.spec.waits_for if isinstance(wait, PipelineWait)}
    try:  # with the grants of now: the wait may be long
        owner = state.catalog.team_of(run.pipeline) or None
        check_uses(state, run.pipeline, owner, upstream=sorted(others - {run.pipeline}))
    except AccessDeniedError as exc:
        faults += (str(exc),)
    judged = [
        (upstream_of(wait, run), judge(wait, run, state.upstream(upstream_of(wait, run))))
        for wait in task.spec.waits_for
        if isinstance(wait, PipelineWait)
    ]
    faults += tuple(
        f"{name}: {judged_wait.missing}"
        for name, judged_wait in judged
        if judged_wait.standing is WaitState.FAILED
    )
    if faults:
        return _ended(run, task, TaskState.FAILED, "wait_failed", faults[0], now.wall)
    missing = [
        f"pipeline {name}: {judged_wait.missing}"
        for name, judged_wait in judged
        if judged_wait.standing is WaitState.OPEN
    ]
    missing += [probe.name for probe in state.tasks.probes.missing(Key("wait", run_id, name))]
    if task.spec.kind is TaskKind.WAIT and not missing:
        return _ended(run, task, TaskState.SUCCEEDED, "wait_met", "all is there", now.wall)
    until = gives_up_at(run, task)
    if until is None or until > now.wall or task.spec.timeout is None:
        return NoDecision(at=until)
    last_s = state.tasks.probes.last_probe_s(Key("wait", run_id, name), until, now.elapsed_s)
    if last_s is not None:
        return NoDecision(after_s=last_s)  # the answer of the last probe queues the task
    what = f"{missing[0]} was not there" if missing else "nobody approved it"
    reason = f"{what} within {format_duration(task.spec.timeout)}"
    return _ended(run, task, TaskState.FAILED, TIMED_OUT, reason, now.wall)


def _must_ask(state: State, run: Run, task: TaskRun) -> bool:
    """True when an alert about a waiting approval is requested and not yet raised."""
    if task.asked or task.spec.kind is not TaskKind.APPROVAL:
        return False
    return any(AlertEvent.WAITING_FOR_APPROVAL in rule.on for rule in state.policy.alerts.of(run.notify))


def _ended(run: Run, task: TaskRun, ending: TaskState, decision: str, reason: str, now: datetime) -> Decision:
    name = task.spec.name
    settlement = Settlement(at=now, reason=reason, timed_out=decision == TIMED_OUT)
    ended = lifecycle.end_task(run, name, state=ending, settlement=settlement, now=now)
    return put_run(decision, ended, run, task=name, reason=reason)


def decided(state: State, command: DecideApproval, by: str, now: datetime) -> tuple[str, tuple[PutRun, ...]]:
    """The message of the answer to an approval or rejection, and its writes.

    Raises RefusedError: no task waits for this decision.
    """
    run = state.runs.live.get(command.run_id)
    if run is None:
        has_ended = command.run_id in state.runs.finished
        code, why = ("no_approval", "has ended") if has_ended else ("unknown_run", "is not live (any more)")
        raise RefusedError(code, f"run {command.run_id} {why}: nothing in it waits for an approval.")
    task = run.tasks.get(command.task)
    if task is None or task.spec.kind is not TaskKind.APPROVAL:
        raise RefusedError("unknown_task", f"run {run.id} has no task {command.task} of type approval.")
    said = f"task {command.task} of run {run.id} is {'approved' if command.approved else 'rejected'}"
    if task.state.is_final:
        if _same(task, command, by):
            return f"{said} already, by the same command", ()
        raise RefusedError("no_approval", f"task {command.task} of run {run.id} is {_how(task)} already.")
    _check_waits(run, task)
    ended = lifecycle.end_task(
        run,
        command.task,
        state=_outcome(command),
        settlement=Settlement(at=now, by=by or SOMEBODY, reason=command.reason),
        now=now,
    )
    return said, (PutRun(ended, run),)


def _outcome(command: DecideApproval) -> TaskState:
    return TaskState.SUCCEEDED if command.approved else TaskState.FAILED


def _same(task: TaskRun, command: DecideApproval, by: str) -> bool:
    """True when the command repeats the decision that was made, for example after a lost reply."""
    settled = task.settled
    wanted = (shortened(by or SOMEBODY), shortened(command.reason), _outcome(command))
    return settled is not None and (settled.by, settled.reason, task.state) == wanted


def _how(task: TaskRun) -> str:
    if task.settled is None or not task.settled.by:
        return str(task.state)
    return f"{'approved' if task.state is TaskState.SUCCEEDED else 'rejected'} by {task.settled.by}"


def _check_waits(run: Run, task: TaskRun) -> None:
    if not lifecycle.is_ready(run, task):
        open_needs = [str(need) for need in task.spec.needs if not run.tasks[need].state.is_final]
        if not open_needs and run.paused is not None:
            raise RefusedError(
                "no_approval",
                f"run {run.id} is paused, so nothing in it can be decided: resume it first "
                f"(`nimbus run resume {run.id}`).",
            )
        why = f"needs {', '.join(open_needs)} first" if open_needs else f"is in a run that is {run.state}"
        raise RefusedError("no_approval", f"task {task.spec.name} {why}: ask again when it waits.")
