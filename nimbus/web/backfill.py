"""Pages about backfills: the list, the form, and one backfill with the state of each date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from nimbus.definition.backfill_dates import dates_left, interval_of_date, whole_range
from nimbus.domain.cluster.revisions import of_backfill
from nimbus.domain.errors import NimbusError
from nimbus.domain.pipelines.backfill import Backfill, BackfillState, Order
from nimbus.domain.pipelines.interval_index import Ended, IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.runs.run import ListedRun, RunState
from nimbus.web.pages import ListOrder, Pages, PipelineFilter, SortText, decision, none_if_empty
from nimbus.web.pipeline.foresight import foresee_backfill
from nimbus.web.pipeline.grid import calendar

_BACKFILLS, _DATES = 100, 200

_StateFilter = Annotated[BackfillState | None, BeforeValidator(none_if_empty)]
_After = Annotated[AwareDatetime | None, BeforeValidator(none_if_empty)]


_LONGEST_NAME = 40
_CHOICES = (
    ("reprocess", "for dates", {"missing": "without a run", "failed": "without a success", "all": "all"}),
    ("order", "first the", {"oldest": "oldest", "newest": "newest"}),
    ("on_failure", "after a failure", {"pause": "pause", "continue": "go on"}),
)
"""Fields of the form with their values, each with its label."""


class AskedBackfill(BaseModel):
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
        known = [
            backfill
            for backfill in services.reader.backfills()
            if pipeline in (None, backfill.pipeline) and state in (None, backfill.state)
        ]
        order: ListOrder[Backfill] = ListOrder.of(
            sort,
            "-created",
            created=lambda backfill: (backfill.created_at.isoformat(), backfill.id),
            state=lambda backfill: (backfill.state.value, backfill.id),
            pipeline=lambda backfill: (backfill.pipeline, backfill.id),
            failed=lambda backfill: (backfill.failed, backfill.id),
        )
        page = PageQuery(_BACKFILLS, cursor).page(known, order.key, newest_first=order.newest_first)
        shown = {
            "backfills": [backfill_model(backfill) for backfill in page.rows],
            "given": {"pipeline": pipeline, "state": state, "sort": sort},
            "sort": order.sort,
            "states": list(BackfillState),
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
        all_shown = [
            shown_date(known, date, interval, index, runs)
            for date, interval in islice(dates_of(known, after), _DATES + 1)
        ]
        dates = all_shown[:_DATES]
        zone = UTC if known.schedule is None else ZoneInfo(known.schedule.timezone)
        shown = {
            **decision(services, command),
            "backfill": explained(services, known),
            "revision": of_backfill(known),
            "foreseen": foresee_backfill(known, runs.values()),
            "dates": dates,
            "calendar": calendar([(date.date, date.state) for date in dates], zone) if dates else None,
            "zone": zone,
            "is_later_page": after is not None,
            "later": dates[-1].date.isoformat() if len(all_shown) > _DATES else None,
        }
        return pages.answer(request, "backfill.html", shown, about=known.pipeline)

    @routes.get("/pipelines/{name}/backfill")
    def new(request: Request, name: PipelineNameText, asked: Annotated[AskedBackfill, Query()]) -> Response:
        record, plan, refused = known_pipeline(services, name), None, ""
        given = asked.model_dump(by_alias=True)
        if asked.first or asked.last:
            parallel = int(asked.max_parallel) if asked.max_parallel.isdecimal() else asked.max_parallel
            wanted = {"pipeline": name, **given, "every": asked.every or None, "max_parallel": parallel}
            try:
                plan = plan_of(services, BackfillPlanBody.model_validate(wanted))
            except ValidationError as exc:
                refused = "; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in exc.errors())
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


def _free_id(services: ApiServices, name: str, asked: AskedBackfill) -> str:
    """An id that no backfill has. Asking twice for the same preview creates one backfill."""
    days = "-".join(sub(r"\D", "", bound)[:8] for bound in (asked.first, asked.last))
    base = f"{name[:_LONGEST_NAME]}-{days}"
    known = {backfill.id for backfill in services.reader.backfills()}
    return next(free for n in count(1) if (free := f"{base}-{n}" if n > 1 else base) not in known)


_ENDED = {RunState.SUCCEEDED: "succeeded", RunState.FAILED: "failed", RunState.STOPPED: "was stopped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDate:
    """One date of a backfill."""

    date: datetime
    interval: DataInterval | None
    state: str
    """State of its run; `waiting`: it will get a run; `skipped`: it gets none; `not_run`: not known."""
    run: str | None = None
    """Its run, or the run because of which it gets none."""
    said: str = ""


def dates_of(backfill: Backfill, after: datetime | None) -> Iterator[tuple[datetime, DataInterval | None]]:
    """The dates of the range after `after`, in the order of the backfill, each with its data interval."""
    if backfill.request.as_one_run:
        span = whole_range(backfill)
        if span is not None and after is None:
            yield span.end, span
        return
    if after is not None and not backfill.request.first <= after <= backfill.request.last:
        return  # no page has a link to this
    for date in dates_left(replace(backfill, position=after)):
        yield date, interval_of_date(backfill, date)


def shown_date(
    backfill: Backfill,
    date: datetime,
    interval: DataInterval | None,
    index: IntervalIndex | None,
    runs: Mapping[str, ListedRun],
) -> ShownDate:
    """The state of one date, or its expected state if it were started now. `runs`: by id."""
    run = backfill.run_id(date)
    if (listed := runs.get(run)) is not None:
        return ShownDate(date=date, interval=interval, state=listed.state.value, run=run)
    last = None if index is None or interval is None else index.last(interval)
    if last is not None and last.run == run:
        return ShownDate(date=date, interval=interval, state=last.outcome.value, run=run)
    is_past, scheduled = _is_past(backfill, date), runs.get(backfill.scheduled_run_id(date))
    if scheduled is not None and not scheduled.state.is_final and not backfill.request.as_one_run:
        said = f"{'got' if is_past else 'gets'} no run: that of the schedule has not ended"
        return ShownDate(date=date, interval=interval, state="skipped", run=scheduled.id, said=said)
    state, other, said = (_past if is_past else _ahead)(backfill, last)
    return ShownDate(date=date, interval=interval, state=state, run=other, said=said)


def _is_past(backfill: Backfill, date: datetime) -> bool:
    """True when the backfill is past a date."""
    at, request = backfill.position, backfill.request
    if at is None or request.as_one_run:
        return at is not None
    return date >= at if request.order is Order.NEWEST else date <= at


def _past(backfill: Backfill, last: Ended | None) -> tuple[str, str | None, str]:
    if last is None:
        return "not_run", None, "it started no run, or what became of it is no longer known"
    if last.at < backfill.created_at:
        return "skipped", last.run, f"skipped: its last run {_ENDED[last.outcome]} before"
    said = (
        "which run it was is no longer known"
        if last.run is None
        else "its last run was not started by this backfill"
    )
    return last.outcome.value, last.run, said


def _ahead(backfill: Backfill, last: Ended | None) -> tuple[str, str | None, str]:
    other = None if last is None else last.run
    had = "" if last is None else f": its last run {_ENDED[last.outcome]}"
    if backfill.state is BackfillState.CANCELLED:
        return "not_run", other, "the backfill was cancelled before it"
    if backfill.request.as_one_run or backfill.needs(last):
        return "waiting", other, f"gets a run{had}"
    return "skipped", other, f"gets no run{had}"
