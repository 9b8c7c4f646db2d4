"""Schedules: a fire time is dealt with in the transaction that moves the pipeline's position past it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from nimbus.definition.cron import fires_between, next_fire
from nimbus.definition.rendering import TemplateError
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.parameters import InvalidParametersError
from nimbus.domain.pipeline import CatchUp, PipelineSpec
from nimbus.domain.run import Run, RunCause
from nimbus.domain.writes import CreateRun, PutPipeline
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.rules.new_run import new_run
from nimbus.engine.state import State

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
    passed = fires_between(schedule, record.schedule_position, now, MOST_AT_ONCE)
    if not passed:
        return Nothing(at=next_fire(schedule, record.schedule_position))
    due = _due(schedule.catchup, passed, now)
    if len(passed) == MOST_AT_ONCE and schedule.catchup is not CatchUp.ALL:
        due = None  # more have passed than one look shows: the latest is not among these
    moved_to = due if schedule.catchup is CatchUp.ALL and due is not None else passed[-1]
    return _fired(state, record, record.spec, due, moved_to, now)


def _due(catchup: CatchUp, passed: tuple[datetime, ...], now: datetime) -> datetime | None:
    match catchup:
        case CatchUp.ALL:
            return passed[0]
        case CatchUp.LATEST:
            return passed[-1]
        case CatchUp.NONE:
            return passed[-1] if now - passed[-1] <= MISFIRE_GRACE else None


def _fired(
    state: State,
    record: PipelineRecord,
    spec: PipelineSpec,
    due: datetime | None,
    moved_to: datetime,
    now: datetime,
) -> Decision:
    moved = replace(record, schedule_position=moved_to)
    about = {"pipeline": str(record.name), "position": moved_to.isoformat()}
    if due is None:
        return Decision(name="schedule_skipped", writes=(PutPipeline(moved),), about=about)
    try:
        run = _run_of(record, spec, due, now)
    except (InvalidParametersError, TemplateError) as exc:
        about |= {"error": str(exc)}
        return Decision(name="schedule_refused", writes=(PutPipeline(moved),), about=about)
    if run.id in state.runs or run.id in state.finished:  # started by hand under the id of this fire time
        return Decision(name="schedule_skipped", writes=(PutPipeline(moved),), about=about)
    return Decision(
        name="schedule_fired",
        writes=(PutPipeline(moved), CreateRun(run)),
        about=about | {"run": run.id},
    )


def _run_of(record: PipelineRecord, spec: PipelineSpec, due: datetime, now: datetime) -> Run:
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
        now=now,
    )
