"""Commands about backfills."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nimbus.domain.commands import ControlBackfill, CreateBackfill, QueuedCommand
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import InvalidNameError, PipelineName, ReleaseDigest, backfill_id
from nimbus.domain.pipelines.backfill import MAX_PARALLEL, Backfill, BackfillRequest, BackfillState
from nimbus.domain.pipelines.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import RunState
from nimbus.domain.writes import PutBackfill, PutRun, RemoveBackfill
from nimbus.engine.decision import Answer, Done
from nimbus.engine.rules.backfills import unpinned
from nimbus.engine.rules.commands.checks import known_pipeline
from nimbus.engine.rules.release_checks import prepared_release
from nimbus.engine.state import State

MAX_KEPT = 50
"""Limit of kept backfills of a pipeline. Beyond it, the oldest ended one is removed."""


def _pinned_release(command: CreateBackfill, record: PipelineRecord) -> ReleaseDigest:
    digest = command.digest or record.release
    if digest is None:
        raise RefusedError(
            "not_active", f"pipeline {record.name} has no active release: activate one, or name one."
        )
    return digest


def created(state: State, queued: QueuedCommand, command: CreateBackfill, now: datetime) -> Done | Answer:
    """A new backfill. Its range ends at the latest now: the schedule starts the runs of later dates.

    Raises RefusedError: the backfill cannot be created.
    """
    record = known_pipeline(state, command.pipeline)
    same = state.catalog.backfills.get(command.backfill)
    if same is not None and same.pipeline == record.name:
        return f"backfill {same.id} was created before: it is {same.state}", ()
    release = _pinned_release(command, record)
    spec = prepared_release(state, ReleaseOf(record.name, release), record.owner)
    if not isinstance(spec, PipelineSpec):
        return spec
    request = replace(command.request, last=min(command.request.last, now))
    _check(state, command, request, spec)
    backfill = Backfill(
        id=command.backfill,
        pipeline=record.name,
        release=release,
        schedule=None if spec.schedule is None else replace(spec.schedule, parameters={}),
        request=request,
        created_at=now,
        created_by=queued.submitted_by,
    )
    dates = "" if command.request.total is None else f" of {command.request.total} dates"
    said = f"backfill {backfill.id}{dates} of {record.name} is created"
    kept = sorted(_of(state, record), key=lambda backfill: backfill.created_at)
    over = [backfill for backfill in kept if backfill.state.is_over]
    forgotten = tuple(RemoveBackfill(backfill) for backfill in over[:1] if len(kept) >= MAX_KEPT)
    return said, (PutBackfill(backfill, None), *forgotten, *unpinned(state, record, backfill))


def controlled(state: State, command: ControlBackfill, now: datetime) -> Done:
    """Pause, resume or cancel a backfill. Raises RefusedError if this is not possible."""
    backfill = state.catalog.backfills.get(command.backfill)
    if backfill is None:
        raise RefusedError("unknown_backfill", f"there is no backfill {command.backfill}.")
    if backfill.state is command.to:
        return f"backfill {backfill.id} is {command.to} already", ()
    if backfill.state.is_over:
        raise RefusedError(
            "backfill_over", f"backfill {backfill.id} is {backfill.state}: create another one."
        )
    match command.to:
        case BackfillState.ACTIVE:
            active = replace(backfill, state=BackfillState.ACTIVE, reason="")
            return f"backfill {backfill.id} goes on", (PutBackfill(active, backfill),)
        case BackfillState.PAUSED:
            paused = backfill.paused(command.reason)
            said = f"backfill {backfill.id} is paused: it starts nothing; its runs under way go on"
            return said, (PutBackfill(paused, backfill),)
        case BackfillState.CANCELLED:
            return _cancelled(state, backfill, command.reason, now)
        case BackfillState.FINISHED:
            raise ValueError(f"backfill {backfill.id} cannot become {command.to}")


def _cancelled(state: State, backfill: Backfill, reason: str, now: datetime) -> Done:
    """Cancel a backfill. Its queued runs, at most MAX_PARALLEL, are stopped: they have not begun."""
    runs = (state.runs.live[run] for run in sorted(state.runs.of_backfill(backfill.id)))
    why = f"backfill {backfill.id} was cancelled"
    stops = tuple(
        PutRun(lifecycle.stop(run, verdict=RunState.STOPPED, reason=why, now=now), run)
        for run in runs
        if run.state is RunState.QUEUED and run.started_at is None
    )
    over = backfill.over(BackfillState.CANCELLED, reason, now)
    record = state.catalog.pipelines.get(backfill.pipeline)
    said = f"backfill {backfill.id} is cancelled: its queued runs are stopped, those under way go on"
    freed = () if record is None else unpinned(state, record, over)
    return said, (PutBackfill(over, backfill), *stops, *freed)


def check_none_open(state: State, record: PipelineRecord) -> None:
    """Raise RefusedError if a backfill of a pipeline is not over."""
    for backfill in _of(state, record):
        if not backfill.state.is_over:
            raise RefusedError(
                "pipeline_in_use",
                f"pipeline {record.name} has backfill {backfill.id}, which is {backfill.state}: "
                f"`nimbus backfill cancel {backfill.id}`.",
            )


def backfills_of(state: State, record: PipelineRecord) -> tuple[RemoveBackfill, ...]:
    """The writes that remove the backfills of a removed pipeline."""
    return tuple(RemoveBackfill(backfill) for backfill in _of(state, record))


def _check(state: State, command: CreateBackfill, request: BackfillRequest, spec: PipelineSpec) -> None:
    try:
        backfill_id(command.backfill)  # it becomes part of paths
    except InvalidNameError as exc:
        raise RefusedError(exc.code, str(exc)) from exc
    known = state.catalog
    if command.backfill in known.backfills or PipelineName(command.backfill) in known.pipelines:
        raise RefusedError(
            "backfill_exists",
            f"{command.backfill} is a pipeline, or a backfill of another one: choose another id.",
        )
    if request.first > request.last or not 1 <= request.max_parallel <= MAX_PARALLEL:
        raise RefusedError(
            "bad_backfill",
            "the range ends before it begins, or begins in the future, or max_parallel is not 1 to 100.",
        )
    if (spec.schedule is None) == (request.every is None):
        raise RefusedError(
            "bad_backfill",
            f"pipeline {spec.name} has no schedule: give the distance of its dates (`--every 1d`)."
            if spec.schedule is None
            else f"pipeline {spec.name} has a schedule, which sets the dates: leave out `--every`.",
        )
    for backfill in state.catalog.backfills.values():
        overlaps = backfill.request.first <= request.last and request.first <= backfill.request.last
        if backfill.pipeline == command.pipeline and not backfill.state.is_over and overlaps:
            raise RefusedError(
                "backfill_overlaps",
                f"backfill {backfill.id} of some of these dates is {backfill.state}: wait for its end, or "
                "cancel it.",
            )


def _of(state: State, record: PipelineRecord) -> list[Backfill]:
    return [backfill for backfill in state.catalog.backfills.values() if backfill.pipeline == record.name]
