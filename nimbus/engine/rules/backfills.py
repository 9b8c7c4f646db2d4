"""Backfills: one transaction moves the position past a date and creates the date's run.

The index of intervals says which dates need a run. It changes in the transaction that ends a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import islice

from nimbus.definition.backfill_dates import dates_left, interval_of_date, whole_range
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import BackfillId
from nimbus.domain.pipelines.backfill import Backfill, BackfillState, OnFailure
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import Priority
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.writes import CreateRun, PutBackfill, PutIntervals, PutPipeline
from nimbus.engine.decision import Answer, Decision, NoDecision
from nimbus.engine.rules.run_starts import built, queued_if_full
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant, Key

MAX_AT_ONCE = 100
"""Limit of dates in one step; the rest follow in the next step."""


def step_backfill(state: State, backfill_id: BackfillId, now: datetime) -> Answer:
    """Create the run of the next date, if another run is allowed."""
    backfill = state.catalog.backfills.get(backfill_id)
    if backfill is None or backfill.state is not BackfillState.ACTIVE:
        return NoDecision()
    record = state.catalog.pipelines.get(backfill.pipeline)
    if record is None or record.state is PipelineState.PAUSED or not state.catalog.may_start(record.name):
        return NoDecision()  # a change of the pipeline or its holds queues it
    live = state.runs.of_backfill(backfill_id)
    if len(live) >= backfill.request.max_parallel or Key("backfill", backfill_id) in state.builds.under_way:
        return NoDecision()  # the end of a run queues it
    moved, created = _next(state, backfill)
    if created is not None:
        return _create(state, backfill, moved, created, now)
    if moved != backfill:
        return _put("backfill_dates_skipped", moved, backfill)
    return NoDecision() if live else _finish(state, record, backfill, now)


def with_counts(state: State, decision: Decision, ended: Iterable[Run]) -> Decision:
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
    of_pipeline = (
        backfill for backfill in state.catalog.backfills.values() if backfill.pipeline == record.name
    )
    needed = {backfill.id: backfill for backfill in of_pipeline} | {changed.id: changed}
    pinned = tuple(sorted({backfill.release for backfill in needed.values() if not backfill.state.is_over}))
    if pinned == record.pinned:
        return ()
    return (PutPipeline(replace(record, pinned=pinned), record),)


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
        by_hand = backfill.run_id(date) in state.runs
        if not scheduled and not by_hand and backfill.needs(last):
            return backfill, (date, interval)
        backfill = replace(backfill, position=date, skipped=backfill.skipped + 1)
    return backfill, None


def _create(
    state: State,
    backfill: Backfill,
    moved: Backfill,
    next_date: tuple[datetime, DataInterval | None],
    now: datetime,
) -> Answer:
    date, interval = next_date
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
        may_exist=True,  # of an earlier backfill of this id whose record was removed
    )
    try:
        run = built(state, Key("backfill", backfill.id), draft)
    except RefusedError as exc:
        return _refused(moved, backfill, date, exc)
    if not isinstance(run, Run):
        return run
    run = queued_if_full(state, run)
    after = replace(moved, position=date, started=moved.started + 1)
    return Decision(
        name="backfill_run_created",
        writes=(PutBackfill(after, backfill), CreateRun(run)),
        about={"backfill": backfill.id, "date": date.isoformat(), "run": run.id, "run_state": run.state},
    )


def _refused(moved: Backfill, before: Backfill, date: datetime, exc: RefusedError) -> Decision:
    """Handle a date whose run cannot be built as if its run had failed."""
    counted = replace(
        moved, position=date, started=moved.started + 1, failed=moved.failed + 1, refused=moved.refused + 1
    )
    why = f"no run for {date:%Y-%m-%d %H:%M}Z"
    if before.request.on_failure is OnFailure.PAUSE:
        after = counted if exc.code == "run_exists" else moved  # any other reason may be gone when it resumes
        return _put("backfill_refused", after.paused(f"{why}: {exc}"), before)
    return _put("backfill_refused", replace(counted, reason=why), before)


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


def with_intervals(state: State, decision: Decision, ended: Iterable[Run], now: Instant) -> Decision:
    """The decision, with the new index of each pipeline whose run with a data interval it ends."""
    changed: dict[str, PutIntervals] = {}
    for run in ended:
        if run.data_interval is None or not _stands_for_it(run):
            continue
        before = state.catalog.intervals.get(run.pipeline)
        known = changed[run.pipeline].index if run.pipeline in changed else before
        index = (known or IntervalIndex(begins=now.wall)).with_run(run)
        if index is not known:
            changed[run.pipeline] = PutIntervals(run.pipeline, index, before)
    return replace(decision, writes=(*decision.writes, *changed.values())) if changed else decision


def _stands_for_it(run: Run) -> bool:
    """True when a run covers its whole interval. Child runs and runs with left-out tasks do only a part."""
    left_out = bool(run.selected) and any(task.left_out for task in run.tasks.in_order())
    return run.parent is None and not left_out
