"""Durations of runs and tasks: of a pipeline, and of a run in comparison with an earlier one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.wording import format_span
from nimbus.web.pipeline.grid import drawing, level, linked, mark, paths
from nimbus.web.pipeline.history import Cell, Column, Past
from nimbus.web.times import Times


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTask:
    """Durations of a task in both runs, in seconds; None: it did not succeed, or does not exist."""

    name: str
    now_s: float | None
    then_s: float | None

    @property
    def change_s(self) -> float:
        """Difference of the durations; 0 if one is not known."""
        return 0.0 if self.now_s is None or self.then_s is None else self.now_s - self.then_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The differences of two runs."""

    now_s: float | None
    then_s: float | None
    parameters: tuple[tuple[str, object, object], ...]
    """Name, new value and old value of the parameters that differ."""
    tasks: tuple[ComparedTask, ...]
    """Tasks, with the largest change of duration first."""


def compare(run: Run, earlier: Run) -> Comparison:
    """Compare a run with an earlier one."""
    names = {**run.parameters, **earlier.parameters}
    parameters = ((name, run.parameters.get(name), earlier.parameters.get(name)) for name in sorted(names))
    tasks = [
        ComparedTask(
            name=name, now_s=task_seconds(run.tasks.get(name)), then_s=task_seconds(earlier.tasks.get(name))
        )
        for name in {**dict.fromkeys(run.tasks), **dict.fromkeys(earlier.tasks)}
    ]
    return Comparison(
        now_s=run_seconds(run),
        then_s=run_seconds(earlier),
        parameters=tuple(parameter for parameter in parameters if parameter[1] != parameter[2]),
        tasks=tuple(sorted(tasks, key=lambda comparison: (-abs(comparison.change_s), comparison.name))),
    )


def run_seconds(run: Run) -> float | None:
    """Seconds from its start to its end; None: it has not ended."""
    if run.finished_at is None:
        return None
    return (run.finished_at - (run.started_at or run.created_at)).total_seconds()


def task_seconds(task: TaskRun | None) -> float | None:
    """Seconds of the successful attempt; None: there is none."""
    attempt = None if task is None else task.committed
    if attempt is None or attempt.ended_at is None:
        return None
    return (attempt.ended_at - (attempt.started_at or attempt.opened_at)).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Durations of a run or a task that succeeded, in seconds."""

    name: str
    count: int
    median_s: float
    longest_s: float
    last_s: float
    cells: tuple[tuple[Column, Cell], ...]
    """Those that have ended, also the failed ones, oldest first."""


def durations(past: Past) -> tuple[Durations | None, list[Durations]]:
    """Durations of the runs, and of each task that ever succeeded, longest first."""
    whole = _of("", ((column, column.whole) for column in past.columns))
    of_tasks = (
        _of(name, ((column, column.tasks[name]) for column in past.columns if name in column.tasks))
        for name in past.rows
    )
    durations = sorted(
        (duration for duration in of_tasks if duration is not None),
        key=lambda duration: (-duration.median_s, duration.name),
    )
    return whole, durations


def _of(name: str, cells: Iterable[tuple[Column, Cell]]) -> Durations | None:
    ended = tuple((column, cell) for column, cell in cells if cell.took_s is not None)
    seconds = [cell.took_s for _, cell in ended if cell.took_s is not None and cell.state == "succeeded"]
    if not seconds:
        return None
    return Durations(
        name=name,
        count=len(seconds),
        median_s=median(seconds),
        longest_s=max(seconds),
        last_s=seconds[-1],
        cells=ended,
    )


_WIDTH, _LEFT, _HEIGHT = 900, 130, 150
_DATE = Markup('<text class="w{end}" x="{x}" y="{y}">{text}</text>')


def points(of: Durations, limit_s: float | None, times: Times, href: Callable[[Column], str]) -> Markup:
    """Durations over time: a mark for each run, above it the time that it was queued, and the median."""
    began = [column.created_at for column, _ in of.cells if column.created_at is not None]
    first, whole_s = min(began), (max(began) - min(began)).total_seconds() or 1.0
    top_s = max((cell.took_s or 0.0) + (cell.queued_s or 0.0) for _, cell in of.cells) or 1.0
    if limit_s is not None and limit_s < 3 * top_s:
        top_s = max(top_s, limit_s)

    def y_of(seconds: float) -> int:
        return _HEIGHT - round((_HEIGHT - 20) * min(seconds / top_s, 1.0))

    marks, links = [], []
    for column, cell in of.cells:
        at, took_s, queued_s = column.created_at or first, cell.took_s or 0.0, cell.queued_s or 0.0
        x = _LEFT + 10 + round((_WIDTH - _LEFT - 30) * (at - first).total_seconds() / whole_s)
        y = y_of(took_s)
        marks.append((cell.state, mark(cell.state, x - 6, y - 6)))
        if (above := y - y_of(took_s + queued_s)) > 0:
            marks.append(("queued", f"M{x} {y}v-{above}"))
        waited = f", queued {format_span(queued_s)}" if queued_s >= 1 else ""
        said = f"{times.date_text(column.date)}: {cell.state} after {format_span(took_s)}{waited}"
        links.append(linked(href(column), said, (x - 6, y - 6), (12, 12)))
    known = [("scale", top_s, ""), ("median", of.median_s, "median "), ("limit", limit_s, "limit ")]
    lines = [
        level(kind, word + format_span(seconds), _LEFT, _WIDTH, y_of(seconds))
        for kind, seconds, word in known
        if seconds is not None and seconds <= top_s
    ]
    ends = ((_LEFT, "", first), (_WIDTH, " r", max(began)))
    dates = (_DATE.format(end=end, x=x, y=_HEIGHT + 20, text=times.text(at)) for x, end, at in ends)
    return drawing(
        "points",
        (_WIDTH + 2, _HEIGHT + 26),
        f"{len(of.cells)} durations, oldest first",
        *lines,
        *dates,
        paths(marks),
        *links,
    )
