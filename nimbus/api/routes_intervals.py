"""The calendar of a pipeline: the state of each data interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query

from nimbus.api.models_backfills import IntervalModel, IntervalsModel, IntervalState
from nimbus.api.requests import BoundText, PipelineNameText
from nimbus.api.routes_pipelines import known_pipeline
from nimbus.api.services import ApiServices
from nimbus.definition.intervals import bound_of, dates_between, intervals_of, last_dates
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.intervals import DataInterval
from nimbus.domain.pipeline import Schedule

MOST_DATES = 1000
"""Limit of dates in one answer."""
USUAL_DATES = 30
"""Number of dates without `from`."""
_LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["pipelines"], prefix=f"{prefix}/pipelines")

    @routes.get("/{name}/intervals")
    def intervals(
        name: PipelineNameText,
        first: Annotated[BoundText | None, Query(alias="from")] = None,
        last: Annotated[BoundText | None, Query(alias="to")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_DATES)] = MOST_DATES,
    ) -> IntervalsModel:
        """The state of each date from `from` to `to`, by default now; without `from`, of the last 30."""
        return _calendar(services, known_pipeline(services, name), first, last, limit)

    return routes


def _calendar(
    services: ApiServices, record: PipelineRecord, first: str | None, last: str | None, limit: int
) -> IntervalsModel:
    schedule = record.profile.schedule
    zone = ZoneInfo("UTC" if schedule is None else schedule.timezone)
    until = services.clock.now() if last is None else bound_of(last, zone, is_last=True)
    since = None if first is None else bound_of(first, zone)
    fires = () if schedule is None else _dates(schedule, since, until, limit + 1)
    next_from = fires[limit] if len(fires) > limit else None
    dates = () if schedule is None else intervals_of(schedule, fires[:limit])
    ends = until if next_from is None else next_from - timedelta(microseconds=1)
    begins = since or (fires[0] if fires else _LONG_AGO)
    index = services.reader.intervals(record.name)
    running = _running(services, record.name)
    others = [
        interval
        for interval in (*running, *_listed(index, DataInterval(start=begins, end=ends)))
        if interval not in dates and begins <= interval.end <= ends
    ]
    wanted = sorted(dict.fromkeys((*dates, *others)), key=lambda one: (one.end, one.start))
    return IntervalsModel(
        pipeline=record.name,
        timezone=zone.key,
        begins=None if index is None else index.begins,
        intervals=[_shown(interval, index, running) for interval in wanted],
        next_from=next_from,
    )


def _dates(schedule: Schedule, since: datetime | None, until: datetime, limit: int) -> tuple[datetime, ...]:
    if since is None:
        return last_dates(schedule, until, USUAL_DATES)
    return dates_between(schedule, since, until, limit)


def _listed(index: IntervalIndex | None, span: DataInterval) -> list[DataInterval]:
    return [] if index is None else [one.interval for one in index.overlapping(span)]


def _running(services: ApiServices, pipeline: PipelineName) -> dict[DataInterval, RunId]:
    """Intervals of live runs."""
    listed = services.reader.run_list().values()
    live = [run.id for run in listed if run.pipeline == pipeline and not run.state.is_final]
    runs = services.reader.runs(live).values()
    return {run.data_interval: run.id for run in runs if run.data_interval and not run.state.is_final}


def _shown(
    interval: DataInterval, index: IntervalIndex | None, running: dict[DataInterval, RunId]
) -> IntervalModel:
    start, end = interval.start, interval.end
    for other, run in running.items():
        if other.start <= start and other.end >= end:
            return IntervalModel(start=start, end=end, state=IntervalState.RUNNING, run=run)
    found = None if index is None else index.last(interval)
    if found is not None:
        state = IntervalState(found.outcome.value)
        return IntervalModel(start=start, end=end, state=state, run=found.run, ended_at=found.at)
    known = index is not None and index.knows(interval)
    return IntervalModel(
        start=start, end=end, state=IntervalState.MISSING if known else IntervalState.UNKNOWN
    )
