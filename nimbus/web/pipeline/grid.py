"""Runs as small SVG pictures, with one path for each state, whatever the number of runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import chain

from markupsafe import Markup

from nimbus.domain.ids import TaskName
from nimbus.domain.run import ListedRun, Run, RunState
from nimbus.domain.wording import counted
from nimbus.web.run.graph import shortened

_CELL, _BOX, _LABEL, _TOP = 15, 12, 200, 24
_TICK, _HEIGHT, _LEAST = 6, 16, 3
"""Sizes of the row of bars in a list, in pixels."""

_PATH = Markup('<path class="{}" d="{}"/>')
_GRID = Markup(
    '<svg id="grid" class="grid" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="group" '
    'aria-label="{tasks} in {runs}, oldest run first">{cells}{labels}{columns}</svg>'
)
_NAME = Markup('<text x="0" y="{y}">{label}{title}</text>')
_COLUMN = Markup(
    '<a href="{href}" aria-label="Run {run}, {state}"><title>{run}: {state}</title>'
    '<rect class="over" x="{x}" y="2" width="{box}" height="{h}"/></a>'
)
_TITLE = Markup("<title>{}</title>")
_TICKS = Markup('<svg class="ticks" width="{w}" height="{h}" role="img" aria-label="{said}">{paths}</svg>')


_MARKS = {
    "succeeded": "m6 6h0",  # a round dot, because the style has round line ends
    "failed": "m1 1l10 10m0-10l-10 10",
    "running": "m3 1v10l8-5z",
    "queued": "m1 6a5 5 0 1 1 10 0a5 5 0 1 1-10 0m5-3v4",
    "waiting": "m1 6a5 5 0 1 1 10 0a5 5 0 1 1-10 0",
    "skipped": "m1 2l4 4-4 4m5-8l4 4-4 4",
    "not_run": "m2 6h8",
    "stopping": "m2 2h8v8h-8z",
}
"""Shapes of states, in a box of 12 pixels, equal to those of the icons."""
_SQUARE = "m1 6h10"


def mark(state: str, x: int, y: int) -> str:
    """The shape of a state, for a path, so that a state is not shown by its colour alone.

    Args:
        state: State of a run or a task.
        x: Left edge of its box.
        y: Upper edge of its box.
    """
    return f"M{x} {y}{_MARKS.get(state, _SQUARE)}"


def paths(boxes: Iterable[tuple[str, str]]) -> Markup:
    """One path for each state, with all its boxes."""
    found: dict[str, list[str]] = {}
    for state, box in boxes:
        found.setdefault(state, []).append(box)
    return Markup("").join(_PATH.format(state, "".join(of)) for state, of in sorted(found.items()))


def grid(runs: Sequence[Run], tasks: Sequence[TaskName], href: Callable[[str], str]) -> Markup:
    """The grid.

    Args:
        runs: Oldest first.
        tasks: Rows; a run need not have them all.
        href: Returns the URL of a run's page.
    """
    width, height = _LABEL + _CELL * len(runs), _TOP + _CELL * len(tasks)
    boxes = (
        (run.tasks[name].state.value, mark(run.tasks[name].state.value, _LABEL + _CELL * x, _TOP + _CELL * y))
        for y, name in enumerate(tasks)
        for x, run in enumerate(runs)
        if name in run.tasks
    )
    heads = ((run.state.value, mark(run.state.value, _LABEL + _CELL * x, 2)) for x, run in enumerate(runs))
    labels = (
        _NAME.format(
            y=_TOP + _CELL * y + _BOX - 1,
            label=(label := shortened(name, 28)),
            title="" if label == name else _TITLE.format(name),
        )
        for y, name in enumerate(tasks)
    )
    columns = (
        _COLUMN.format(
            href=href(run.id),
            run=run.id,
            state=run.state.value,
            x=_LABEL + _CELL * x,
            box=_BOX,
            h=height - 2,
        )
        for x, run in enumerate(runs)
    )
    return _GRID.format(
        w=width,
        h=height,
        tasks=counted(len(tasks), "task"),
        runs=counted(len(runs), "run"),
        cells=paths(chain(heads, boxes)),
        labels=Markup("").join(labels),
        columns=Markup("").join(columns),
    )


def ticks(runs: Sequence[ListedRun], now: datetime) -> Markup:
    """Runs as a row of bars, oldest first. The height is the duration; failed runs have a foot."""
    took = [_took_s(run, now) for run in runs]
    longest = max(took, default=0.0) or 1.0
    bars = []
    for number, (run, seconds) in enumerate(zip(runs, took, strict=True)):
        x = _TICK * number + 2
        high = _LEAST + round((_HEIGHT - _LEAST) * seconds / longest)
        foot = f"M{x} {_HEIGHT + 2}v2" if run.state is RunState.FAILED else ""
        bars.append((run.state.value, f"M{x} {_HEIGHT}v-{high}{foot}"))
    counts = Counter(run.state.value for run in runs)
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    return _TICKS.format(
        w=_TICK * len(runs), h=_HEIGHT + 4, said=f"last runs: {said or 'none'}", paths=paths(bars)
    )


def _took_s(run: ListedRun, now: datetime) -> float:
    """Seconds of a run; of a live run in whole minutes, so that the page changes only visibly."""
    began = run.started_at or run.created_at
    if run.finished_at is not None:
        return (run.finished_at - began).total_seconds()
    if run.state is RunState.QUEUED:
        return 0.0
    return max(0.0, (now - began).total_seconds() // 60 * 60)
