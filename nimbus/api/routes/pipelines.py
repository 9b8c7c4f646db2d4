"""Routes about the catalog, and the calendar of a pipeline: the state of each data interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo

import structlog
from fastapi import APIRouter, Query, Response
from pydantic import Field, StrictBool, StringConstraints

from nimbus.api import views
from nimbus.api.models import CommandModel, Model, PipelineModel, PipelinesModel
from nimbus.api.paging import OwnerText, Paging, TagText
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import BoundText, DigestText, PipelineNameText, ReasonBody, RequestBody
from nimbus.api.runs.lookup import live_runs
from nimbus.api.services import ApiServices
from nimbus.api.submitting import CONDITIONAL, Submit, tag_with
from nimbus.definition.intervals import bound_of, dates_between, intervals_of, last_dates
from nimbus.domain.cluster.revisions import of_pipeline
from nimbus.domain.commands import (
    ActivatePipeline,
    PausePipeline,
    PublishRelease,
    RemovePipeline,
    RewindSchedule,
)
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.pipelines.filters import Filter
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec, Schedule


class ReleaseBody(RequestBody):
    """Add a release whose files are already in storage to the catalog."""

    digest: DigestText = Field(description="SHA-256 of the release's manifest.")
    activate: StrictBool = Field(False, description="Make it the active release, too.")


class ActivateBody(RequestBody):
    """Choose the active release."""

    digest: DigestText | None = Field(None, description="Without it: the newest published release.")
    reason: Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)] = Field(
        "", description="Reason, for the list of commands; empty: that of `X-Nimbus-Reason`."
    )
    drop_due: StrictBool = Field(False, description="With `start: data`: what is due until now is dropped.")


class IntervalState(StrEnum):
    """The state of a data interval: how its last run ended, or that a run is under way or missing."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    RUNNING = "running"
    """A run of it has not ended, whatever the results of earlier ones."""
    MISSING = "missing"
    UNKNOWN = "unknown"
    """It is before the beginning of the index."""


class IntervalModel(Model):
    """One data interval."""

    start: datetime
    end: datetime
    """For a scheduled run, its logical date."""
    state: IntervalState
    run: str | None = None
    """Null without a run, and of an old interval that the index has joined with those around it."""
    ended_at: datetime | None = None
    """Of joined intervals, the last end of a run of any of them."""


class IntervalsModel(Model):
    """Data intervals of a pipeline, oldest first."""

    pipeline: str
    timezone: str
    begins: datetime | None
    """An interval that ends up to here and is not in the index is unknown; null: there is no index yet."""
    intervals: list[IntervalModel]
    """Intervals of the schedule's fire times, and other intervals with runs."""
    next_from: datetime | None
    """Where the next page begins; null: this is the last one."""


_log = structlog.stdlib.get_logger(__name__)


def known_pipeline(services: ApiServices, name: str) -> PipelineRecord:
    """Find a pipeline. Raises ObjectNotFoundError: the pipeline is not in the catalog."""
    record = services.reader.pipeline(PipelineName(name))
    if record is None:
        raise ObjectNotFoundError(
            "unknown_pipeline",
            f"pipeline {name} is not in the catalog: see `nimbus pipeline list`, or publish it first "
            "(`nimbus pipeline publish`).",
        )
    return record


