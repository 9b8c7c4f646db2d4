"""Commands about runs: start, stop, pause, resume, mark a task, decide an approval, purge, note.

Each function returns the message of the answer and the writes, or what must come first.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from nimbus.domain import commands as c
from nimbus.domain.cluster.settings import why_held
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import InvalidNameError, RunId
from nimbus.domain.ids import run_id as checked_run_id
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.purge import PurgeOrder, RunNote, parts_of
from nimbus.domain.runs.run import Paused, Run, RunCause, RunState
from nimbus.domain.runs.task_run import Settlement, TaskState
from nimbus.domain.wording import shortened
from nimbus.domain.writes import CreateRun, PutRun
from nimbus.engine.decision import Answer, Decision, Done, NoDecision, Refusal, StorePurge
from nimbus.engine.rules.commands.checks import known_pipeline
from nimbus.engine.rules.commands.pipelines import kept_runs
from nimbus.engine.rules.run_starts import built, queued_if_full
from nimbus.engine.rules.waits import decided
from nimbus.engine.state import State
from nimbus.engine.work_queue import Key


def run_started(state: State, queued: c.QueuedCommand, command: c.StartRun, now: datetime) -> Done | Answer:
    """Start a run, once. Raises RefusedError: the run cannot be built, or must not start."""
    try:
        checked_run_id(command.run_id)  # it becomes part of paths
    except InvalidNameError as exc:
        raise RefusedError(exc.code, str(exc)) from exc
    record = known_pipeline(state, command.pipeline)
    same = state.runs.live.get(command.run_id) or state.runs.finished.get(command.run_id)
    if same is not None:
        if same.pipeline != record.name:
            raise RefusedError("run_exists", f"run {command.run_id} exists already, of another pipeline.")
        return f"run {command.run_id} was started before; nothing is started twice", ()
    if command.rerun_of in state.runs.live:
        return NoDecision()  # the end of that run queues the command
    release = command.release or record.release
    if release is None:
        raise RefusedError(
            "not_active",
            f"pipeline {record.name} has no active release: `nimbus pipeline activate {record.name}`.",
        )
    if record.name in state.catalog.quarantined:
        raise RefusedError(
            "quarantined", f"pipeline {record.name} is quarantined: {state.catalog.quarantined[record.name]}"
        )
    draft = Draft(
        id=command.run_id,
        pipeline=record.name,
        release=release,
        parameters=command.parameters,
        logical_date=command.logical_date or (command.data_interval.end if command.data_interval else now),
        data_interval=command.data_interval,
        cause=RunCause.MANUAL,
        priority=command.priority,
        asked_at=now,
        submitted_by=queued.submitted_by,
        selection=command.selection,
    )
    run = built(state, Key("command", queued.id), draft)
    if not isinstance(run, Run):
        return run
    _check_second(state, run)
    run = queued_if_full(state, run)
    what = "is queued" if run.state is RunState.QUEUED else "started"
    if run.state is RunState.QUEUED and (held := why_held(record, state.settings.holds)) is not None:
        what += f": {held}"
    return f"run {run.id} of release {run.release[:12]} {what}", (CreateRun(run),)


def _check_second(state: State, run: Run) -> None:
    """Raise RefusedError if a requested run would be kept running beside another one."""
    other = next((live.id for live in kept_runs(state, run.pipeline)), None) if run.keeps_running else None
    if other is not None:
        raise RefusedError(
            "already_running",
            f"run {other} of pipeline {run.pipeline} is kept running, and it ends only when it is stopped: "
            f"`nimbus run stop {other}` first, or activate a release, which does both.",
        )


def changed_run(state: State, command: c.LiveRunCommand, by: str, now: datetime) -> Done:
    """The message of the answer to a command, and its writes.

    Raises RefusedError: the command cannot be carried out.
    """
    match command:
        case c.StopRun():
            return _stopped(_live(state, command.run_id, "nothing to stop"), command.reason, by, now)
        case c.PauseRun():
            return _paused(_live(state, command.run_id, "nothing to pause"), by, now)
        case c.ResumeRun():
            return _resumed(state, _live(state, command.run_id, "nothing to resume"))
        case c.MarkTask():
            return _marked(_live(state, command.run_id, "nothing to mark"), command, by, now)
        case c.DecideApproval():
            return decided(state, command, by, now)
        case _:
            assert_never(command)


def _live(state: State, run_id: RunId, otherwise: str) -> Run:
    """The live run of a command. Raises RefusedError, whose message ends with `otherwise`."""
    if run_id in state.runs.finished:
        raise RefusedError("run_finished", f"run {run_id} has ended already: {otherwise}.")
    run = state.runs.live.get(run_id)
    if run is None:
        raise RefusedError("unknown_run", f"run {run_id} is not live (any more): {otherwise}.")
    return run


def _stopped(run: Run, reason: str, by: str, now: datetime) -> Done:
    words = f"stopped by {by}: {reason}" if by else f"stopped: {reason}"
    stopped = lifecycle.stop(run, verdict=RunState.STOPPED, reason=words, now=now)
    return f"run {run.id} is being stopped", (PutRun(stopped, run),)


def _paused(run: Run, by: str, now: datetime) -> Done:
    if run.paused is not None:
        return f"run {run.id} was paused before, by {run.paused.by} at {run.paused.at:%Y-%m-%d %H:%M:%S}Z", ()
    paused = replace(run, paused=Paused(by=shortened(by), at=now))
    said = f"run {run.id} is paused: nothing new begins, what runs goes on, and its deadline counts"
    return said, (PutRun(paused, run),)


def _resumed(state: State, run: Run) -> Done:
    if run.paused is None:
        return f"run {run.id} is not paused", ()
    parent = None if run.parent is None else state.runs.live.get(run.parent.run)
    if parent is not None and parent.paused is not None:
        raise RefusedError("parent_paused", f"run {parent.id}, its parent, is paused: resume that one.")
    return f"run {run.id} goes on", (PutRun(replace(run, paused=None), run),)


def _marked(run: Run, command: c.MarkTask, by: str, now: datetime) -> Done:
    task, state = run.tasks.get(command.task), TaskState(command.state)
    if task is None:
        raise RefusedError("unknown_task", f"run {run.id} has no task {command.task}.")
    if task.settled is not None and task.state is state:
        return f"task {command.task} of run {run.id} was marked {state} before", ()
    if task.state is not TaskState.WAITING or run.state.is_ending:
        raise RefusedError(
            "not_waiting",
            f"task {command.task} of run {run.id} is {task.state}, and only a task that waits can be marked; "
            "one that has failed is marked in a rerun: `nimbus run rerun --mark`.",
        )
    said = Settlement(at=now, by=by, reason=command.reason)
    marked = lifecycle.mark_task(run, command.task, state=state, settlement=said, now=now)
    return f"task {command.task} of run {run.id} is marked {state}", (PutRun(marked, run),)


def purge_ordered(
    state: State, queued: c.QueuedCommand, command: c.PurgeRuns, now: datetime
) -> Done | Answer:
    """The answer after the order is stored; before, a decision to store it, or `NoDecision`.

    Raises RefusedError: the purge is not possible.
    """
    if command.run_id in state.runs.live:
        raise RefusedError("run_live", f"run {command.run_id} has not ended.")
    if command.run_id in state.runs.finished:
        raise RefusedError(
            "run_live",
            f"run {command.run_id} has ended lately: it can be purged runs.keep_finished after its end.",
        )
    order = PurgeOrder(what=command, at=now, by=queued.submitted_by)
    if (answer := _stored(state, queued, order)) is not None:
        return answer
    which = f"run {command.run_id}" if command.run_id is not None else f"runs of {command.pipeline}"
    *parts, last = parts_of(command)
    said = f"{', '.join(map(str, parts))} and {last}" if parts else last
    return f"{said} of {which} will be deleted; what later runs reuse stays", ()


def run_noted(state: State, queued: c.QueuedCommand, command: c.NoteRun, now: datetime) -> Done | Answer:
    """As `purge_ordered`, for a note. Raises RefusedError: the run has not ended."""
    if command.run_id in state.runs.live:
        raise RefusedError("run_live", f"run {command.run_id} has not ended.")
    note = RunNote(what=command, at=now, by=queued.submitted_by)
    if (answer := _stored(state, queued, note)) is not None:
        return answer
    about = f"task {command.task} of run {command.run_id}" if command.task else f"run {command.run_id}"
    return (f"{about}: {command.text}" if command.text else f"{about} has no note"), ()


def _stored(state: State, queued: c.QueuedCommand, order: PurgeOrder | RunNote) -> Answer | None:
    """The decision to store what a command needs, or `NoDecision` while it is being stored; None: it is."""
    if queued.id in state.commands.stored.under_way:
        return NoDecision()
    answer = state.commands.stored.results.get(queued.id)
    if answer is None:
        effect, about = StorePurge(queued.id, order), {"command": queued.id}
        return Decision(name=f"{queued.command.type}_storing_started", effects=(effect,), about=about)
    if isinstance(answer, Refusal):
        raise RefusedError(answer.code, answer.message)
    return None
