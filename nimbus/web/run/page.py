"""Pages about runs: the list, and one run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from shlex import quote
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from markupsafe import Markup
from pydantic import BaseModel, BeforeValidator, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.paging import CursorText, Where, decoded, encoded
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import CommandIdText, RunIdText
from nimbus.api.routes.datasets import VersionModel, version_model
from nimbus.api.runs.lookup import FoundRun, find_run, find_run_or_request, last_success, list_runs
from nimbus.api.runs.models import RunModel, RunSummaryModel, run_summary
from nimbus.api.runs.replay import timeline
from nimbus.api.runs.routes import run_place, shown_run
from nimbus.api.runs.selections import SelectedBody, selected
from nimbus.api.services import ApiServices
from nimbus.domain.data.datasets import versions_of
from nimbus.domain.data.publications import Read
from nimbus.domain.errors import RefusedError
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.selection import Scope, Selection, chosen_tasks
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.wording import format_short_span
from nimbus.web.pages import ListOrder, Pages, SortText, decision, none_if_empty, segment
from nimbus.web.pipeline.durations import compare
from nimbus.web.pipeline.strip import strip
from nimbus.web.run import gantt, graph

MAX_EVENTS = 300
MAX_VERSIONS = 200
_RUNS, _NAMES = 100, 1000
_SHOWN_FAILURES, _TASKS = 5, 500

View = Literal["graph", "gantt", "events", "compare", "parameters", "data"]

TaskFilter = Annotated[TaskState | None, BeforeValidator(none_if_empty)]


class AskedRuns(Where):
    """The query of the list. A form sends empty fields as empty texts."""

    sort: SortText = None
    """A column of this page: the list itself is always from the newest run on."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value not in ("", [""])}


