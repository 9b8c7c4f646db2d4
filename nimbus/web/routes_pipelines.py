"""Pages about the catalog: the list of pipelines, and one pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api import views
from nimbus.api.finding import list_runs
from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.requests import CommandIdText, PipelineNameText
from nimbus.api.routes_explanations import explained_pipeline
from nimbus.api.routes_pipelines import known_pipeline, pipeline_definition
from nimbus.api.services import ApiServices
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.ids import CommandId, TaskName
from nimbus.domain.run import ListedRun, Run
from nimbus.web.fires import following, upcoming
from nimbus.web.pages import Pages, segment
from nimbus.web.run_grid import grid, ticks
from nimbus.web.start_form import fields

_PIPELINES = 100
"""In one page."""
_TICKS = 20
_RUNS = 50
_FIRES = 5
_TASKS = 200
"""Rows of a grid."""

Filter = Annotated[
    Literal["active", "paused", "inactive", "quarantined", "failed"] | None,
    BeforeValidator(lambda value: None if value == "" else value),
]


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/pipelines")
    def pipelines(request: Request, state: Filter = None, cursor: CursorText = None) -> Response:
        reader, now = services.reader, services.clock.now()
        runs = _by_pipeline(reader.run_list().values())
        bad = views.quarantined(reader.schedulers())
        fits = _filter(state, bad, runs)
        records = [record for record in reader.pipelines() if fits(record)]
        page = PageQuery(_PIPELINES, cursor).page(records, lambda one: (one.name,))
        shown = {
            "pipelines": [
                {
                    "of": views.pipeline_summary(record, bad),
                    "next": upcoming(record, now),
                    "ticks": ticks([run.state.value for run in runs.get(record.name, [])]),
                }
                for record in page.rows
            ],
            "given": {"state": state},
            "states": ["active", "paused", "inactive", "quarantined", "failed"],
            "is_later_page": cursor is not None,
            "later": page.next_cursor,
        }
        return pages.answer(request, "pipelines.html", shown)

    @routes.get("/pipelines/{name}")
    def pipeline(request: Request, name: PipelineNameText, command: CommandIdText | None = None) -> Response:
        record = known_pipeline(services, name)
        bad = views.quarantined(services.reader.schedulers())
        model = views.pipeline_model(record, pipeline_definition(services, record), bad)
        found = list_runs(services, pipeline=name, state=None, limit=_RUNS)
        runs = [run for run, _ in reversed(found.rows)]
        tasks = _rows(runs, [task.name for task in model.spec.tasks] if model.spec else [])
        shown: dict[str, Any] = {
            "command": command,
            "decided": None if command is None else services.commands.outcome(CommandId(command)),
            "base": f"/ui/pipelines/{segment(name)}",
            "pipeline": model,
            "pinned": record.pinned,
            "reasons": explained_pipeline(services, name).reasons,
            "fires": following(record, services.clock.now(), _FIRES),
            "fields": fields(model.spec.parameters) if model.spec else None,
            "grid": grid(runs, tasks[:_TASKS], lambda run: f"/ui/runs/{segment(run)}") if runs else None,
            "left_out": len(tasks[_TASKS:]),
            "newest": found.rows[0][0] if found.rows else None,
            "runs": len(runs),
            "history_complete": found.complete,
        }
        return pages.answer(request, "pipeline.html", shown)

    return routes


def _by_pipeline(runs: Iterable[ListedRun]) -> dict[str, list[ListedRun]]:
    """The last runs of each pipeline that are live or ended lately, oldest first."""
    found: defaultdict[str, list[ListedRun]] = defaultdict(list)
    for run in runs:
        found[run.pipeline].append(run)
    newest = {
        name: nlargest(_TICKS, of, key=lambda run: (run.created_at, run.id)) for name, of in found.items()
    }
    return {name: of[::-1] for name, of in newest.items()}


def _filter(
    state: str | None, bad: dict[str, str], runs: dict[str, list[ListedRun]]
) -> Callable[[PipelineRecord], bool]:
    """Which pipelines a page shows. `failed`: whose newest run has failed."""
    if state is None:
        return lambda _: True
    if state == "quarantined":
        return lambda record: record.name in bad
    if state == "failed":
        return lambda record: record.name in runs and runs[record.name][-1].state.value == "failed"
    return lambda record: record.state.value == state


def _rows(runs: Iterable[Run], defined: Iterable[str]) -> list[TaskName]:
    """Tasks of the definition in order of dependence, then those that only earlier runs have."""
    newest = [task.spec.name for run in list(runs)[-1:] for task in views.in_order(run)]
    others = (name for run in runs for name in run.tasks)
    return list(dict.fromkeys((*newest, *map(TaskName, defined), *others)))
