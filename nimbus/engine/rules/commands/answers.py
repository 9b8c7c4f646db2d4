"""Commands: each is answered in the transaction that carries it out, so it is done exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.cluster.access import AccessDeniedError
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import CommandId, PipelineName
from nimbus.domain.wording import counted
from nimbus.engine.decision import Answer, Decision, Done, NoDecision
from nimbus.engine.rules.commands.backfills import controlled, created
from nimbus.engine.rules.commands.checks import check_access, check_unchanged
from nimbus.engine.rules.commands.datasets import dataset_changed
from nimbus.engine.rules.commands.pipelines import pipeline_changed
from nimbus.engine.rules.commands.runs import changed_run, purge_ordered, run_noted, run_started
from nimbus.engine.rules.commands.selections import next_parts
from nimbus.engine.rules.commands.settings import changed
from nimbus.engine.rules.terms import check_successor
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant


def answer_command(state: State, command: CommandId, instant: Instant) -> Answer:
    """Answer a command, unless it rests, or an older one about the same pipeline or run waits."""
    queued, now = state.commands.waiting.get(command), instant.wall
    rests_until_s = state.commands.rests_until_s.get(command, instant.elapsed_s)
    if rests_until_s > instant.elapsed_s:
        return NoDecision(after_s=rests_until_s)
    if queued is None:
        return NoDecision()
    try:
        queued = check_access(state, queued, now)
    except AccessDeniedError as exc:
        return _consumed(state, queued, now, code=exc.code, message=str(exc))
    if isinstance(queued.command, c.StopRun) and (starts := state.commands.waiting_reruns(queued)):
        return _withdrawn(state, queued, queued.command, starts, now)
    if not state.commands.lines.is_first(queued):
        return NoDecision()
    try:
        check_unchanged(state, queued)
        done = _carried_out(state, queued, now)
    except RefusedError as exc:
        return _consumed(state, queued, now, code=exc.code, message=str(exc))
    if not isinstance(done, tuple):
        return done
    message, writes = done
    return _consumed(state, queued, now, message=message, writes=writes)


def _withdrawn(
    state: State, queued: c.QueuedCommand, stop: c.StopRun, starts: Iterable[c.QueuedCommand], now: datetime
) -> Decision:
    """Stop a rerun that still waits for the end of the run that it repeats: refuse its start at once."""
    by = f" by {queued.submitted_by}" if queued.submitted_by else ""
    why = f"run {stop.run_id} was stopped{by} before it began: {stop.reason}"
    refused = (_consumed(state, start, now, code="withdrawn", message=why) for start in starts)
    writes = tuple(write for decision in refused for write in decision.writes)
    said = f"run {stop.run_id} is withdrawn: it never began"
    return _consumed(state, queued, now, message=said, writes=writes)


def refuse_command(state: State, queued: c.QueuedCommand, code: str, why: str, now: datetime) -> Decision:
    """Refuse a command whose decision failed, so that it does not stay in the queue for ever."""
    done = queued.command.queued if isinstance(queued.command, c.ActOnSelection) else 0
    what = f"ended after {counted(done, 'command')}" if done else "could not be done, and changed nothing"
    return _consumed(state, queued, now, code=code, message=f"it {what}: {why}")


def _carried_out(  # noqa: C901 - one branch for each group of commands
    state: State, queued: c.QueuedCommand, now: datetime
) -> Done | Answer:
    command = queued.command
    if isinstance(command, c.PipelineCommand):
        return pipeline_changed(state, queued, command, now)
    if isinstance(command, c.LiveRunCommand):
        return changed_run(state, command, queued.submitted_by, now)
    if isinstance(command, c.SettingsCommand | c.TokenCommand | c.AccessCommand):
        settings, message = changed(state, command, queued.submitted_by, now)
        return message, (w.PutSettings(settings),)
    if isinstance(command, c.DatasetCommand):
        return dataset_changed(state, queued, command, now)
    match command:
        case c.StartRun():
            return run_started(state, queued, command, now)
        case c.PurgeRuns():
            return purge_ordered(state, queued, command, now)
        case c.NoteRun():
            return run_noted(state, queued, command, now)
        case c.CreateBackfill():
            return created(state, queued, command, now)
        case c.ControlBackfill():
            return controlled(state, command, now)
        case c.ActOnSelection():
            return _select(state, queued, command, now)
        case c.Abdicate():
            return _abdicate(state, queued, command, now)
        case c.Unreadable(reason=reason):
            raise RefusedError("unreadable_command", reason)
        case _:
            assert_never(command)


def _select(state: State, queued: c.QueuedCommand, command: c.ActOnSelection, now: datetime) -> Done | Answer:
    """Queue the next commands of a selection; with the last ones the selection is answered."""
    parts, rest = next_parts(queued, command, state.catalog.pipelines, now)
    writes = tuple(w.PutCommand(part, is_new=True) for part in parts)
    if rest.targets:
        return Decision(
            name="selection_continued",
            writes=(*writes, w.PutCommand(replace(queued, command=rest), is_new=False)),
            about={"command": queued.id, "queued": str(rest.queued), "left": str(len(rest.targets))},
        )
    what = counted(rest.queued, "command")
    said = f"{what} queued, from {c.part_of(queued.id, 0)} on: `nimbus command list --of {queued.id}`"
    return said, writes


def _abdicate(state: State, queued: c.QueuedCommand, command: c.Abdicate, now: datetime) -> Done:
    if command.to:
        check_successor(state, command.to)
    by = queued.submitted_by if queued.asked_by is None else queued.asked_by.name
    abdication = c.Abdication(epoch=state.epoch, reason=command.reason, to=command.to, by=by, at=now)
    to = f" to {command.to}" if command.to else ""
    return f"leadership of epoch {state.epoch} is given up{to}", (w.PutAbdication(abdication),)


def _consumed(
    state: State,
    queued: c.QueuedCommand,
    now: datetime,
    *,
    message: str,
    code: str = "ok",
    writes: tuple[w.Write, ...] = (),
) -> Decision:
    """The end of a command: one transaction removes it, writes its outcome and does its changes.

    Every code except `ok` is a refusal.
    """
    outcome = c.CommandOutcome(
        command=queued.id,
        accepted=code == "ok",
        code=code,
        message=message,
        decided_at=now,
        epoch=state.epoch,
        run_id=queued.command.run_id if isinstance(queued.command, c.StartRun) else None,
        kind=queued.command.type,
        pipeline=_pipeline(state, queued),
        names=_names(state, queued),
        submitted_by=queued.submitted_by,
        asked_by=queued.asked_by,
        key=queued.key,
    )
    return Decision(
        name="command_accepted" if outcome.accepted else "command_refused",
        writes=(*writes, w.ConsumeCommand(outcome)),
        about={
            "command": queued.id,
            "type": queued.command.type,
            "by": queued.submitted_by,
            "code": code,
            "message": message,
        },
    )


def _names(state: State, queued: c.QueuedCommand) -> dict[str, str]:
    """Names in the command; if it activates the newest release, also that release's digest."""
    names, command = c.names_in(queued.command), queued.command
    if (
        isinstance(command, c.ActivatePipeline)
        and command.digest is None
        and command.pipeline in state.catalog.pipelines
    ):
        names["release"] = state.catalog.pipelines[command.pipeline].published
    return names


def _pipeline(state: State, queued: c.QueuedCommand) -> PipelineName | None:
    names = ("pipeline", "run_id", "backfill")
    pipeline, run_id, backfill_id = (getattr(queued.command, name, None) for name in names)
    backfill = state.catalog.backfills.get(backfill_id) if backfill_id else None
    of = state.runs.live.get(run_id) if run_id else backfill
    return pipeline or (None if of is None else of.pipeline)
