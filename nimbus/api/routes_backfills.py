"""Routes about backfills."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator, Field, StrictBool, StrictInt, WithJsonSchema

from nimbus.api import views
from nimbus.api.explain_backfill import BackfillView, progress, why_backfill
from nimbus.api.models import CommandModel
from nimbus.api.models_backfills import BackfillModel, BackfillPlanModel, BackfillsModel
from nimbus.api.models_intervals import IntervalModel, IntervalState
from nimbus.api.paging import Paging
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import (
    BackfillIdText,
    BoundText,
    DigestText,
    PipelineNameText,
    ReasonBody,
    RequestBody,
    StorableParameters,
    whole,
)
from nimbus.api.routes_pipelines import known_pipeline
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Wait, submit
from nimbus.config.values import parse_duration
from nimbus.definition.backfill_dates import count_dates, dates_left, interval_of_date
from nimbus.definition.intervals import bound_of
from nimbus.domain.backfill import (
    MOST_DATES,
    MOST_PARALLEL,
    Backfill,
    BackfillRequest,
    BackfillState,
    OnFailure,
    Order,
    Reprocess,
)
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import CreateBackfill, SteerBackfill
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import BackfillId, PipelineName, ReleaseDigest
from nimbus.domain.run import ListedRun
from nimbus.domain.schedulers import leader_report

MOST_PLANNED = 1000
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
    max_parallel: Annotated[StrictInt, BeforeValidator(whole)] = Field(1, ge=1, le=MOST_PARALLEL)
    reprocess: Reprocess = Reprocess.MISSING
    order: Order = Order.OLDEST
    on_failure: OnFailure = OnFailure.PAUSE
    as_one_run: StrictBool = False
    parameters: StorableParameters = Field(default_factory=dict)


class NewBackfillBody(BackfillBody):
    """A backfill with its id."""

    id: BackfillIdText = Field(description="Your own: asking twice with it creates one backfill.")
    release: DigestText | None = Field(None, description="Of all its runs. Without it: the active one.")


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["backfills"], prefix=prefix)

    @routes.get("/backfills")
    def backfills(
        paging: Paging, pipeline: Annotated[PipelineNameText | None, Query()] = None
    ) -> BackfillsModel:
        """All that are kept, newest first."""
        found = [one for one in services.reader.backfills() if pipeline in (None, one.pipeline)]
        page = paging.page(found, lambda one: (one.created_at.isoformat(), one.id), newest_first=True)
        return BackfillsModel(
            backfills=[_shown(one) for one in page.rows],
            next_cursor=page.next_cursor,
            at_least=page.at_least,
        )

    @routes.get("/backfills/{backfill}")
    def backfill(backfill: BackfillIdText) -> BackfillModel:
        """One backfill, and what it waits for."""
        return explained(services, _known(services, backfill))

    @routes.post("/backfill-plan")
    def plan(body: BackfillBody) -> BackfillPlanModel:
        """What a backfill would do; creates nothing."""
        return _plan(services, body)

    @routes.post("/backfills", status_code=202, responses=ACCEPTED_RESPONSES)
    async def create(body: NewBackfillBody, response: Response, wait: Wait = 0) -> CommandModel:
        """Start runs for the dates of a range, a few at a time."""

        def command() -> CreateBackfill:
            record = known_pipeline(services, body.pipeline)
            digest = None if body.release is None else ReleaseDigest(body.release)
            request = _request(body, record, services.clock.now())
            return CreateBackfill(
                pipeline=record.name, backfill=BackfillId(body.id), request=request, digest=digest
            )

        return await submit(services, command, response, wait_s=wait)

    @routes.post("/backfills/{backfill}/{verb}", status_code=202, responses=ACCEPTED_RESPONSES)
    async def steer(
        backfill: BackfillIdText,
        verb: Literal["pause", "resume", "cancel"],
        response: Response,
        body: ReasonBody | None = None,
        wait: Wait = 0,
    ) -> CommandModel:
        """Pause: it starts nothing more. Cancel: nor ever; its queued runs are stopped."""
        to = {
            "pause": BackfillState.PAUSED,
            "resume": BackfillState.ACTIVE,
            "cancel": BackfillState.CANCELLED,
        }
        reason = f"by {verb}" if body is None else body.reason

        def command() -> SteerBackfill:
            return SteerBackfill(backfill=_known(services, backfill).id, to=to[verb], reason=reason)

        return await submit(services, command, response, wait_s=wait)

    return routes


def _known(services: ApiServices, backfill: str) -> Backfill:
    found = services.reader.backfill(BackfillId(backfill))
    if found is None:
        raise NotFoundError(
            "unknown_backfill", f"there is no backfill {backfill}: see `nimbus backfill list`."
        )
    return found


def _request(body: BackfillBody, record: PipelineRecord, now: datetime) -> BackfillRequest:
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
    total = count_dates(schedule, request, MOST_DATES)
    if total < 1:
        raise RefusedError(
            "no_dates", f"pipeline {record.name} has no past date from {body.first} to {body.last}."
        )
    if total == MOST_DATES:
        raise RefusedError("too_many_dates", f"the range has {MOST_DATES} dates or more: make several of it.")
    return replace(request, total=total)


def _plan(services: ApiServices, body: BackfillBody) -> BackfillPlanModel:
    record = known_pipeline(services, body.pipeline)
    request = _request(body, record, services.clock.now())
    index = services.reader.intervals(PipelineName(body.pipeline))
    wanted = Backfill(
        id=BackfillId("plan"),
        pipeline=record.name,
        release=record.release or record.published,
        schedule=record.profile.schedule,
        request=request,
        created_at=services.clock.now(),
    )
    dates, runs = [], 0
    for date in islice(dates_left(wanted), MOST_PLANNED):
        interval = interval_of_date(wanted, date)
        last = None if index is None or interval is None else index.last(interval)
        runs += wanted.needs(last)
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
    return BackfillPlanModel(
        pipeline=record.name, total=request.total or 0, runs=1 if body.as_one_run else runs, dates=dates
    )


def _state(known: bool) -> IntervalState:
    return IntervalState.MISSING if known else IntervalState.UNKNOWN


def _shown(backfill: Backfill, **more: Any) -> BackfillModel:
    names = set(BackfillModel.model_fields) - {"progress", "why", "runs"}
    fields = {name: getattr(backfill, name) for name in names}
    return BackfillModel.model_validate({**fields, "progress": progress(backfill), **more})


def explained(services: ApiServices, backfill: Backfill) -> BackfillModel:
    """A backfill, with its runs and what it waits for."""
    runs = _live(services, backfill)
    leader, schedulers = services.health.leader(), services.reader.schedulers()
    view = BackfillView(
        record=services.reader.pipeline(backfill.pipeline),
        quarantined=views.quarantined(schedulers).get(backfill.pipeline),
        set_aside=leader_report(schedulers).set_aside,
        runs=runs,
        leader=None if leader is None else leader.id,
    )
    return _shown(backfill, why=why_backfill(backfill, view), runs=sorted(run.id for run in runs))


def _live(services: ApiServices, backfill: Backfill) -> list[ListedRun]:
    listed = services.reader.run_list().values()
    return [one for one in listed if one.backfill == backfill.id and not one.state.is_final]
