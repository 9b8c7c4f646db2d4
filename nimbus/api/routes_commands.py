"""The list of commands: those that wait, what became of others lately, and refusals, which are kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import structlog
from fastapi import APIRouter, Query

from nimbus.api.models import Model, PageModel
from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.requests import PipelineNameText
from nimbus.api.services import ApiServices
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import PipelineName

MAX_COMMANDS = 500
"""In one answer."""
MAX_REFUSALS = 25_000
"""That are looked at for a page after the first."""
_log = structlog.get_logger(__name__)


class ListedCommandModel(Model):
    """One line of the list of commands."""

    command_id: str
    status: str
    """`pending`, `accepted` or `refused`."""
    at: datetime
    """When it was decided; of one that is pending, when it was asked for."""
    kind: str
    """Such as `start_run`; empty: an earlier release decided it."""
    pipeline: str | None
    run_id: str | None
    """Of a start; of one that is pending, the run that it is about."""
    submitted_by: str
    code: str
    """`ok`, or that of the refusal; empty while it is pending."""
    message: str


class CommandsModel(PageModel):
    """Commands, newest first."""

    commands: list[ListedCommandModel]
    history_complete: bool
    """False: history did not answer, and old refusals may be missing."""


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["cluster"], prefix=f"{prefix}/commands")

    @routes.get("")
    def commands(
        refused: Annotated[bool, Query(description="Refusals alone.")] = False,
        pipeline: PipelineNameText | None = None,
        limit: Annotated[int, Query(ge=1, le=MAX_COMMANDS)] = 50,
        cursor: CursorText = None,
    ) -> CommandsModel:
        """Commands, newest first: all of about the last hour, and refusals as long as history is kept."""
        about = None if pipeline is None else PipelineName(pipeline)
        outcomes = services.commands.outcomes()  # before history: a refusal that moves meanwhile is in both
        paging = PageQuery(limit, cursor)
        past, complete = _past(services, about, limit + 1 if paging.after is None else MAX_REFUSALS)
        known = {(one.decided_at, one.command): one for one in (*past, *outcomes)}
        rows = [_decided(one) for one in known.values() if not (refused and one.accepted)]
        rows += [] if refused else _pending(services)
        found = [row for row in rows if about in (None, row.pipeline)]
        page = paging.page(found, lambda row: (row.at.isoformat(), row.command_id), newest_first=True)
        return CommandsModel(
            commands=page.rows,
            history_complete=complete,
            next_cursor=page.next_cursor,
            at_least=page.at_least,
        )

    return routes


def _past(
    services: ApiServices, pipeline: PipelineName | None, limit: int
) -> tuple[tuple[CommandOutcome, ...], bool]:
    try:
        return services.history.refusals(pipeline, limit), True
    except NimbusError as exc:
        if not exc.retryable:
            raise
        _log.warning("history_unavailable", error=str(exc))
        return (), False


def _decided(outcome: CommandOutcome) -> ListedCommandModel:
    return ListedCommandModel(
        command_id=outcome.command,
        status="accepted" if outcome.accepted else "refused",
        at=outcome.decided_at,
        kind=outcome.kind,
        pipeline=outcome.pipeline,
        run_id=outcome.run_id,
        submitted_by=outcome.submitted_by,
        code=outcome.code,
        message=outcome.message,
    )


def _pending(services: ApiServices) -> Iterator[ListedCommandModel]:
    listed = services.reader.run_list()
    for queued in services.reader.commands():
        run_id = getattr(queued.command, "run_id", None)
        run = listed.get(run_id or "")
        pipeline = getattr(queued.command, "pipeline", None)
        yield ListedCommandModel(
            command_id=queued.id,
            status="pending",
            at=queued.submitted_at,
            kind=queued.command.type,
            pipeline=run.pipeline if pipeline is None and run is not None else pipeline,
            run_id=run_id,
            submitted_by=queued.submitted_by,
            code="",
            message="",
        )
