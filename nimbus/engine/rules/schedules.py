"""Schedules: a fire time is dealt with in the transaction that moves the pipeline's position past it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from nimbus.definition.cron import fires_between, next_fire
from nimbus.definition.rendering import TemplateError
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.ids import RunId
from nimbus.domain.parameters import InvalidParametersError
from nimbus.domain.pipeline import CatchUp, PipelineSpec, Schedule
from nimbus.domain.run import Run, RunCause
from nimbus.domain.writes import CreateRun, PutPipeline
from nimbus.engine.decision import Decision
from nimbus.engine.facts import Facts, Subject, with_run
from nimbus.engine.rules.new_run import new_run

MISFIRE_GRACE = timedelta(minutes=1)
"""A fire time seen this late, as after a takeover, is still on time for `catchup: none`."""
MOST_AT_ONCE = 1000
"""Missed fire times that are looked at in one step; the rest follow in the next."""


def fire_schedule(facts: Facts, now: datetime) -> Decision | None:
    """Start the run of the first fire time that is due, of the first pipeline that has one."""
    for record, spec, schedule, position in _scheduled(facts):
        passed = fires_between(schedule, position, now, MOST_AT_ONCE)
        if not passed:
            continue
        due = _due(schedule.catchup, passed, now)
        if len(passed) == MOST_AT_ONCE and schedule.catchup is not CatchUp.ALL:
            due = None  # more have passed than one look shows: the latest is not among these
        moved_to = due if schedule.catchup is CatchUp.ALL and due is not None else passed[-1]
        return _fired(facts, record, spec, due, moved_to, now)
    return None


def moments(facts: Facts) -> Iterator[datetime]:
    """The next fire time of each pipeline."""
    for _, _, schedule, position in _scheduled(facts):
        upcoming = next_fire(schedule, position)
        if upcoming is not None:
            yield upcoming


def _scheduled(facts: Facts) -> Iterator[tuple[PipelineRecord, PipelineSpec, Schedule, datetime]]:
    for name in sorted(facts.pipelines):
        record = facts.pipelines[name]
        spec = record.spec
        if record.state is not PipelineState.ACTIVE or spec is None or spec.schedule is None:
            continue
        if Subject("pipeline", name) in facts.set_aside:
            continue
        if name in facts.quarantined or record.schedule_position is None:
            continue
        yield record, spec, spec.schedule, record.schedule_position


def _due(catchup: CatchUp, passed: tuple[datetime, ...], now: datetime) -> datetime | None:
    match catchup:
        case CatchUp.ALL:
            return passed[0]
        case CatchUp.LATEST:
            return passed[-1]
        case CatchUp.NONE:
            return passed[-1] if now - passed[-1] <= MISFIRE_GRACE else None


def _fired(
    facts: Facts,
    record: PipelineRecord,
    spec: PipelineSpec,
    due: datetime | None,
    moved_to: datetime,
    now: datetime,
) -> Decision:
    moved = replace(record, schedule_position=moved_to)
    moved_facts = replace(facts, pipelines={**facts.pipelines, record.name: moved})
    about = {"pipeline": str(record.name), "position": moved_to.isoformat()}
    if due is None:
        return Decision(name="schedule_skipped", facts=moved_facts, writes=(PutPipeline(moved),), about=about)
    try:
        run = _run_of(record, spec, due, now)
    except (InvalidParametersError, TemplateError) as exc:
        about |= {"error": str(exc)}
        return Decision(name="schedule_refused", facts=moved_facts, writes=(PutPipeline(moved),), about=about)
    if run.id in facts.runs:  # started by hand under the id of this fire time
        return Decision(name="schedule_skipped", facts=moved_facts, writes=(PutPipeline(moved),), about=about)
    return Decision(
        name="schedule_fired",
        facts=with_run(moved_facts, run),
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
