"""Plans a backfill, and backfills of the pipelines that wait for its runs or data. Creates nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, WithJsonSchema

from nimbus.api.models import Model
from nimbus.api.requests import (
    BackfillIdText,
    BoundText,
    DigestText,
    PipelineNameText,
    RequestBody,
    StorableParameters,
    whole,
)
from nimbus.api.routes.pipelines import IntervalModel, IntervalState, known_pipeline
from nimbus.api.services import ApiServices
from nimbus.config.values import parse_duration
from nimbus.definition.backfill_dates import (
    awaiting_dates,
    count_dates,
    dates_left,
    downstream_of,
    interval_of_date,
    whole_range,
)
from nimbus.definition.intervals import bound_of
from nimbus.domain.data.publications import Partitioning
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import BackfillId, DatasetName, PipelineName
from nimbus.domain.pipelines.backfill import (
    MAX_DATES,
    MAX_PARALLEL,
    Backfill,
    BackfillRequest,
    OnFailure,
    Order,
    Reprocess,
)
from nimbus.domain.pipelines.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.pipelines.intervals import DataInterval


class DownstreamBackfillModel(Model):
    """A backfill of a pipeline that waits for runs of another, or reads their data. It needs a request."""

    pipeline: str
    upstream: list[str]
    """The backfilled pipelines that it waits for, or reads data of."""
    first: datetime | None = None
    """`from` of its request. Null: it gets no backfill, for the reason in `why`."""
    last: datetime | None = None
    """`to` of its request."""
    total: int = 0
    """Number of dates in its range."""
    runs: int = 0
    """How many of the first 1,000 dates get a run, by the current state."""
    why: str | None = None


class BackfillPlanModel(Model):
    """The plan of a backfill."""

    pipeline: str
    total: int
    """Number of dates in the range; at most 100,000 are counted."""
    runs: int
    """How many of the listed dates get a run."""
    dates: list[IntervalModel]
    """The first 1,000 dates, in its order, with their current state."""
    downstream: list[DownstreamBackfillModel] = Field(default_factory=list)
    """On request: pipelines that wait for its runs or data, directly or not; each after its upstream."""


SHORTEST_STEP = timedelta(minutes=1)
LONGEST_STEP = timedelta(days=366)
_Step = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": "^([0-9]{1,8}s|[0-9]{1,6}m|[0-9]{1,4}h|[0-9]{1,3}d)$"}),
]


class BackfillBody(RequestBody):
    """Start runs for the dates of a range."""

    pipeline: PipelineNameText
    first: BoundText = Field(alias="from")
    last: BoundText = Field(alias="to")
    every: _Step | None = Field(
        None, description="Such as 1d, from 1m to 366d: for a pipeline without a schedule."
    )
    max_parallel: Annotated[StrictInt, BeforeValidator(whole)] = Field(1, ge=1, le=MAX_PARALLEL)
    reprocess: Reprocess = Reprocess.MISSING
    order: Order = Order.OLDEST
    on_failure: OnFailure = OnFailure.PAUSE
    as_one_run: StrictBool = False
    parameters: StorableParameters = Field(default_factory=dict)


class BackfillPlanBody(BackfillBody):
    """A backfill to plan, not to create."""

    downstream: StrictBool = Field(
        False, description="Plan backfills of the pipelines that wait for its runs or read its data, too."
    )


class NewBackfillBody(BackfillBody):
    """A backfill with its id."""

    id: BackfillIdText = Field(description="Your own: asking twice with it creates one backfill.")
    release: DigestText | None = Field(None, description="Of all its runs. Without it: the active one.")


def requested(body: BackfillBody, record: PipelineRecord, now: datetime) -> BackfillRequest:
    """The request of a body. Its range ends at the latest now.

    Raises RefusedError: the range has no date, or too many dates.
    """
    schedule = record.profile.schedule
    if body.every is not None and not SHORTEST_STEP <= body.every <= LONGEST_STEP:
        raise RefusedError("bad_every", "`every` must be between 1m and 366d.")
    zone = ZoneInfo("UTC" if schedule is None else schedule.timezone)
    request = BackfillRequest(
        first=bound_of(body.first, zone),
        last=min(bound_of(body.last, zone, is_last=True), now),
        every=body.every,
        max_parallel=body.max_parallel,
        reprocess=body.reprocess,
        order=body.order,
        on_failure=body.on_failure,
        as_one_run=body.as_one_run,
        parameters=body.parameters,
    )
    total = count_dates(schedule, request, MAX_DATES)
    if total < 1:
        raise RefusedError(
            "no_dates", f"pipeline {record.name} has no past date from {body.first} to {body.last}."
        )
    refuse_too_many(record.name, total)
    return replace(request, total=total)


def refuse_too_many(pipeline: str, dates: int) -> None:
    """Raise RefusedError if a range has MAX_DATES dates or more."""
    if dates >= MAX_DATES:
        raise RefusedError(
            "too_many_dates",
            f"the range has {MAX_DATES} dates of {pipeline}, or more: make several of it.",
        )


MAX_PLANNED = 1000
MAX_DOWNSTREAM = 100


def plan_of(services: ApiServices, body: BackfillPlanBody) -> BackfillPlanModel:
    """Plan a backfill and, on request, the backfills downstream.

    Raises ObjectNotFoundError; RefusedError: the backfill is not possible; DefinitionNotHereError: the
    definition of a downstream pipeline is not on this disk.
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
    for date in islice(dates_left(backfill), MAX_PLANNED):
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
        for name, record in active.items()
        for dataset in {*record.profile.datasets} - {accepted.dataset for accepted in record.profile.accepts}
    }
    sources = {name: _sources(record, publishers) for name, record in active.items()}
    waiting = downstream_of(backfill.pipeline, sources)
    if len(waiting) > MAX_DOWNSTREAM:
        raise RefusedError(
            "too_many_downstream",
            f"{len(waiting)} pipelines follow {backfill.pipeline}, directly or not, and at most "
            f"{MAX_DOWNSTREAM} are backfilled with it: create their backfills one by one.",
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
    row.total = count_dates(spec.schedule, request, MAX_DATES)
    refuse_too_many(record.name, row.total)
    _, row.runs = _dates(services, follower)
    return row


def _is_by_interval(services: ApiServices, name: DatasetName) -> bool:
    """True also for a dataset that was never published: its runs may still do so."""
    dataset = services.reader.dataset(name)
    return dataset is None or dataset.partition is Partitioning.INTERVAL
