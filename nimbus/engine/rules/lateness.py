"""Records once that a run, task, pipeline or dataset is or will be late. `raised_alerts` raises the alert.

A pipeline misses its deadline even if there is no run, so that is recorded in the pipeline's health.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from nimbus.definition.intervals import interval_of, previous_fire
from nimbus.domain.cluster.alerts import AlertEvent
from nimbus.domain.data.datasets import late_from, newest_data
from nimbus.domain.ids import DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.pipeline import Schedule
from nimbus.domain.pipelines.pipeline_health import PipelineHealth, fastest
from nimbus.domain.runs.lifecycle import is_ready
from nimbus.domain.runs.run import RunState
from nimbus.domain.starts.timing import begins_by, late_at, passed, task_late_at
from nimbus.domain.writes import PutHealth
from nimbus.engine.decision import Answer, Decision, NoDecision, put_run
from nimbus.engine.state import State


def watch_deadline(state: State, name: PipelineName, now: datetime) -> Answer:
    """Record that the last deadline was missed, or that the next one will be."""
    record = state.catalog.pipelines.get(name)
    if record is None or not _is_watched(state, record):
        return NoDecision()
    schedule, deadline = record.profile.schedule, record.profile.deadline
    if schedule is None or deadline is None:
        return NoDecision()
    health = state.alerts.health.get(name) or PipelineHealth(name=name)
    last, coming = last_until(schedule, deadline, now), first_after(schedule, deadline, now)
    # A deadline that was set after its time had passed does not count.
    if last > record.updated_at and health.missed != last:
        fire = fire_of(schedule, deadline, last)
        if fire is not None and _lacks(state, record, schedule, fire, last):
            return _noted(state, replace(health, missed=last), "deadline_missed", last)
    soon = _foretold_at(state, record, schedule, deadline, coming)
    if soon is not None and soon <= now:
        return _noted(state, replace(health, foretold=coming), "deadline_in_danger", coming)
    return NoDecision(at=soon or coming)


def _is_watched(state: State, record: PipelineRecord) -> bool:
    if record.state is PipelineState.INACTIVE:
        return False
    return any(AlertEvent.LATE in rule.on for rule in state.policy.alerts.of(record.profile.notify))


def _lacks(state: State, record: PipelineRecord, schedule: Schedule, fire: datetime, until: datetime) -> bool:
    """True when certainly no run of the fire time had succeeded at `until`."""
    interval, index = interval_of(schedule, fire), state.catalog.intervals.get(record.name)
    if interval is None:
        return False
    if index is None:
        return fire > record.updated_at  # a fire time before its activation has no run
    ended = next((row for row in index.overlapping(interval) if row.interval == interval), None)
    if ended is None:
        return interval.end > index.begins
    return ended.outcome is not RunState.SUCCEEDED or ended.at > until


def _foretold_at(
    state: State, record: PipelineRecord, schedule: Schedule, deadline: time, coming: datetime
) -> datetime | None:
    """When the next deadline will be predicted as missed; None: it is not predicted, or already recorded."""
    health = state.alerts.health.get(record.name)
    usual, fire = fastest(health), fire_of(schedule, deadline, coming)
    if health is None or usual is None or fire is None or health.foretold == coming:
        return None
    if not _lacks(state, record, schedule, fire, coming):
        return None
    latest = coming - usual
    begun = (state.runs.live[run] for run in state.runs.of(record.name))
    if any(run.logical_date == fire and begins_by(run, latest) for run in begun):
        return None
    return max(latest, fire)


def _noted(state: State, health: PipelineHealth, name: str, deadline: datetime) -> Decision:
    return Decision(
        name=name,
        writes=(PutHealth(health, is_new=health.name not in state.alerts.health),),
        about={"pipeline": health.name, "deadline": deadline.isoformat()},
    )


def watch_dataset(state: State, name: DatasetName, now: datetime) -> Answer:
    """Record that a dataset is late, once until it has newer data."""
    newest = newest_data(state.catalog.datasets.get(name))
    coming: list[datetime] = []
    for pipeline in sorted(state.catalog.fresh_by[name]):
        record = state.catalog.pipelines[pipeline]
        health = state.alerts.health.get(pipeline) or PipelineHealth(name=pipeline)
        due, is_told = late_from(record, name, newest), (name, newest) in health.stale.items()
        if due is None or is_told or not _is_watched(state, record):
            continue
        if due <= now:
            kept = {name: at for name, at in health.stale.items() if name in record.profile.fresh}
            return _noted(state, replace(health, stale={**kept, name: newest}), "dataset_late", due)
        coming.append(due)
    return NoDecision(at=min(coming, default=None))


def note_late(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    """Record the lateness of a run or of one of its tasks. `name` is empty for the whole run."""
    run = state.runs.live.get(run_id)
    if run is None:
        return NoDecision()
    if name:
        return _note_task(state, run_id, name, now)
    usual = fastest(state.alerts.health.get(run.pipeline))
    events = passed(run, now, usual)
    if not events:
        return NoDecision(at=min((at for at in late_at(run, usual).values() if at > now), default=None))
    return put_run("run_late", replace(run, late=(*run.late, *events)), run, late=", ".join(events))


def _note_task(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    run = state.runs.live[run_id]
    task = run.tasks[name]
    if not task.spec.kind.uses_worker and not is_ready(run, task):
        return NoDecision()
    due = task_late_at(run, task)
    if due is None or due > now:
        return NoDecision(at=due)
    noted = replace(task, warned=max(1, task.tried))
    late = replace(run, tasks=run.tasks.replaced([noted]))
    return put_run("task_late", late, run, task=name, attempt=str(task.tried))


def first_after(schedule: Schedule, deadline: time, moment: datetime) -> datetime:
    """The first deadline later than a moment, in UTC."""
    return next(at for at in _around(schedule, deadline, moment) if at > moment)


def last_until(schedule: Schedule, deadline: time, moment: datetime) -> datetime:
    """The last deadline that is not later than a moment, in UTC."""
    return next(at for at in reversed(_around(schedule, deadline, moment)) if at <= moment)


def fire_of(schedule: Schedule, deadline: time, at: datetime) -> datetime | None:
    """The fire time whose run must have succeeded by a deadline: the last one before it.

    None: there was none since the deadline before.
    """
    fire = previous_fire(schedule, at)
    return fire if fire is not None and first_after(schedule, deadline, fire) == at else None


def _around(schedule: Schedule, deadline: time, moment: datetime) -> list[datetime]:
    zone = ZoneInfo(schedule.timezone)
    day = moment.astimezone(zone).date()
    days = (day + timedelta(days=offset) for offset in range(-2, 3))
    return [datetime.combine(day, deadline, zone).astimezone(UTC) for day in days]