class AskedRun(BaseModel):
    """The query of a run's page."""

    view: View = "graph"
    state: TaskFilter = None
    first: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Number of tasks in the list before the first one that is shown."""
    find: Annotated[str, Field(max_length=200)] = ""
    """A part of the names of tasks that are listed, and marked in the graph."""
    unfold: list[str] = []
    against: Annotated[RunIdText | None, BeforeValidator(none_if_empty)] = None
    """The run to compare with. None: the last one that succeeded."""
    everything: Annotated[bool, Field(alias="all")] = False


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/runs")
    def runs(request: Request, where: Annotated[AskedRuns, Query()], cursor: CursorText = None) -> Response:
        page = list_runs(services, where.filter, limit=_RUNS, after=run_place(decoded(cursor)))
        now = services.clock.now()
        order: ListOrder[RunSummaryModel] = ListOrder.of(
            where.sort,
            "-created",
            created=lambda run: (run.created_at, run.id),
            state=lambda run: (run.state.value,),
            pipeline=lambda run: (run.pipeline,),
            took=lambda run: ((run.finished_at or now) - (run.started_at or run.created_at),),
            date=lambda run: (run.logical_date,),
        )
        listed = [run_summary(run, archived=archived) for run, archived in page.rows]
        shown = {
            "runs": sorted(listed, key=order.key, reverse=order.newest_first),
            "sort": order.sort,
            "history_complete": page.complete,
            "older": None if page.next_after is None else encoded(page.next_after),
            "given": where.model_dump(by_alias=True),
            "states": [state.value for state in RunState],
            "names": sorted(record.name for record in services.reader.pipelines())[:_NAMES],
        }
        return pages.answer(request, "runs.html", shown)

    @routes.get("/selection")
    def selection(
        request: Request,
        action: Literal["stop", "rerun", "pause", "resume"],
        name: Annotated[list[RunIdText], Query(max_length=_RUNS)] = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        if not name:
            raise RefusedError("nothing_selected", "no run is selected: tick some in the list.")
        selection = selected(services, SelectedBody.model_validate({"action": action, "names": name}))
        return pages.answer(request, "selection.html", {"found": selection})

    @routes.get("/runs/{run_id}")
    def run(
        request: Request,
        run_id: RunIdText,
        asked: Annotated[AskedRun, Query()],
        command: CommandIdText | None = None,
    ) -> Response:
        run = find_run_or_request(services, run_id)
        shown = {**decision(services, command), "base": f"/ui/runs/{segment(run_id)}"}
        if not isinstance(run, FoundRun):
            return pages.answer(request, "requested_run.html", {**shown, "run": run})
        ordered = run.run.tasks.by_depth()
        named = [task for task in ordered if asked.find.casefold() in task.spec.name.casefold()]
        fitting = [task for task in named if asked.state in (None, task.state)]
        listed = fitting[asked.first : asked.first + _TASKS]
        failed = [task for task in ordered if task.state is TaskState.FAILED]
        model = shown_run(services, run, [*listed, *failed[:_SHOWN_FAILURES]])
        shown |= {
            "failures": model.tasks[len(listed) :],
            "more_failures": len(failed[_SHOWN_FAILURES:]),
            "fitting": len(fitting),
            "later": asked.first + _TASKS if len(fitting) > asked.first + _TASKS else None,
        }
        model = model.model_copy(update={"tasks": model.tasks[: len(listed)]})
        shown |= _of_run(run.run, model, asked)
        shown["past"] = strip(services, pages, request, run.run)
        shown |= _panel(services, run.run, ordered, model, asked)
        return pages.answer(request, "run.html", shown, about=run.run.pipeline)

    return routes


def _of_run(run: Run, model: RunModel, asked: AskedRun) -> dict[str, Any]:
    """The content that every view of a run shows."""
    return {
        "run": model,
        "again": _again(run),
        "view": asked.view,
        "given": {
            "view": None if asked.view == "graph" else asked.view,
            "state": asked.state,
            "find": asked.find or None,
        },
        "counts": Counter({state.value: count for state, count in run.tasks.counts.items() if count}),
        "rows": model.tasks,
        "first": asked.first,
        "start": _start_command(model),
    }


def _again(run: Run) -> dict[str, int]:
    """Number of tasks that each kind of rerun would run; empty for a live run, where it is not known yet."""
    if not run.state.is_final:
        return {}
    return {
        scope.value: len(chosen_tasks(run.tasks, Selection(scope=scope), run))
        for scope in (Scope.FAILED, Scope.ALL)
    }


def _panel(
    services: ApiServices,
    run: Run,
    ordered: Sequence[TaskRun],
    model: RunModel,
    asked: AskedRun,
) -> dict[str, Any]:
    """The content of the requested view."""
    tasks_below = f"/ui/runs/{segment(run.id)}/tasks/"
    match asked.view:
        case "graph":
            needs = {str(task.spec.name): task.spec.needs for task in ordered}
            try:
                drawing = graph.kept_drawing(needs, asked.unfold)
            except graph.TooManyEdgesError as exc:
                return {"not_drawn": str(exc)}
            unfold = asked.unfold

            def unfolded(name: str) -> str:
                return f"?{urlencode({'unfold': [*unfold, name]}, doseq=True)}"

            wanted = asked.find.casefold()
            progress = {task.name: task.attempts[-1].progress for task in model.tasks if task.attempts}
            critical = gantt.critical_path(ordered)
            return {
                "critical": critical,
                "folds": drawing.folds,
                "svg": graph.svg(
                    drawing,
                    {task.spec.name: task.state.value for task in ordered},
                    lambda name: tasks_below + segment(name),
                    unfolded,
                    {task.name: task.why for task in model.tasks if task.why},
                    said={
                        task.spec.name: node_text(task, progress.get(task.spec.name))
                        for task in ordered
                        if task.spec.name in drawing.layout.nodes
                    },
                    path=critical,
                    found=[name for name in needs if wanted and wanted in name.casefold()],
                ),
            }
        case "gantt":
            now, earlier = services.clock.now(), last_success(services, run)
            critical = gantt.critical_path(ordered)
            drawn = gantt.svg(run, model, critical, now, lambda name: tasks_below + segment(name), earlier)
            return {"svg": drawn, "critical": critical, "earlier": earlier, "waits": gantt.WAITS}
        case "events":
            events = timeline(run)[::-1]
            shown = events if asked.everything else events[:MAX_EVENTS]
            return {"events": shown, "left_out": len(events) - len(shown)}
        case "compare":
            against = asked.against and find_run(services, asked.against)
            if against and against.pipeline != run.pipeline:
                raise ObjectNotFoundError("unknown_run", f"run {against.id} is not one of {run.pipeline}.")
            earlier = against or last_success(services, run)
            return {"earlier": earlier, "comparison": earlier and compare(run, earlier), "most": _TASKS}
        case "parameters":
            return {}
        case "data":
            return {
                "causes": run.causes[::-1],
                "pins": list(_pins(run)),
                "published": list(islice(versions_of(run), MAX_VERSIONS)),
            }


def node_text(task: TaskRun, progress: Mapping[str, Any] | None) -> str | Markup:
    """State, duration, attempt and progress in the room of a node. An icon says that a task has succeeded."""
    attempt = task.attempts[-1] if task.attempts else None
    words = [] if attempt and task.state is TaskState.SUCCEEDED else [task.state.value.replace("_", " ")]
    if attempt is None:
        return words[0]
    began = attempt.started_at or attempt.opened_at
    if attempt.ended_at is not None:
        words.append(format_short_span((attempt.ended_at - began).total_seconds()))
    elif task.state is TaskState.RUNNING:
        words = [Markup('<tspan data-since="{}">running</tspan>').format(began.isoformat())]
    if attempt.number > 1:
        words.append(f"#{attempt.number}")
    total, done = ((progress or {}).get(name) for name in ("tasks_total", "tasks_done"))
    if isinstance(total, int) and isinstance(done, int) and total > 0 and done >= 0:  # a task reports them
        words.append(f"{100 * min(done, total) // total} %")
    return Markup(" ").join(words)


def _pins(run: Run) -> Iterator[tuple[Read, Sequence[VersionModel] | None, int]]:
    """What a run reads: the versions that are shown, None before it pins them, and how many more it has."""
    left = MAX_VERSIONS
    for read in run.reads:
        pins = run.pins.get(read.name)
        shown = None if pins is None else list(map(version_model, pins[:left]))
        yield read, shown, len(pins or ()) - len(shown or ())
        left -= len(shown or ())


def _start_command(run: RunModel) -> str:
    """`nimbus run start` with the values of a run, for a shell."""
    words = ["nimbus run start", quote(run.pipeline)]
    if run.parameters:
        words.append(f"--params {quote(json.dumps(dict(run.parameters), ensure_ascii=False))}")
    words.append(f"--logical-date {run.logical_date.isoformat()}")
    if run.data_interval is not None:
        start, end = run.data_interval.start, run.data_interval.end
        words.append(f"--data-interval {start.isoformat()} {end.isoformat()}")
    return " ".join(words)
