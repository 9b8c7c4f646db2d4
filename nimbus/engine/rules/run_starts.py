"""Runs before they start: built as an effect, then queued if there is no room, and started from the queue.

A run is built by an effect, because the definition is on disk, and a template may take long. Only the command
or schedule that starts the run waits for the result.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from nimbus.domain.data.datasets import datasets_of
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.pipeline import WhenFull
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.child_runs import with_releases
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.run import Places, Run, RunCause, RunState
from nimbus.domain.runs.run_number import next_number
from nimbus.domain.starts.places import needed, run_rank, top_of
from nimbus.domain.writes import CreateRun, PutRun, Write
from nimbus.engine.decision import Answer, BuildRun, Decision, NoDecision, Refusal, put_run
from nimbus.engine.rules.release_checks import check_publisher, check_reader, check_uses
from nimbus.engine.state import State
from nimbus.engine.work_queue import Key

_FRESH = timedelta(minutes=1)
"""Age of a built run, whose times are those of its draft, from which it is built again."""


def built(state: State, key: Key, draft: Draft, parent: Run | None = None) -> Run | Answer:
    """The run of a draft, or a decision to build it, or `NoDecision` while it is being built.

    The result may be from an earlier draft of the same run, with its times: `key`, which starts the run,
    waits for one run at a time. `parent`: of a child run. Raises RefusedError: the run cannot be built.
    """
    if key in state.builds.under_way:
        return NoDecision()
    result = state.builds.results.get(key)
    if result is None or result.result is None or not _same(state, result.draft, draft):
        return build(state, key, draft, parent)
    if isinstance(result.result, Refusal):
        raise RefusedError(result.result.code, result.result.message)
    if draft.cause in (RunCause.PARENT, RunCause.BACKFILL, RunCause.DATA) and result.result.keeps_running:
        raise RefusedError(
            "kept_running", f"pipeline {draft.pipeline} has a task that is kept running: its runs do not end."
        )
    owner = state.catalog.team_of(draft.pipeline) or None
    check_publisher(state, draft.pipeline, owner, datasets_of(result.result))  # it may be of an old release
    check_uses(state, draft.pipeline, owner, result.result.variables)
    check_reader(state, draft.pipeline, owner, result.result.reads)  # also what a rerun has pinned already
    return pinned(state, result.result)


def build(state: State, key: Key, draft: Draft, parent: Run | None = None) -> Decision:
    """Begin to build the run of a draft."""
    effect = BuildRun(key, replace(draft, variables=state.settings.variables), parent)
    return Decision(name="run_building_started", effects=(effect,), about={"run": draft.id})


def with_numbers(state: State, decision: Decision) -> Decision:
    """The decision, with a number for each run that it creates."""
    number = state.runs.newest_number
    writes: list[Write] = []
    for write in decision.writes:
        if isinstance(write, CreateRun):
            number = next_number(state.epoch, number)
            writes.append(CreateRun(replace(write.run, number=number)))
        else:
            writes.append(write)
    return replace(decision, writes=tuple(writes)) if number != state.runs.newest_number else decision


def pinned(state: State, run: Run) -> Run:
    """The run with its child runs pinned to the active releases."""
    names = {task.spec.children.pipeline for task in run.tasks.in_order() if task.spec.children is not None}
    if not names:
        return run
    records = (record for name in names if (record := state.catalog.pipelines.get(name)) is not None)
    return with_releases(
        run, {record.name: record.release for record in records if record.release is not None}
    )


def _same(state: State, draft: Draft, other: Draft) -> bool:
    """True when the run of one draft serves for the other. After a build, a start may wait long."""
    is_old = other.cause is RunCause.DATA and other.asked_at - draft.asked_at > _FRESH
    is_copy = other.selection is not None and other.selection.is_copy
    known = draft if is_copy else other  # a copy's release and interval are those of the earlier run
    wanted = (other.id, known.release, known.data_interval, state.settings.variables)
    return (draft.id, draft.release, draft.data_interval, draft.variables) == wanted and not is_old


def start_queued(state: State, run_id: RunId, now: datetime) -> Answer:
    """Start the most urgent queued run that there is room for."""
    run = state.runs.live[run_id]
    if (run.started_at is None and _is_held(state, run)) or not _has_room(state, run, run.holds):
        return NoDecision()  # an ended run, a changed limit or hold reopens the queue
    return put_run("queued_run_started", lifecycle.started(run, now), run)


def queued_if_full(state: State, run: Run) -> Run:
    """A new run, queued if there is no room for it.

    Queued runs that can start are started before: see `next_key`.
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
    writes = tuple(_placed(state, write) if isinstance(write, PutRun) else write for write in decision.writes)
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