def pipeline_definition(services: ApiServices, record: PipelineRecord) -> PipelineSpec | None:
    """The definition of the active or else the newest release; None: it is not on this disk."""
    try:
        return services.definitions.definition(ReleaseOf(record.name, record.release or record.published))
    except NimbusError as exc:
        _log.info("definition_not_here", pipeline=record.name, error=str(exc))
        return None


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["pipelines"], prefix=f"{prefix}/pipelines")

    @routes.get("")
    def pipelines(
        paging: Paging,
        tag: Annotated[TagText | None, Query(description="Only with this tag.")] = None,
        owner: Annotated[OwnerText | None, Query(description="Only of this owner; `-`: of none.")] = None,
        state: PipelineState | None = None,
    ) -> PipelinesModel:
        """The catalog, by name."""
        bad = views.quarantined(services.reader.schedulers())
        only = Filter(tag=tag, owner=owner)
        records = (record for record in services.reader.pipelines() if only.takes_pipeline(record))
        page = paging.page(
            (record for record in records if state in (None, record.state)), lambda record: (record.name,)
        )
        return PipelinesModel(
            pipelines=[views.pipeline_summary(record, bad) for record in page.rows], **page.rest
        )

    @routes.get("/{name}")
    def pipeline(name: PipelineNameText, response: Response) -> PipelineModel:
        """One pipeline with its definition."""
        record = known_pipeline(services, name)
        tag_with(response, of_pipeline(record))
        bad = views.quarantined(services.reader.schedulers()).get(name)
        return views.pipeline_model(record, pipeline_definition(services, record), bad)

    @routes.post("/{name}/releases", **CONDITIONAL)
    async def publish(name: PipelineNameText, body: ReleaseBody, submit: Submit) -> CommandModel:
        """Add a release, whose files are in storage already, to the catalog; with `activate`, activate it."""
        return await submit(PublishRelease(pipeline=name, digest=body.digest, activate=body.activate))

    @routes.post("/{name}/activate", **CONDITIONAL)
    async def activate(
        name: PipelineNameText, submit: Submit, body: ActivateBody | None = None
    ) -> CommandModel:
        """Choose the active release, and let the schedule fire."""
        asked = body or ActivateBody(digest=None, reason="", drop_due=False)
        return await submit(
            lambda: ActivatePipeline(pipeline=known_pipeline(services, name).name, **asked.model_dump())
        )

    @routes.post("/{name}/pause", **CONDITIONAL)
    async def pause(name: PipelineNameText, submit: Submit) -> CommandModel:
        """Stop the schedule; runs under way go on."""
        return await submit(lambda: PausePipeline(pipeline=known_pipeline(services, name).name))

    @routes.delete("/{name}", **CONDITIONAL)
    async def remove(name: PipelineNameText, submit: Submit) -> CommandModel:
        """Remove a pipeline from the catalog. Refused while it has live runs."""
        return await submit(lambda: RemovePipeline(pipeline=known_pipeline(services, name).name))

    _add_rewind(routes, services)
    _add_intervals(routes, services)
    return routes


def _add_rewind(routes: APIRouter, services: ApiServices) -> None:
    @routes.post("/{name}/rewind", **CONDITIONAL)
    async def rewind(name: PipelineNameText, body: ReasonBody, submit: Submit) -> CommandModel:
        """Let the schedule go on from now, if its position is ahead because a leader's clock was."""
        return await submit(
            lambda: RewindSchedule(pipeline=known_pipeline(services, name).name, reason=body.reason)
        )


MAX_DATES = 1000
USUAL_DATES = 30
_LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)


def _add_intervals(routes: APIRouter, services: ApiServices) -> None:
    @routes.get("/{name}/intervals")
    def intervals(
        name: PipelineNameText,
        first: Annotated[BoundText | None, Query(alias="from")] = None,
        last: Annotated[BoundText | None, Query(alias="to")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_DATES)] = MAX_DATES,
    ) -> IntervalsModel:
        """The state of each date from `from` to `to`, by default now; without `from`, of the last 30."""
        return _calendar(services, known_pipeline(services, name), first, last, limit)


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
    others = (
        interval
        for interval in (*running, *_listed(index, DataInterval(start=begins, end=ends)))
        if begins <= interval.end <= ends
    )
    wanted = sorted(dict.fromkeys((*dates, *others)), key=lambda date: (date.end, date.start))
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
    return [] if index is None else [row.interval for row in index.overlapping(span)]


def _running(services: ApiServices, pipeline: PipelineName) -> dict[DataInterval, RunId]:
    """Intervals of live runs."""
    return {run.data_interval: run.id for run in live_runs(services, pipeline) if run.data_interval}


def _shown(
    interval: DataInterval, index: IntervalIndex | None, running: dict[DataInterval, RunId]
) -> IntervalModel:
    start, end = interval.start, interval.end
    for other, run in running.items():
        if other.start <= start and other.end >= end:
            return IntervalModel(start=start, end=end, state=IntervalState.RUNNING, run=run)
    row = None if index is None else index.last(interval)
    if row is not None:
        state = IntervalState(row.outcome.value)
        return IntervalModel(start=start, end=end, state=state, run=row.run, ended_at=row.at)
    known = index is not None and index.knows(interval)
    return IntervalModel(
        start=start, end=end, state=IntervalState.MISSING if known else IntervalState.UNKNOWN
    )
