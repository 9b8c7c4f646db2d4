"""Queued runs, places of runs, and scheduled runs whose pipeline has no room."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nimbus.domain import lifecycle
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.ids import RunId
from nimbus.domain.pipeline import WhenFull
from nimbus.domain.places import needed, run_rank, top_of
from nimbus.domain.run import Places, Run, RunCause, RunState
from nimbus.domain.writes import PutRun
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.state import State


def start_queued(state: State, run_id: RunId, now: datetime) -> Answer:
    """Start the most urgent queued run that there is room for."""
    run = state.runs.live[run_id]
    if (run.started_at is None and _is_held(state, run)) or not _has_room(state, run, run.holds):
        return Nothing()  # an ended run, a changed limit or hold reopens the queue
    return Decision(
        name="queued_run_started",
        writes=(PutRun(lifecycle.started(run, now), run),),
        about={"run": run_id},
    )


def queued_if_full(state: State, run: Run) -> Run:
    """A new run, queued if there is no room for it.

    Queued runs that can start are started before: see `next_subject`.
    """
    if run.state.is_final:
        return run
    if not _is_held(state, run) and _has_room(state, run, Places.NONE):
        return replace(run, holds=needed(run))
    return lifecycle.queued(run)


def with_places(state: State, decision: Decision) -> Decision:
    """A decision whose changed runs hold the places that they need from then on.

    A run that only waited, and goes on, needs a place. If there is none, it is queued again.
    """
    writes = tuple(_placed(state, one) if isinstance(one, PutRun) else one for one in decision.writes)
    return decision if writes == decision.writes else replace(decision, writes=writes)


def _placed(state: State, write: PutRun) -> PutRun:
    run, before = write.run, write.before
    if run.state is RunState.QUEUED or run.state.is_final:
        return write
    needs = needed(run)
    if needs is run.holds:
        return write
    if before.state is RunState.RUNNING and not _has_room(state, run, before.holds):
        return replace(write, run=replace(run, state=RunState.QUEUED))
    return replace(write, run=replace(run, holds=needs))


def _is_held(state: State, run: Run) -> bool:
    """True when a hold covers a run that has not begun. A child run belongs to its parent, which has."""
    return run.parent is None and state.catalog.is_held(run.pipeline)


def _has_room(state: State, run: Run, holds: Places) -> bool:
    return state.queue.has_room(run.pipeline, top=top_of(run), needs=needed(run), holds=holds)


def is_skipped(state: State, record: PipelineRecord) -> bool:
    """True when a fire starts no run, because `when_full` is `skip` and a scheduled run is live."""
    return _when_full(state, record) is WhenFull.SKIP and bool(_scheduled(state, record))


def replaced(state: State, record: PipelineRecord, by: Run, now: datetime) -> tuple[PutRun, ...]:
    """The stop of the run that a new scheduled run replaces, if there is one.

    A queued run is replaced first. If none is queued, and a run is being stopped or cleans up, that run will
    make room, so no other is stopped. A new run that is not queued needs no room: it replaces only a run that
    waits without a place.
    """
    if _when_full(state, record) is not WhenFull.REPLACE:
        return ()
    scheduled = _scheduled(state, record)
    if by.state is not RunState.QUEUED:
        scheduled = [run for run in scheduled if run.state is RunState.RUNNING and run.holds is Places.NONE]
    queued = [run for run in scheduled if run.state is RunState.QUEUED]
    if not queued and any(run.verdict is not None for run in scheduled):
        return ()
    for run in sorted(queued or scheduled, key=run_rank):
        reason = f"replaced by run {by.id}: concurrency.when_full is replace"
        return (PutRun(lifecycle.stop(run, verdict=RunState.STOPPED, reason=reason, now=now), run),)
    return ()


def _when_full(state: State, record: PipelineRecord) -> WhenFull | None:
    """The setting of a full pipeline; None: it has room, even if the cluster has none."""
    concurrency = record.profile.concurrency
    if concurrency is None or len(state.runs.of(record.name)) < concurrency.limit:
        return None
    return concurrency.when_full


def _scheduled(state: State, record: PipelineRecord) -> list[Run]:
    live = (state.runs.live[run_id] for run_id in state.runs.of(record.name))
    return [run for run in live if run.cause is RunCause.SCHEDULE]
