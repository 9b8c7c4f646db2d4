"""Plans a backfill, and backfills of the pipelines that wait for its runs or data. Creates nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice

from nimbus.api.backfill_requests import BackfillPlanBody, refuse_too_many, requested
from nimbus.api.models_backfills import (
    BackfillPlanModel,
    DownstreamBackfillModel,
    IntervalModel,
    IntervalState,
)
from nimbus.api.routes_pipelines import known_pipeline
from nimbus.api.services import ApiServices
from nimbus.definition.backfill_dates import (
    awaiting_dates,
    count_dates,
    dates_left,
    downstream_of,
    interval_of_date,
    whole_range,
)
from nimbus.domain.backfill import MOST_DATES, Backfill, BackfillRequest, Reprocess
from nimbus.domain.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import BackfillId, DatasetName, PipelineName
from nimbus.domain.intervals import DataInterval
from nimbus.domain.publications import Partitioning

MOST_PLANNED = 1000
"""Limit of listed dates."""
MOST_DOWNSTREAM = 100
"""Limit of backfills of other pipelines."""


def plan_of(services: ApiServices, body: BackfillPlanBody) -> BackfillPlanModel:
    """Plan a backfill and, on request, the backfills downstream.

    Raises:
        NotFoundError: there is no such pipeline.
        RefusedError: the backfill is not possible.
        DefinitionNotHereError: the definition of a downstream pipeline is not on this disk.
    """
    record, now = known_pipeline(services, body.pipeline), services.clock.now()
    backfill = _backfill(record, requested(body, record, now), now)
    dates, runs = _dates(services, backfill)
    return BackfillPlanModel(
        pipeline=record.name,
        total=backfill.request.total or 0,
        runs=1 if body.as_one_run else runs,
        dates=dates,
        downstream=_downstream(services, backfill, now) if body.downstream else [],
    )


def _backfill(record: PipelineRecord, request: BackfillRequest, now: datetime) -> Backfill:
    return Backfill(
        id=BackfillId("plan"),
        pipeline=record.name,
        release=record.release or record.published,
        schedule=record.profile.schedule,
        request=request,
        created_at=now,
    )


def _dates(services: ApiServices, backfill: Backfill) -> tuple[list[IntervalModel], int]:
    """The first dates of a backfill with their current states, and how many of them get a run."""
    index = services.reader.intervals(backfill.pipeline)
    dates, runs = [], 0
    for date in islice(dates_left(backfill), MOST_PLANNED):
        interval = interval_of_date(backfill, date)
        last = None if index is None or interval is None else index.last(interval)
        runs += backfill.needs(last)
        known = index is not None and interval is not None and index.knows(interval)
        dates.append(
            IntervalModel(
                start=date if interval is None else interval.start,
                end=date,
                state=_state(known) if last is None else IntervalState(last.outcome.value),
                run=None if last is None else last.run,
                ended_at=None if last is None else last.at,
            )
        )
    return dates, runs


def _state(known: bool) -> IntervalState:
    return IntervalState.MISSING if known else IntervalState.UNKNOWN


def _downstream(services: ApiServices, backfill: Backfill, now: datetime) -> list[DownstreamBackfillModel]:
    if backfill.request.reprocess is Reprocess.ALL:
        raise RefusedError(
            "bad_backfill",
            "with `reprocess` all, the earlier success of a date counts until it is run again, so runs that "
            "wait for it would begin too early: create the other backfills when this one has finished.",
        )
    active = {record.name: record for record in services.reader.pipelines() if record.release is not None}
    publishers = {
        dataset: name
        for name, one in active.items()
        for dataset in {*one.profile.datasets} - {accepted.dataset for accepted in one.profile.accepts}
    }
    sources = {name: _sources(one, publishers) for name, one in active.items()}
    waiting = downstream_of(backfill.pipeline, sources)
    if len(waiting) > MOST_DOWNSTREAM:
        raise RefusedError(
            "too_many_downstream",
            f"{len(waiting)} pipelines follow {backfill.pipeline}, directly or not, and at most "
            f"{MOST_DOWNSTREAM} are backfilled with it: create their backfills one by one.",
        )
    span = whole_range(backfill)
    spans = {} if span is None else {backfill.pipeline: span}
    follow = partial(_follower, services, backfill.request, spans, publishers, now)
    return [follow(active[name], sources[name]) for name in waiting]


def _sources(record: PipelineRecord, publishers: Mapping[DatasetName, PipelineName]) -> list[PipelineName]:
    """The other pipelines that a pipeline waits for, or reads data of."""
    read = {publishers[name] for name in record.profile.reads if name in publishers} - {record.name}
    return sorted(read.union(record.profile.upstream))


def _follower(
    services: ApiServices,
    origin: BackfillRequest,
    spans: dict[PipelineName, DataInterval],
    publishers: Mapping[DatasetName, PipelineName],
    now: datetime,
    record: PipelineRecord,
    sources: list[PipelineName],
) -> DownstreamBackfillModel:
    """The backfill of one pipeline. Its interval is added to `spans`, for pipelines that follow it."""
    upstream = [str(name) for name in sources if name in spans]
    row = DownstreamBackfillModel(pipeline=record.name, upstream=upstream)
    spec = services.definitions.definition(ReleaseOf(record.name, record.release or record.published))
    spec = replace(spec, schedule=record.profile.schedule)  # with the days of its calendar
    if spec.schedule is None:
        row.why = "it has no schedule, which would say its dates: create its backfill with `every`"
        return row
    by_interval = {
        name: publishers[name]
        for name in record.profile.reads
        if publishers.get(name, record.name) != record.name and _is_by_interval(services, name)
    }
    dates = awaiting_dates(spec, spans, now, by_interval)
    if dates is None:
        row.why = "no past date of it waits for, or reads, a part of this time"
        return row
    request = replace(origin, first=dates[0], last=dates[1], every=None, as_one_run=False)
    follower = _backfill(record, request, now)
    if (span := whole_range(follower)) is not None:
        spans[record.name] = span
    if record.profile.starts_by_data:
        row.why = "changes of the data that it reads start its runs"
        return row
    row.first, row.last = dates
    row.total = count_dates(spec.schedule, request, MOST_DATES)
    refuse_too_many(record.name, row.total)
    _, row.runs = _dates(services, follower)
    return row


def _is_by_interval(services: ApiServices, name: DatasetName) -> bool:
    """True also for a dataset that was never published: its runs may still do so."""
    dataset = services.reader.dataset(name)
    return dataset is None or dataset.partition is Partitioning.INTERVAL
