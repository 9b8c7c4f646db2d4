"""The page about commands: waiting and decided ones, with requester, reason and outcome."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.requests import CommandIdText
from nimbus.api.routes.commands import (
    CommandFilter,
    KindText,
    SubmitterText,
    list_commands,
    pending_commands,
)
from nimbus.api.services import ApiServices
from nimbus.domain.commands import COMMAND_KINDS
from nimbus.web.pages import Pages, PipelineFilter, none_if_empty

_DECIDED, _PENDING = 100, 100
"""Limits of one page."""


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/commands")
    def commands(
        request: Request,
        pipeline: PipelineFilter = None,
        kind: Annotated[KindText | None, BeforeValidator(none_if_empty)] = None,
        by: Annotated[SubmitterText | None, BeforeValidator(none_if_empty)] = None,
        outcome: Annotated[
            Literal["refused"] | None, BeforeValidator(none_if_empty), Query(description="Only refusals.")
        ] = None,
        of: Annotated[CommandIdText | None, BeforeValidator(none_if_empty), Query(alias="command")] = None,
        cursor: CursorText = None,
    ) -> Response:
        wanted = CommandFilter(
            pipeline=pipeline, kind=kind, submitted_by=by, of=of, refused=outcome == "refused"
        )
        waiting = sorted(filter(wanted.fits, pending_commands(services)), key=lambda row: row.at)
        found = list_commands(services, wanted, PageQuery(_DECIDED, cursor))
        given = {"pipeline": pipeline, "kind": kind, "by": by, "outcome": outcome, "command": of}
        shown = {
            "waiting": list(islice(waiting, _PENDING)),
            "more_waiting": max(0, len(waiting) - _PENDING),
            "commands": found.commands,
            "history_complete": found.history_complete,
            "given": given,
            "is_filtered": any(given.values()),
            "kinds": COMMAND_KINDS,
            "is_later_page": cursor is not None,
            "older": found.next_cursor,
        }
        return pages.answer(request, "commands.html", shown)

    return routes
