"""Schedules: a fire time is dealt with in the transaction that moves the pipeline's position past it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from nimbus.definition.cron import fires_between, next_fire
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.drafts import Draft
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipeline import CatchUp
from nimbus.domain.run import Run, RunCause
from nimbus.domain.writes import CreateRun
from nimbus.engine.agenda import about_pipeline
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.rules.catalog import put
from nimbus.engine.rules.concurrency import is_skipped, queued_if_full, replaced
from nimbus.engine.rules.new_run import built
from nimbus.engine.state import Built, State

MISFIRE_GRACE = timedelta(minutes=1)
"""A fire time seen this late, as after a takeover, is still on time for `catchup: none`."""
MOST_AT_ONCE = 1000
"""Missed fire times that are looked at in one step; the rest follow in the next."""


def fire_schedule(state: State, name: PipelineName, now: datetime) -> Answer:
    """Start the run of a pipeline's first fire time that is due."""
    record = state.pipelines.get(name)
    if record is None or record.schedule_position is None:
        return Nothing()
    schedule = record.profile.schedule
    if record.state is not PipelineState.ACTIVE or schedule is None or name in state.quarantined:
        return Nothing()
    subject = about_pipeline(name)
    if subject in state.building:
        return Nothing()
    passed = fires_between(schedule, record.schedule_position, now, MOST_AT_ONCE)
    if not passed:
        return Nothing(at=next_fire(schedule, record.schedule_position))
    begun = state.built.get(subject)
    if begun is not None and begun.draft.release != record.release:
        begun = None  # another release became active meanwhile
    due, moved_to = _next(schedule.catchup, passed, begun, now)
    return _fired(state, record, due, moved_to, now)


def _next(
    catchup: CatchUp, passed: tuple[datetime, ...], begun: Built | None, now: datetime
) -> tuple[datetime | None, datetime]:
    """The fire time to start a run for, if there is one, and where the position moves."""
    for fire in passed:
        if begun is not None and fire == begun.draft.logical_date:
            return fire, fire  # was due when the run was asked for
    if catchup is CatchUp.ALL:
        return passed[0], passed[0]
    if len(passed) == MOST_AT_ONCE:
        return None, passed[-2]  # the last may be the latest of all: the next look decides
    on_time = catchup is CatchUp.LATEST or now - passed[-1] <= MISFIRE_GRACE
    return passed[-1] if on_time else None, passed[-1]


def _fired(
    state: State, record: PipelineRecord, due: datetime | None, moved_to: datetime, now: datetime
) -> Answer:
    moved = put(state, replace(record, schedule_position=moved_to), record)
    about = {"pipeline": str(record.name), "position": moved_to.isoformat()}
    skipped = Decision(name="schedule_skipped", writes=(moved,), about=about)
    if due is None or record.release is None:
        return skipped
    if is_skipped(state, record):
        return replace(skipped, name="fire_skipped_full", about=about | {"fire": due.isoformat()})
    draft = Draft(
        # Made of the fire time, so that no two leaders can start its run twice.
        id=RunId(f"{record.name}-{due:%Y%m%dt%H%M%Sz}"),
        pipeline=record.name,
        release=record.release,
        parameters={},
        logical_date=due,
        cause=RunCause.SCHEDULE,
        layout=state.schema,
        asked_at=now,
    )
    if draft.id in state.runs or draft.id in state.finished:  # started by hand under this fire time's id
        return skipped
    try:
        run = built(state, about_pipeline(record.name), draft)
    except RefusedError as exc:
        return replace(skipped, name="schedule_refused", about=about | {"error": str(exc)})
    if not isinstance(run, Run):
        return run
    run = queued_if_full(state, run)
    return Decision(
        name="schedule_fired",
        writes=(moved, CreateRun(run), *replaced(state, record, run, now)),
        about=about | {"run": run.id, "run_state": run.state},
    )
