"""Builds the outcome record of a command."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.commands import ActivatePipeline, CommandOutcome, QueuedCommand, StartRun, names_in
from nimbus.domain.ids import PipelineName
from nimbus.engine.state import State


def outcome_of(
    state: State, queued: QueuedCommand, *, code: str, message: str, now: datetime
) -> CommandOutcome:
    """The outcome of a command; every code except `ok` is a refusal."""
    return CommandOutcome(
        command=queued.id,
        accepted=code == "ok",
        code=code,
        message=message,
        decided_at=now,
        epoch=state.epoch,
        run_id=queued.command.run_id if isinstance(queued.command, StartRun) else None,
        kind=queued.command.type,
        pipeline=_pipeline(state, queued),
        names=_names(state, queued),
        submitted_by=queued.submitted_by,
        asked_by=queued.asked_by,
        key=queued.key,
    )


def _names(state: State, queued: QueuedCommand) -> dict[str, str]:
    """Names in the command; if it activates the newest release, also that release's digest."""
    found, command = names_in(queued.command), queued.command
    if (
        isinstance(command, ActivatePipeline)
        and command.digest is None
        and command.pipeline in state.catalog.pipelines
    ):
        found["release"] = state.catalog.pipelines[command.pipeline].published
    return found


def _pipeline(state: State, queued: QueuedCommand) -> PipelineName | None:
    """The pipeline that a command names, or that of its run or backfill."""
    names = ("pipeline", "run_id", "backfill")
    pipeline, run_id, backfill_id = (getattr(queued.command, name, None) for name in names)
    backfill = state.catalog.backfills.get(backfill_id) if backfill_id else None
    of = state.runs.live.get(run_id) if run_id else backfill
    return pipeline or (None if of is None else of.pipeline)
