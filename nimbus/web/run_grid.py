"""Tasks by runs as SVG: one path for each state, however many cells there are. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from markupsafe import Markup

from nimbus.domain.ids import TaskName
from nimbus.domain.run import Run
from nimbus.web.graph import shortened

_CELL, _BOX, _LABEL, _TOP = 15, 12, 200, 24
_TICK, _HEIGHT = 6, 16
"""Of the row of bars in a list."""

_PATH = Markup('<path class="{}" d="{}"/>')
_GRID = Markup(
    '<svg id="grid" class="grid" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="group" '
    'aria-label="{tasks} tasks in {runs} runs, oldest run first">{cells}{labels}{columns}</svg>'
)
_NAME = Markup('<text x="0" y="{y}">{label}{title}</text>')
_COLUMN = Markup(
    '<a href="{href}" aria-label="Run {run}, {state}"><title>{run}: {state}</title>'
    '<rect class="{state}" x="{x}" y="2" width="{box}" height="{box}" rx="5"/>'
    '<rect class="over" x="{x}" y="2" width="{box}" height="{h}"/></a>'
)
_TITLE = Markup("<title>{}</title>")
_TICKS = Markup('<svg class="ticks" width="{w}" height="{h}" role="img" aria-label="{said}">{paths}</svg>')


def _paths(boxes: Iterable[tuple[str, str]]) -> Markup:
    """One path for each state. A box is a stroke, which the style makes as high as it has to be."""
    found: dict[str, list[str]] = {}
    for state, box in boxes:
        found.setdefault(state, []).append(box)
    return Markup("").join(_PATH.format(state, "".join(of)) for state, of in sorted(found.items()))


def grid(runs: Sequence[Run], tasks: Sequence[TaskName], href: Callable[[str], str]) -> Markup:
    """The grid.

    Args:
        runs: Oldest first.
        tasks: Rows; a run need not have them all.
        href: Address of a run's page.
    """
    width, height = _LABEL + _CELL * len(runs), _TOP + _CELL * len(tasks)
    boxes = (
        (run.tasks[name].state.value, f"M{_LABEL + _CELL * x} {_TOP + _CELL * y + _BOX // 2}h{_BOX}")
        for y, name in enumerate(tasks)
        for x, run in enumerate(runs)
        if name in run.tasks
    )
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
            href=href(run.id), run=run.id, state=run.state.value, x=_LABEL + _CELL * x, box=_BOX, h=height - 2
        )
        for x, run in enumerate(runs)
    )
    return _GRID.format(
        w=width,
        h=height,
        tasks=len(tasks),
        runs=len(runs),
        cells=_paths(boxes),
        labels=Markup("").join(labels),
        columns=Markup("").join(columns),
    )


def ticks(states: Sequence[str]) -> Markup:
    """The states of runs as a row of bars, oldest first; those that failed are taller."""
    bars = []
    for number, state in enumerate(states):
        high = _HEIGHT if state == "failed" else _HEIGHT - 6
        box = f"M{_TICK * number + 2} {_HEIGHT}v-{high}"
        bars.append((state, box))
    counts: Mapping[str, int] = {state: states.count(state) for state in dict.fromkeys(states)}
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    return _TICKS.format(w=_TICK * len(states), h=_HEIGHT, said=f"last runs: {said}", paths=_paths(bars))
