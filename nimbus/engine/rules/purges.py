"""Purge commands, and notes about runs. Nothing is deleted here: see `nimbus.engine.purge_orders`."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.commands import NoteRun, PurgeRuns, QueuedCommand
from nimbus.domain.errors import RefusedError
from nimbus.domain.purge import PurgeOrder, RunNote, parts_of
from nimbus.engine.decision import Answer, Decision, Nothing, Refusal, StorePurge
from nimbus.engine.state import State


def purge_ordered(state: State, queued: QueuedCommand, command: PurgeRuns, now: datetime) -> str | Answer:
    """The answer after the order is stored, or a decision to store it, or `Nothing` while it is being stored.

    Raises:
        RefusedError: the purge is not possible.
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
    return f"{said} of {which} will be deleted; what later runs reuse stays"


def noted(state: State, queued: QueuedCommand, command: NoteRun, now: datetime) -> str | Answer:
    """As `purge_ordered`, for a note.

    Raises:
        RefusedError: the run has not ended.
    """
    if command.run_id in state.runs.live:
        raise RefusedError("run_live", f"run {command.run_id} has not ended.")
    note = RunNote(what=command, at=now, by=queued.submitted_by)
    if (answer := _stored(state, queued, note)) is not None:
        return answer
    about = f"task {command.task} of run {command.run_id}" if command.task else f"run {command.run_id}"
    return f"{about}: {command.text}" if command.text else f"{about} has no note"


def _stored(state: State, queued: QueuedCommand, order: PurgeOrder | RunNote) -> Answer | None:
    """The decision to store what a command needs, or `Nothing` while it is being stored; None: it is."""
    if queued.id in state.commands.stored.under_way:
        return Nothing()
    answer = state.commands.stored.results.get(queued.id)
    if answer is None:
        effect, about = StorePurge(queued.id, order), {"command": queued.id}
        return Decision(name=f"{queued.command.type}_storing_started", effects=(effect,), about=about)
    if isinstance(answer, Refusal):
        raise RefusedError(answer.code, answer.message)
    return None
