"""Pages about the catalog: the list of pipelines, and one pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache, partial
from heapq import nlargest
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, BackgroundTasks, Query
from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api import views
from nimbus.api.caller import principal
from nimbus.api.explain.facts import cluster_facts
from nimbus.api.explain.pipeline import explain_pipeline
from nimbus.api.paging import CursorText, OwnerText, PageQuery, TagText
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import CommandIdText, PipelineNameText, RunIdText
from nimbus.api.routes.backfills import BackfillModel, backfill_model
from nimbus.api.routes.explanations import MAX_REASONS, pipeline_view
from nimbus.api.routes.pipelines import known_pipeline, pipeline_definition
from nimbus.api.routes.variables import known_calendars
from nimbus.api.runs.lookup import find_run
from nimbus.api.services import ApiServices
from nimbus.domain.cluster.revisions import of_pipeline
from nimbus.domain.ids import ReleaseDigest
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.filters import Filter
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.run import ListedRun, Run, RunCause, RunState
from nimbus.web.actions import fields
from nimbus.web.home.day import Day
from nimbus.web.pages import ListOrder, Pages, SortText, decision, none_if_empty, seconds, segment
from nimbus.web.pipeline.durations import durations, points
from nimbus.web.pipeline.foresight import following, foresee, upcoming
from nimbus.web.pipeline.grid import KINDS, calendar, grid, ticks
from nimbus.web.pipeline.history import Past, by_date, missing
from nimbus.web.pipeline.strip import backfill_href, column_href, dated, failed_said
from nimbus.web.run import graph
from nimbus.web.times import Times

_PIPELINES = 100
_TICKS, _NOBODY, _NEVER_S = 20, "admins", 1 << 40
_RUNS = 50
_FIRES = 5
_BACKFILLS = 5
_YEAR = 366
_COLUMNS = 20
"""Limit of runs in the grid as a table."""

StateFilter = Annotated[
    Literal["active", "paused", "inactive", "quarantined", "failed"] | None,
    BeforeValidator(none_if_empty),
]


class AskedPipeline(BaseModel):
    """The query of a pipeline's page."""

    view: Literal["runs", "calendar", "table", "graph", "durations"] = "runs"
    unfold: list[str] = []
    task: Annotated[str | None, Field(max_length=300)] = None
    """The task whose durations are drawn. None: those of whole runs."""
    start_like: Annotated[RunIdText | None, BeforeValidator(none_if_empty)] = None
    """A run whose parameters fill the start form."""


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/pipelines")
    def pipelines(
        request: Request,
        after: BackgroundTasks,
        state: StateFilter = None,
        tag: Annotated[TagText | None, BeforeValidator(none_if_empty)] = None,
        owner: Annotated[OwnerText | None, BeforeValidator(none_if_empty)] = None,
        mine: bool = False,
        sort: SortText = None,
        cursor: CursorText = None,
    ) -> Response:
        reader, now = services.reader, services.clock.now()
        day: Day = request.app.state.api.state.day
        after.add_task(day.look, now)
        runs = _by_pipeline(day.seen(reader).values())
        bad = views.quarantined(reader.schedulers())
        where = Filter(tag=tag, owner=owner)
        asks, fits = principal(), _filter(state, bad, runs)
        owners = {asks.name, *asks.teams} if mine else None
        records = [
            record
            for record in reader.pipelines()
            if fits(record) and where.takes_pipeline(record) and (owners is None or record.owner in owners)
        ]
        ended = cache(lambda name: seconds(_last_success(runs.get(name, ()))))
        order: ListOrder[PipelineRecord] = ListOrder.of(
            sort,
            "name",
            name=lambda record: (record.name,),
            state=lambda record: (record.name not in bad, record.state.value, record.name),
            success=lambda record: (ended(record.name), record.name),
            next=lambda record: (seconds(upcoming(record, now), _NEVER_S), record.name),
            tasks=lambda record: (record.profile.tasks, record.name),
            owner=lambda record: (record.owner or _NOBODY, record.name),
        )
        page = PageQuery(_PIPELINES, cursor).page(records, order.key, newest_first=order.newest_first)
        shown = {
            "pipelines": [
                {
                    "of": views.pipeline_summary(record, bad),
                    "next": upcoming(record, now),
                    "newest": runs[record.name][-1].state.value if record.name in runs else None,
                    "ticks": ticks(runs.get(record.name, []), now),
                    "last_success": _last_success(runs.get(record.name, [])),
                }
                for record in page.rows
            ],
            "given": {
                "state": state,
                "tag": tag,
                "owner": owner,
                "mine": "true" if mine else None,
                "sort": sort,
            },
            "sort": order.sort,
            "mine_is": ", ".join((asks.name, *asks.teams)) if asks.account else None,
            "states": ["active", "paused", "inactive", "quarantined", "failed"],
            "calendars": known_calendars(services).calendars,
            "later": page.next_cursor,
        }
        return pages.answer(request, "pipelines.html", shown)

    @routes.get("/pipelines/{name}")
    def pipeline(
        request: Request,
        name: PipelineNameText,
        asked: Annotated[AskedPipeline, Query()],
        command: CommandIdText | None = None,
    ) -> Response:
        record, facts = known_pipeline(services, name), cluster_facts(services)
        view = pipeline_view(services, record, facts)
        spec = pipeline_definition(services, record)
        defined = [task.name for task in spec.tasks] if spec else ()
        past = pages.past.of(services, name, _RUNS, defined, read=view.runs)
        times, columns = pages.page_times(request, name, record), past.columns
        given = None if asked.start_like is None else _run_of(services, name, asked.start_like)
        values = {} if given is None else given.parameters
        shown: dict[str, Any] = {
            **decision(services, command),
            "base": f"/ui/pipelines/{segment(name)}",
            "pipeline": views.pipeline_model(record, None, view.quarantined),
            "profile": record.profile,
            "releases": list(_releases(record).items()),
            "backfills": _backfills(services, name),
            "revision": of_pipeline(record),
            "reasons": explain_pipeline(record, view)[:MAX_REASONS],
            "fires": following(record, facts.now, _FIRES),
            "fields": fields(spec.parameters, values) if spec else None,
            "given": given,
            "earlier": [column.run for column in columns[::-1][:_TICKS]],
            "foreseen": foresee(record, view.queue, facts),
            "view": asked.view,
            "newest": next(
                (column.state for column in columns[::-1] if column.cause is not RunCause.BACKFILL), None
            ),  # a backfill is about other dates
            "failed": failed_said(past, times),
            "runs": len(columns),
            "history_complete": past.complete,
            **_panel(services, asked, past, spec, record, times),
        }
        return pages.answer(request, "pipeline.html", shown, about=name)

    return routes


