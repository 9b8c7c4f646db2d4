"""Backfills: one transaction moves the position past a date and creates the date's run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import islice

from nimbus.definition.backfill_dates import dates_left, interval_of_date, whole_range
from nimbus.domain.backfill import Backfill, BackfillState, OnFailure
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.drafts import Draft
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import BackfillId
from nimbus.domain.intervals import DataInterval
from nimbus.domain.pipeline import Priority
from nimbus.domain.run import Run, RunCause
from nimbus.domain.writes import CreateRun, PutBackfill, PutPipeline
from nimbus.engine.agenda import about_backfill
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.rules.catalog import put
from nimbus.engine.rules.concurrency import queued_if_full
from nimbus.engine.rules.new_run import built
from nimbus.engine.state import State

MAX_AT_ONCE = 100
"""Limit of dates in one step; the rest follow in the next step."""


def step_backfill(state: State, backfill_id: BackfillId, now: datetime) -> Answer:
    """Create the run of the next date, if another run is allowed."""
    backfill = state.catalog.backfills.get(backfill_id)
    if backfill is None or backfill.state is not BackfillState.ACTIVE:
        return Nothing()
    record = state.catalog.pipelines.get(backfill.pipeline)
    if record is None or record.state is PipelineState.PAUSED or not state.catalog.may_start(record.name):
        return Nothing()  # a change of the pipeline or its holds puts it on the agenda
    live = state.runs.of_backfill(backfill_id)
    if len(live) >= backfill.request.max_parallel or about_backfill(backfill_id) in state.builds.under_way:
        return Nothing()  # the end of a run puts it on the agenda
    moved, found = _next(state, backfill)
    if found is not None:
        return _create(state, backfill, moved, found, now)
    if moved != backfill:
        return _put("backfill_dates_skipped", moved, backfill)
    return Nothing() if live else _finish(state, record, backfill, now)


def noted(state: State, decision: Decision, ended: Iterable[Run]) -> Decision:
    """The decision, with new counts of the backfills whose runs it ends."""
    known = {write.backfill.id: write.backfill for write in decision.writes if isinstance(write, PutBackfill)}
    changes, backfills = [], state.catalog.backfills
    for run in ended:
        before = None if run.backfill is None else known.get(run.backfill, backfills.get(run.backfill))
        if before is not None:
            after = known[before.id] = before.after_end(run.id, run.state)
            changes.append(PutBackfill(after, before))
    return replace(decision, writes=(*decision.writes, *changes)) if changes else decision


def unpinned(state: State, record: PipelineRecord, changed: Backfill) -> tuple[PutPipeline, ...]:
    """The write that sets the releases pinned by a pipeline's backfills; empty: they are unchanged."""
    of_pipeline = (one for one in state.catalog.backfills.values() if one.pipeline == record.name)
    needed = {one.id: one for one in of_pipeline} | {changed.id: changed}
    pinned = tuple(sorted({one.release for one in needed.values() if not one.state.is_over}))
    if pinned == record.pinned:
        return ()
    written = put(replace(record, pinned=pinned), record)
    return (written,) if isinstance(written, PutPipeline) else ()


def _next(state: State, backfill: Backfill) -> tuple[Backfill, tuple[datetime, DataInterval | None] | None]:
    """The backfill moved past dates that need no run, and the next date that does, within the limit."""
    if backfill.request.as_one_run:
        span = whole_range(backfill) if backfill.position is None else None
        return backfill, None if span is None else (span.end, span)
    index = state.catalog.intervals.get(backfill.pipeline)
    for date in islice(dates_left(backfill), MAX_AT_ONCE):
        interval = interval_of_date(backfill, date)
        last = None if index is None or interval is None else index.last(interval)
        scheduled = backfill.scheduled_run_id(date) in state.runs.live
        if not scheduled and not _is_taken(state, backfill, date) and backfill.needs(last):
            return backfill, (date, interval)
        backfill = replace(backfill, position=date, skipped=backfill.skipped + 1)
    return backfill, None


def _is_taken(state: State, backfill: Backfill, date: datetime) -> bool:
    """True when a run with the id of the date's run was started by hand."""
    run = backfill.run_id(date)
    return run in state.runs


def _create(
    state: State,
    backfill: Backfill,
    moved: Backfill,
    found: tuple[datetime, DataInterval | None],
    now: datetime,
) -> Answer:
    date, interval = found
    draft = Draft(
        id=backfill.run_id(date),
        pipeline=backfill.pipeline,
        release=backfill.release,
        parameters=backfill.request.parameters,
        logical_date=date,
        data_interval=interval,
        schedule="" if backfill.schedule is None else backfill.schedule.name,
        cause=RunCause.BACKFILL,
        priority=Priority.LOW,
        backfill=backfill.id,
        asked_at=now,
        submitted_by=backfill.created_by,
    )
    try:
        run = built(state, about_backfill(backfill.id), draft)
    except RefusedError as exc:
        return _refused(moved, backfill, date, str(exc))
    if not isinstance(run, Run):
        return run
    run = queued_if_full(state, run)
    after = replace(moved, position=date, started=moved.started + 1)
    return Decision(
        name="backfill_run_created",
        writes=(PutBackfill(after, backfill), CreateRun(run)),
        about={"backfill": backfill.id, "date": date.isoformat(), "run": run.id, "run_state": run.state},
    )


def _refused(moved: Backfill, before: Backfill, date: datetime, why: str) -> Decision:
    """Handle a date whose run cannot be built as if its run had failed."""
    if before.request.on_failure is OnFailure.PAUSE:
        return _put("backfill_refused", moved.paused(f"no run for {date:%Y-%m-%d %H:%M}Z: {why}"), before)
    counted = replace(moved, position=date, started=moved.started + 1, failed=moved.failed + 1)
    told = replace(counted, refused=moved.refused + 1, reason=f"no run for {date:%Y-%m-%d %H:%M}Z")
    return _put("backfill_refused", told, before)


def _finish(state: State, record: PipelineRecord, backfill: Backfill, now: datetime) -> Decision:
    done = backfill.over(BackfillState.FINISHED, backfill.reason, now)
    return Decision(
        name="backfill_finished",
        writes=(PutBackfill(done, backfill), *unpinned(state, record, done)),
        about={"backfill": backfill.id, "succeeded": str(done.succeeded), "failed": str(done.failed)},
    )


def _put(name: str, after: Backfill, before: Backfill) -> Decision:
    return Decision(
        name=name,
        writes=(PutBackfill(after, before),),
        about={"backfill": after.id, "position": str(after.position), "reason": after.reason},
    )
