"""Routes about the catalog."""

from __future__ import annotations

from typing import Annotated

import structlog
from fastapi import APIRouter, Query, Response

from nimbus.api import views
from nimbus.api.entity_tags import tag_with
from nimbus.api.models import CommandModel, PipelineModel, PipelinesModel
from nimbus.api.paging import OwnerText, Paging, TagText
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import ActivateBody, PipelineNameText, ReasonBody, ReleaseBody
from nimbus.api.services import ApiServices
from nimbus.api.submitting import CONDITIONAL, Submit
from nimbus.domain.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.commands import (
    ActivatePipeline,
    PausePipeline,
    PublishRelease,
    RemovePipeline,
    RewindSchedule,
)
from nimbus.domain.errors import NimbusError
from nimbus.domain.filters import Filter
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.revisions import of_pipeline

_log = structlog.stdlib.get_logger(__name__)


def known_pipeline(services: ApiServices, name: str) -> PipelineRecord:
    """Find a pipeline.

    Raises:
        NotFoundError: the pipeline is not in the catalog.
    """
    record = services.reader.pipeline(PipelineName(name))
    if record is None:
        raise NotFoundError(
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
        found = (one for one in services.reader.pipelines() if only.takes_pipeline(one))
        page = paging.page((one for one in found if state in (None, one.state)), lambda one: (one.name,))
        return PipelinesModel(
            pipelines=[views.pipeline_summary(record, bad) for record in page.rows],
            next_cursor=page.next_cursor,
            at_least=page.at_least,
        )

    @routes.get("/{name}")
    def pipeline(name: PipelineNameText, response: Response) -> PipelineModel:
        """One pipeline with its definition."""
        record = known_pipeline(services, name)
        tag_with(response, of_pipeline(record))
        bad = views.quarantined(services.reader.schedulers())
        return views.pipeline_model(record, pipeline_definition(services, record), bad)

    @routes.post("/{name}/releases", **CONDITIONAL)
    async def publish(name: PipelineNameText, body: ReleaseBody, submit: Submit) -> CommandModel:
        """Add a release, whose files are in storage already, to the catalog; with `activate`, activate it."""
        return await submit(
            PublishRelease(
                pipeline=PipelineName(name), digest=ReleaseDigest(body.digest), activate=body.activate
            )
        )

    @routes.post("/{name}/activate", **CONDITIONAL)
    async def activate(
        name: PipelineNameText, submit: Submit, body: ActivateBody | None = None
    ) -> CommandModel:
        """Choose the active release, and let the schedule fire."""
        asked = body or ActivateBody(digest=None, reason="", drop_due=False)
        digest = None if asked.digest is None else ReleaseDigest(asked.digest)

        def command() -> ActivatePipeline:
            known = known_pipeline(services, name).name
            return ActivatePipeline(
                pipeline=known, digest=digest, reason=asked.reason, drop_due=asked.drop_due
            )

        return await submit(command)

    @routes.post("/{name}/pause", **CONDITIONAL)
    async def pause(name: PipelineNameText, submit: Submit) -> CommandModel:
        """Stop the schedule; runs under way go on."""
        return await submit(lambda: PausePipeline(pipeline=known_pipeline(services, name).name))

    @routes.delete("/{name}", **CONDITIONAL)
    async def remove(name: PipelineNameText, submit: Submit) -> CommandModel:
        """Remove a pipeline from the catalog. Refused while it has live runs."""
        return await submit(lambda: RemovePipeline(pipeline=known_pipeline(services, name).name))

    _add_rewind(routes, services)
    return routes


def _add_rewind(routes: APIRouter, services: ApiServices) -> None:
    @routes.post("/{name}/rewind", **CONDITIONAL)
    async def rewind(name: PipelineNameText, body: ReasonBody, submit: Submit) -> CommandModel:
        """Let the schedule go on from now, if its position is ahead because a leader's clock was."""
        return await submit(
            lambda: RewindSchedule(pipeline=known_pipeline(services, name).name, reason=body.reason)
        )
