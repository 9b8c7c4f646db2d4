"""Pages about backfills: the list, and one backfill with the state of each date."""

from __future__ import annotations

from datetime import UTC
from itertools import islice
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter
from pydantic import AwareDatetime, BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.requests import BackfillIdText, CommandIdText
from nimbus.api.routes_backfills import backfill_model, explained, known_backfill
from nimbus.api.services import ApiServices
from nimbus.domain.backfill import Backfill, BackfillState
from nimbus.domain.ids import CommandId
from nimbus.domain.revisions import of_backfill
from nimbus.web.backfill.dates import calendar, dates_of, shown_date
from nimbus.web.pages import ListOrder, Pages, PipelineFilter, SortText, none_if_empty
from nimbus.web.pipeline.foresight import foresee_backfill

_BACKFILLS, _DATES = 100, 200
"""Limits of one page."""

_StateFilter = Annotated[BackfillState | None, BeforeValidator(none_if_empty)]
_After = Annotated[AwareDatetime | None, BeforeValidator(none_if_empty)]


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/backfills")
    def backfills(
        request: Request,
        pipeline: PipelineFilter = None,
        state: _StateFilter = None,
        sort: SortText = None,
        cursor: CursorText = None,
    ) -> Response:
        found = [
            one
            for one in services.reader.backfills()
            if pipeline in (None, one.pipeline) and state in (None, one.state)
        ]
        order: ListOrder[Backfill] = ListOrder.of(
            sort,
            "-created",
            created=lambda one: (one.created_at.isoformat(), one.id),
            state=lambda one: (one.state.value, one.id),
            pipeline=lambda one: (one.pipeline, one.id),
            failed=lambda one: (one.failed, one.id),
        )
        page = PageQuery(_BACKFILLS, cursor).page(found, order.key, newest_first=order.newest_first)
        shown = {
            "backfills": [backfill_model(one) for one in page.rows],
            "given": {"pipeline": pipeline, "state": state, "sort": sort},
            "sort": order.sort,
            "states": list(BackfillState),
            "is_later_page": cursor is not None,
            "older": page.next_cursor,
        }
        return pages.answer(request, "backfills.html", shown)

    @routes.get("/backfills/{backfill}")
    def backfill(
        request: Request,
        backfill: BackfillIdText,
        after: _After = None,
        command: CommandIdText | None = None,
    ) -> Response:
        known = known_backfill(services, backfill)
        index, runs = services.reader.intervals(known.pipeline), services.reader.run_list()
        found = [
            shown_date(known, date, interval, index, runs)
            for date, interval in islice(dates_of(known, after), _DATES + 1)
        ]
        dates = found[:_DATES]
        zone = UTC if known.schedule is None else ZoneInfo(known.schedule.timezone)
        shown = {
            "command": command,
            "decided": None if command is None else services.commands.outcome(CommandId(command)),
            "backfill": explained(services, known),
            "revision": of_backfill(known),
            "foreseen": foresee_backfill(known, runs.values()),
            "dates": dates,
            "calendar": calendar(dates, zone) if dates else None,
            "zone": zone,
            "is_later_page": after is not None,
            "later": dates[-1].date.isoformat() if len(found) > _DATES else None,
        }
        return pages.answer(request, "backfill.html", shown, about=known.pipeline)

    return routes
