"""Commands that change only a live run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from nimbus.domain import lifecycle
from nimbus.domain.commands import DecideApproval, LiveRunCommand, MarkTask, PauseRun, ResumeRun, StopRun
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId
from nimbus.domain.run import Paused, Run, RunState
from nimbus.domain.task_run import Settlement, TaskState
from nimbus.domain.wording import shortened
from nimbus.domain.writes import PutRun, Write
from nimbus.engine.rules.waits import decided
from nimbus.engine.state import State


def _live(state: State, run_id: RunId, otherwise: str) -> Run:
    """The live run of a command.

    Args:
        state: The leader's state.
        run_id: Its id.
        otherwise: The end of the refusal's message, if the run is not live.

    Raises:
        RefusedError: the run is not live.
    """
    if run_id in state.runs.finished:
        raise RefusedError("run_finished", f"run {run_id} has ended already: {otherwise}.")
    run = state.runs.live.get(run_id)
    if run is None:
        raise RefusedError("unknown_run", f"run {run_id} is not live (any more): {otherwise}.")
    return run


def changed_run(
    state: State, command: LiveRunCommand, by: str, now: datetime
) -> tuple[str, tuple[Write, ...]]:
    """The message of the answer to a command, and its writes.

    Raises:
        RefusedError: the command cannot be carried out.
    """
    match command:
        case StopRun():
            return _stopped(_live(state, command.run_id, "nothing to stop"), command.reason, by, now)
        case PauseRun():
            return _paused(_live(state, command.run_id, "nothing to pause"), by, now)
        case ResumeRun():
            return _resumed(state, _live(state, command.run_id, "nothing to resume"))
        case MarkTask():
            return _marked(_live(state, command.run_id, "nothing to mark"), command, by, now)
        case DecideApproval():
            return decided(state, command, by, now)
        case _:
            assert_never(command)


def _stopped(run: Run, reason: str, by: str, now: datetime) -> tuple[str, tuple[Write, ...]]:
    words = f"stopped by {by}: {reason}" if by else f"stopped: {reason}"
    stopped = lifecycle.stop(run, verdict=RunState.STOPPED, reason=words, now=now)
    return f"run {run.id} is being stopped", (PutRun(stopped, run),)


def _paused(run: Run, by: str, now: datetime) -> tuple[str, tuple[Write, ...]]:
    if run.paused is not None:
        return f"run {run.id} was paused before, by {run.paused.by} at {run.paused.at:%Y-%m-%d %H:%M:%S}Z", ()
    paused = replace(run, paused=Paused(by=shortened(by), at=now))
    said = f"run {run.id} is paused: nothing new begins, what runs goes on, and its deadline counts"
    return said, (PutRun(paused, run),)


def _resumed(state: State, run: Run) -> tuple[str, tuple[Write, ...]]:
    if run.paused is None:
        return f"run {run.id} is not paused", ()
    parent = None if run.parent is None else state.runs.live.get(run.parent.run)
    if parent is not None and parent.paused is not None:
        raise RefusedError("parent_paused", f"run {parent.id}, its parent, is paused: resume that one.")
    return f"run {run.id} goes on", (PutRun(replace(run, paused=None), run),)


def _marked(run: Run, command: MarkTask, by: str, now: datetime) -> tuple[str, tuple[Write, ...]]:
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
