"""Pages about backfills: the list, and one backfill with the state of each date."""

from __future__ import annotations

from datetime import UTC
from itertools import count, islice
from re import sub
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.requests import BackfillIdText, CommandIdText, PipelineNameText
from nimbus.api.routes.backfill_plan import BackfillPlanBody, plan_of
from nimbus.api.routes.backfills import backfill_model, explained, known_backfill
from nimbus.api.routes.pipelines import known_pipeline
from nimbus.api.services import ApiServices
from nimbus.domain.backfill import Backfill, BackfillState
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import CommandId
from nimbus.domain.revisions import of_backfill
from nimbus.web.backfill.dates import calendar, dates_of, shown_date
from nimbus.web.pages import ListOrder, Pages, PipelineFilter, SortText, none_if_empty
from nimbus.web.pipeline.foresight import foresee_backfill

_BACKFILLS, _DATES = 100, 200
"""Limits of one page."""

_StateFilter = Annotated[BackfillState | None, BeforeValidator(none_if_empty)]
_After = Annotated[AwareDatetime | None, BeforeValidator(none_if_empty)]


_LONGEST_NAME = 40
_CHOICES = (
    ("reprocess", "for dates", {"missing": "without a run", "failed": "without a success", "all": "all"}),
    ("order", "first the", {"oldest": "oldest", "newest": "newest"}),
    ("on_failure", "after a failure", {"pause": "pause", "continue": "go on"}),
)
"""Fields of the form with their values, each with its label."""


class Asked(BaseModel):
    """A backfill to preview. Its fields are checked as those of the API."""

    first: str = Field("", alias="from", max_length=40)
    last: str = Field("", alias="to", max_length=40)
    every: str = Field("", max_length=9)
    reprocess: str = Field("missing", max_length=9)
    order: str = Field("oldest", max_length=9)
    on_failure: str = Field("pause", max_length=9)
    max_parallel: str = Field("1", max_length=4)


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

    @routes.get("/pipelines/{name}/backfill")
    def new(request: Request, name: PipelineNameText, asked: Annotated[Asked, Query()]) -> Response:
        record, plan, refused = known_pipeline(services, name), None, ""
        given = asked.model_dump(by_alias=True)
        if asked.first or asked.last:
            parallel = int(asked.max_parallel) if asked.max_parallel.isdecimal() else asked.max_parallel
            wanted = {"pipeline": name, **given, "every": asked.every or None, "max_parallel": parallel}
            try:
                plan = plan_of(services, BackfillPlanBody.model_validate(wanted))
            except ValidationError as exc:
                refused = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in exc.errors())
            except NimbusError as exc:
                refused = str(exc)
        schedule = record.profile.schedule
        shown = {
            "name": name,
            "given": given,
            "choices": _CHOICES,
            "is_scheduled": schedule is not None,
            "zone": "UTC" if schedule is None else schedule.timezone,
            "plan": plan,
            "refused": refused,
            "id": _free_id(services, name, asked),
            "most": _DATES,
        }
        return pages.answer(request, "backfill_new.html", shown, about=name)

    return routes


def _free_id(services: ApiServices, name: str, asked: Asked) -> str:
    """An id that no backfill has. Asking twice for the same preview creates one backfill."""
    days = "-".join(sub(r"\D", "", bound)[:8] for bound in (asked.first, asked.last))
    base = f"{name[:_LONGEST_NAME]}-{days}"
    known = {one.id for one in services.reader.backfills()}
    return next(free for n in count(1) if (free := f"{base}-{n}" if n > 1 else base) not in known)
