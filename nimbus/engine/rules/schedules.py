"""Schedules: a fire time is dealt with in the transaction that moves the pipeline's position past it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from nimbus.definition.cron import fires_between, next_fire
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.parameters import InvalidParametersError
from nimbus.domain.pipeline import CatchUp, PipelineSpec
from nimbus.domain.run import Run, RunCause
from nimbus.domain.writes import CreateRun, PutPipeline
from nimbus.engine.agenda import about_pipeline
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.rules.new_run import new_run, rendered
from nimbus.engine.state import Rendered, State

MISFIRE_GRACE = timedelta(minutes=1)
"""A fire time seen this late, as after a takeover, is still on time for `catchup: none`."""
MOST_AT_ONCE = 1000
"""Missed fire times that are looked at in one step; the rest follow in the next."""


def fire_schedule(state: State, name: PipelineName, now: datetime) -> Answer:
    """Start the run of a pipeline's first fire time that is due."""
    record = state.pipelines.get(name)
    if record is None or record.spec is None or record.schedule_position is None:
        return Nothing()
    schedule = record.spec.schedule
    if record.state is not PipelineState.ACTIVE or schedule is None or name in state.quarantined:
        return Nothing()
    subject = about_pipeline(name)
    if subject in state.rendering:
        return Nothing()
    passed = fires_between(schedule, record.schedule_position, now, MOST_AT_ONCE)
    if not passed:
        return Nothing(at=next_fire(schedule, record.schedule_position))
    due, moved_to = _next(schedule.catchup, passed, state.rendered.get(subject), now)
    return _fired(state, record, record.spec, due, moved_to, now)


def _next(
    catchup: CatchUp, passed: tuple[datetime, ...], begun: Rendered | None, now: datetime
) -> tuple[datetime | None, datetime]:
    """The fire time to start a run for, if there is one, and where the position moves."""
    for fire in passed:
        if begun is not None and fire == begun.draft.logical_date:
            return fire, fire  # was due when its arguments were asked for
    if catchup is CatchUp.ALL:
        return passed[0], passed[0]
    if len(passed) == MOST_AT_ONCE:
        return None, passed[-2]  # the last may be the latest of all: the next look decides
    on_time = catchup is CatchUp.LATEST or now - passed[-1] <= MISFIRE_GRACE
    return passed[-1] if on_time else None, passed[-1]


def _fired(
    state: State,
    record: PipelineRecord,
    spec: PipelineSpec,
    due: datetime | None,
    moved_to: datetime,
    now: datetime,
) -> Answer:
    moved = replace(record, schedule_position=moved_to)
    about = {"pipeline": str(record.name), "position": moved_to.isoformat()}
    skipped = Decision(name="schedule_skipped", writes=(PutPipeline(moved),), about=about)
    if due is None:
        return skipped
    try:
        draft = _run_of(record, spec, due, state.schema, now)
        if draft.id in state.runs or draft.id in state.finished:  # started by hand under this fire time's id
            return skipped
        run = rendered(state, about_pipeline(record.name), draft)
    except (InvalidParametersError, RefusedError) as exc:
        return replace(skipped, name="schedule_refused", about=about | {"error": str(exc)})
    if not isinstance(run, Run):
        return run
    return Decision(
        name="schedule_fired",
        writes=(PutPipeline(moved), CreateRun(run)),
        about=about | {"run": run.id},
    )


def _run_of(record: PipelineRecord, spec: PipelineSpec, due: datetime, layout: int, now: datetime) -> Run:
    """The run of a fire time. Its id is made of it, so that no two leaders can start it twice."""
    if record.release is None:
        raise InvalidParametersError(("the pipeline has no active release",))
    return new_run(
        spec,
        record.release,
        run_id=RunId(f"{record.name}-{due:%Y%m%dt%H%M%Sz}"),
        parameters={},
        logical_date=due,
        cause=RunCause.SCHEDULE,
        priority=None,
        layout=layout,
        now=now,
    )
