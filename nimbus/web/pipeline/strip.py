"""The grid of the last runs that stands beside a run, a task and a log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from markupsafe import Markup
from starlette.requests import Request

from nimbus.api.services import ApiServices
from nimbus.domain.ids import TaskName
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.runs.run import Run
from nimbus.web.pages import Pages, segment
from nimbus.web.pipeline.grid import grid
from nimbus.web.pipeline.history import STRIP, Column, Past, by_date
from nimbus.web.times import PIPELINES, Times

_ROWS, _ROWS_BESIDE_TASK = 12, 3
_DAY = len("2026-11-04")


@dataclass(frozen=True, slots=True)
class Strip:
    """The last runs of a pipeline, for the macro `past` of `parts.html`."""

    drawn: Markup
    failed: str
    """Such as `failed 3 of the last 20, first on 2026-11-12`."""
    left_out: int
    """Number of tasks that are no row."""
    runs: tuple[str, ...]
    """Their ids, newest first."""
    runbook: str
    """That of the pipeline; empty: it has none, or is removed."""


def strip(services: ApiServices, pages: Pages, request: Request, run: Run, task: str | None = None) -> Strip:
    """The last runs of a run's pipeline. `task`: its row is marked, and columns lead to it; None: to runs."""
    past = pages.past.of(services, run.pipeline, task=task, read=(run,))
    record = services.reader.pipeline(run.pipeline)
    times = pages.page_times(request, run.pipeline, record)
    columns = dated(services, past, record, STRIP)
    rows = _chosen(past, task)

    def href(column: Column) -> str:
        below = f"/tasks/{segment(task)}" if task is not None and task in column.tasks else ""
        return f"{column_href(run.pipeline, times, column)}{below}"

    drawn = grid(columns, rows, times, href, marked=task, here=run.id, name="past-grid")
    runs = tuple(
        column.run for column in reversed(columns) if column.run is not None and column.run != run.id
    )
    runbook = "" if record is None else record.profile.runbook
    left_out = past.left_out + len(past.rows) - len(rows)
    return Strip(drawn, failed_said(past, times, task), left_out, runs, runbook)


def column_href(pipeline: str, times: Times, column: Column) -> str:
    """The URL of a run; of a date without one, that of a backfill; of a run without a name, the list."""
    if column.run is not None:
        return f"/ui/runs/{segment(column.run)}"
    is_missing = column.state == "missing"
    return (
        backfill_href(pipeline, times, column.date)
        if is_missing
        else f"/ui/runs?pipeline={segment(pipeline)}"
    )


def backfill_href(pipeline: str, times: Times, first: datetime, last: datetime | None = None) -> str:
    """The URL of a form for a backfill of dates without a run."""
    own = replace(times, chosen=PIPELINES)
    dates = [(at, own.date_text(at, pipeline)) for at in (first, last or first)]
    bounds = (segment(text if len(text) == _DAY else at.astimezone(UTC).isoformat()) for at, text in dates)
    return "/ui/pipelines/{}/backfill?from={}&to={}".format(segment(pipeline), *bounds)


def dated(services: ApiServices, past: Past, record: PipelineRecord | None, most: int) -> list[Column]:
    """By data date if the pipeline has a schedule or intervals, else in the order of creation."""
    has_schedule = record is not None and record.profile.schedule is not None
    if not has_schedule and not any(column.has_interval for column in past.columns):
        return list(past.columns)
    index = None if record is None else services.reader.intervals(record.name)
    return by_date((*past.older, *past.columns), record, index, services.clock.now(), most)


def failed_said(past: Past, times: Times, task: str | None = None) -> str:
    """How often the runs, or a task in them, failed lately; empty: no run has ended."""
    failed, ended, first = past.failed(None if task is None else TaskName(task))
    if first is None:
        return f"failed none of the last {ended}" if ended else ""
    return f"failed {failed} of the last {ended}, first on {times.date_text(first.date)}"


def _chosen(past: Past, task: str | None) -> list[TaskName]:
    """The marked task, those that failed lately, and others, in their order."""
    cells = ((name, cell.state) for column in past.columns for name, cell in column.tasks.items())
    failed = {name for name, state in cells if state == "failed"}
    by_rank = sorted(past.rows, key=lambda name: (name != task, name not in failed))
    chosen = set(by_rank[: _ROWS if task is None else _ROWS_BESIDE_TASK])
    return [name for name in past.rows if name in chosen]
