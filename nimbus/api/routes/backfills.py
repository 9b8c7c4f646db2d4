"""Routes about backfills."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from nimbus.api import views
from nimbus.api.explain.pipeline import BackfillView, progress, why_backfill
from nimbus.api.models import CommandModel, Model, PageModel, of
from nimbus.api.paging import Paging
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import BackfillIdText, PipelineNameText, ReasonBody
from nimbus.api.routes.backfill_plan import (
    BackfillPlanBody,
    BackfillPlanModel,
    NewBackfillBody,
    plan_of,
    requested,
)
from nimbus.api.routes.pipelines import known_pipeline
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, CONDITIONAL, Submit, tag_with
from nimbus.domain.cluster.revisions import of_backfill
from nimbus.domain.cluster.schedulers import leader_report
from nimbus.domain.cluster.settings import why_held
from nimbus.domain.commands import ControlBackfill, CreateBackfill
from nimbus.domain.ids import BackfillId
from nimbus.domain.pipelines.backfill import Backfill, BackfillRequest, BackfillState
from nimbus.domain.runs.run import ListedRun


@of(BackfillRequest)
class BackfillRequestModel(Model):
    """The request of a backfill."""


@of(Backfill, leave_out=("schedule", "refused"))
class BackfillModel(Model):
    """A backfill and its progress."""

    under_way: int
    progress: str
    why: str | None = None
    """What it waits for; null in lists, and when it has ended."""
    runs: list[str] = Field(default_factory=list)
    """Its runs that have not ended; empty in lists."""


class BackfillsModel(PageModel):
    """Backfills, newest first."""

    backfills: list[BackfillModel]


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["backfills"], prefix=prefix)

    @routes.get("/backfills")
    def backfills(
        paging: Paging, pipeline: Annotated[PipelineNameText | None, Query()] = None
    ) -> BackfillsModel:
        """All kept backfills, newest first."""
        known = [
            backfill for backfill in services.reader.backfills() if pipeline in (None, backfill.pipeline)
        ]
        page = paging.page(
            known, lambda backfill: (backfill.created_at.isoformat(), backfill.id), newest_first=True
        )
        return BackfillsModel(backfills=[backfill_model(backfill) for backfill in page.rows], **page.rest)

    @routes.get("/backfills/{backfill}")
    def backfill(backfill: BackfillIdText, response: Response) -> BackfillModel:
        """One backfill, and what it waits for."""
        known = known_backfill(services, backfill)
        tag_with(response, of_backfill(known))
        return explained(services, known)

    @routes.post("/backfill-plan")
    def plan(body: BackfillPlanBody) -> BackfillPlanModel:
        """Plan a backfill and, on request, backfills of pipelines that wait for its runs. Creates nothing."""
        return plan_of(services, body)

    @routes.post("/backfills", **ACCEPTED)
    async def create(body: NewBackfillBody, submit: Submit) -> CommandModel:
        """Start runs for the dates of a range, a few at a time."""

        def command() -> CreateBackfill:
            record = known_pipeline(services, body.pipeline)
            request = requested(body, record, services.clock.now())
            return CreateBackfill(
                pipeline=record.name, backfill=body.id, request=request, digest=body.release
            )

        return await submit(command)

    @routes.post("/backfills/{backfill}/{verb}", **CONDITIONAL)
    async def steer(
        backfill: BackfillIdText,
        verb: Literal["pause", "resume", "cancel"],
        submit: Submit,
        body: ReasonBody | None = None,
    ) -> CommandModel:
        """Pause, resume or cancel. A paused backfill starts no runs. Cancel also stops its queued runs."""
        to = {
            "pause": BackfillState.PAUSED,
            "resume": BackfillState.ACTIVE,
            "cancel": BackfillState.CANCELLED,
        }
        reason = f"by {verb}" if body is None else body.reason
        return await submit(
            lambda: ControlBackfill(
                backfill=known_backfill(services, backfill).id, to=to[verb], reason=reason
            )
        )

    return routes


def known_backfill(services: ApiServices, backfill: BackfillId) -> Backfill:
    """A backfill by id. Raises ObjectNotFoundError if there is none."""
    record = services.reader.backfill(backfill)
    if record is None:
        raise ObjectNotFoundError(
            "unknown_backfill", f"there is no backfill {backfill}: see `nimbus backfill list`."
        )
    return record


def backfill_model(backfill: Backfill, **more: Any) -> BackfillModel:
    """A backfill as in lists, with `more` of its fields."""
    return BackfillModel.from_records(backfill, progress=progress(backfill), **more)


def explained(services: ApiServices, backfill: Backfill) -> BackfillModel:
    """A backfill, with its runs and what it waits for."""
    runs = _live(services, backfill)
    leader, schedulers = services.health.leader(), services.reader.schedulers()
    record = services.reader.pipeline(backfill.pipeline)
    view = BackfillView(
        record=record,
        held=why_held(record, services.reader.settings().holds),
        quarantined=views.quarantined(schedulers).get(backfill.pipeline),
        parked=leader_report(schedulers).parked,
        runs=runs,
        leader=None if leader is None else leader.id,
    )
    return backfill_model(backfill, why=why_backfill(backfill, view), runs=sorted(run.id for run in runs))


def _live(services: ApiServices, backfill: Backfill) -> list[ListedRun]:
    listed = services.reader.run_list().values()
    return [run for run in listed if run.backfill == backfill.id and not run.state.is_final]