def _last_success(runs: Iterable[ListedRun]) -> datetime | None:
    """End of the last successful run."""
    ends = (run.finished_at for run in runs if run.state is RunState.SUCCEEDED)
    return max((end for end in ends if end is not None), default=None)


def _by_pipeline(runs: Iterable[ListedRun]) -> dict[str, list[ListedRun]]:
    """The last runs of each pipeline, oldest first."""
    grouped: defaultdict[str, list[ListedRun]] = defaultdict(list)
    for run in runs:
        grouped[run.pipeline].append(run)
    newest = {
        name: nlargest(_TICKS, of, key=lambda run: (run.created_at, run.id)) for name, of in grouped.items()
    }
    return {name: of[::-1] for name, of in newest.items()}


def _filter(
    state: str | None, bad: dict[str, str], runs: dict[str, list[ListedRun]]
) -> Callable[[PipelineRecord], bool]:
    """The filter of a page. `failed`: pipelines whose newest run has failed."""
    if state is None:
        return lambda _: True
    if state == "quarantined":
        return lambda record: record.name in bad
    if state == "failed":
        return lambda record: record.name in runs and runs[record.name][-1].state.value == "failed"
    return lambda record: record.state.value == state


def _releases(record: PipelineRecord) -> dict[ReleaseDigest, str]:
    """The releases in the catalog, each with its role."""
    releases = dict.fromkeys(record.pinned, "used by a backfill") | {record.published: "the newest"}
    if record.release is None:
        return releases
    is_newest = record.release == record.published
    return {record.release: "active, the newest" if is_newest else "active"} | {
        digest: said for digest, said in releases.items() if digest != record.release
    }


def _run_of(services: ApiServices, name: str, run_id: str) -> Run:
    """A run of the pipeline. Raises ObjectNotFoundError if it is unknown or of another pipeline."""
    run = find_run(services, run_id)
    if run.pipeline != name:
        raise ObjectNotFoundError("unknown_run", f"run {run_id} is one of {run.pipeline}, not of {name}.")
    return run


def _backfills(services: ApiServices, name: str) -> list[BackfillModel]:
    """The newest backfills of a pipeline."""
    of_it = (backfill for backfill in services.reader.backfills() if backfill.pipeline == name)
    newest = nlargest(_BACKFILLS, of_it, key=lambda backfill: (backfill.created_at, backfill.id))
    return [backfill_model(backfill) for backfill in newest]


def _panel(
    services: ApiServices,
    asked: AskedPipeline,
    past: Past,
    spec: PipelineSpec | None,
    record: PipelineRecord,
    times: Times,
) -> dict[str, Any]:
    """The content of the requested view."""
    href = partial(column_href, record.name, times)
    match asked.view:
        case "runs":
            columns = dated(services, past, record, _RUNS)
            drawn = grid(columns, past.rows, times, href, is_wide=True) if columns else None
            gaps = [(*gap, backfill_href(record.name, times, *gap[:2])) for gap in missing(columns)]
            ends = (columns[0].date, columns[-1].date) if columns else None
            return {"grid": drawn, "gaps": gaps, "ends": ends, "left_out": past.left_out, "kinds": KINDS}
        case "calendar":
            index = services.reader.intervals(record.name)
            # Runs by hand have no date of the schedule, by whose distance the calendar has its rows.
            of_dates = [column for column in (*past.older, *past.columns) if column.has_interval]
            days = by_date(of_dates, record, index, services.clock.now(), _YEAR)
            by_day, shown = {day.date: day for day in days}, [(day.date, day.state) for day in days]
            drawn = calendar(shown, times.zone(), lambda date: href(by_day[date])) if shown else None
            ends = (days[0].date, days[-1].date) if days else None
            count = sum(gap[2] for gap in missing(days))
            return {"calendar": drawn, "dates": len(shown), "ends": ends, "gaps": count}
        case "table":
            columns = dated(services, past, record, _RUNS)[-_COLUMNS:]
            return {"columns": columns, "tasks": past.rows, "left_out": past.left_out}
        case "durations":
            whole, of_tasks = durations(past)
            name, tasks = asked.task or "", spec.tasks if spec else ()
            of = next(
                (
                    duration
                    for duration in (whole, *of_tasks)
                    if duration is not None and duration.name == name
                ),
                None,
            )
            limits = {"": spec.timeout if spec else None} | {str(task.name): task.timeout for task in tasks}
            limit = limits.get(name)
            return {
                "whole": whole,
                "durations": of_tasks,
                "left_out": past.left_out,
                "of_task": asked.task,
                "points": of and points(of, limit.total_seconds() if limit else None, times, href),
            }
        case "graph":
            return _graph(asked, spec)


def _graph(asked: AskedPipeline, spec: PipelineSpec | None) -> dict[str, Any]:
    """The tasks of the definition, with their kinds."""
    if spec is None:
        return {"not_drawn": "The definition is not on the disk of the scheduler that answers."}
    try:
        drawing = graph.kept_drawing({str(task.name): task.needs for task in spec.tasks}, asked.unfold)
    except graph.TooManyEdgesError as exc:
        return {"not_drawn": str(exc)}
    kinds = {str(task.name): task.kind.value for task in spec.tasks}

    def unfolded(name: str) -> str:
        return f"?{urlencode({'view': 'graph', 'unfold': [*asked.unfold, name]}, doseq=True)}"

    return {"svg": graph.svg(drawing, kinds, lambda name: f"?view=graph#n-{segment(name)}", unfolded)}
