"""Runs as small SVG pictures, with one path for each state, whatever the number of runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise

from markupsafe import Markup

from nimbus.domain.ids import TaskName
from nimbus.domain.runs.run import ListedRun, RunCause, RunState
from nimbus.domain.wording import counted, format_span
from nimbus.web.pipeline.history import Column
from nimbus.web.run.graph import shortened
from nimbus.web.times import Times

_CELL, _BOX, _LABEL = 15, 12, 200
_WIDEST, _ROOM = 28, 1_150
"""Widest column of a grid, and the width that few columns share."""
_TICK, _HEIGHT, _LEAST = 6, 16, 3
"""Sizes of the row of bars in a list, in pixels."""

_LETTER, _NARROWEST = 7, 80
"""Width of a letter of a label, and of the narrowest column of labels."""
_BARS, _LETTERS, _HEAD, _DATES = 44, 13, 16, 40
"""Heights above the rows of a grid (durations, kinds of runs, states) and below them (dates)."""
_PATH = Markup('<path class="{}" d="{}"/>')
_DRAWING = Markup(
    '<svg id="{id}" class="grid" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="{role}" '
    'aria-label="{said}">{parts}</svg>'
)
_LINKED = Markup(
    '<a href="{href}" aria-label="{said}"{here}><title>{said}</title>'
    '<rect class="over" x="{x}" y="{y}" width="{w}" height="{h}"/></a>'
)
_LEVEL = Markup('<path class="{kind}" d="M{x} {y}.5H{w}"/><text class="w r" x="{tx}" y="{ty}">{said}</text>')
_NAME = Markup('<text class="r" x="{x}" y="{y}">{label}{title}</text>')
_ROW = Markup('<rect class="marked" x="0" y="{y}" width="{w}" height="{h}"/>')
_SMALL = Markup('<text class="w" x="{x}" y="{y}"{turned}>{text}</text>')
_TITLE = Markup("<title>{}</title>")
_DAY = Markup('<text x="0" y="{y}">{label}</text>')
_DAYS = 84
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
    "missing": "m2 1h8m1 1v8m-1 1h-8m-1-1v-8",
}
"""Shapes of states, in a box of 12 pixels, equal to those of the icons."""
_SQUARE = "m1 6h10"


def mark(state: str, x: int, y: int) -> str:
    """The shape of a state, for a path, so that it is not shown by colour alone. `x`, `y`: its corner."""
    return f"M{x} {y}{_MARKS.get(state, _SQUARE)}"


def paths(boxes: Iterable[tuple[str, str]]) -> Markup:
    """One path for each state, with all its boxes."""
    paths: dict[str, list[str]] = {}
    for state, box in boxes:
        paths.setdefault(state, []).append(box)
    return Markup("").join(_PATH.format(state, "".join(of)) for state, of in sorted(paths.items()))


def drawing(name: str, size: tuple[int, int], said: str, *parts: Markup, role: str = "group") -> Markup:
    """A picture with an id, its width and height, a description, and what is drawn."""
    width, height = size
    return _DRAWING.format(id=name, w=width, h=height, said=said, parts=Markup("").join(parts), role=role)


def linked(
    href: str, said: str, at: tuple[int, int], size: tuple[int, int], *, is_here: bool = False
) -> Markup:
    """A box without colour that leads to a page, and says what is drawn in it."""
    here = Markup(' class="here"') if is_here else ""
    return _LINKED.format(href=href, said=said, here=here, x=at[0], y=at[1], w=size[0], h=size[1])


def level(kind: str, said: str, left: int, right: int, y: int, *, below: int = 4) -> Markup:
    """A line across a picture, with a figure at its left."""
    return _LEVEL.format(kind=kind, x=left, w=right, y=y, tx=left - 2, ty=y + below, said=said)


KINDS = {
    RunCause.MANUAL: ("M", "by hand"),
    RunCause.BACKFILL: ("B", "backfill"),
    RunCause.DATA: ("D", "by data"),
    RunCause.PARENT: ("P", "by a parent"),
    RunCause.ACTIVATION: ("A", "by an activation"),
}
"""Letter and words for each kind of run that is not the schedule's."""


def grid(
    columns: Sequence[Column],
    rows: Sequence[TaskName],
    times: Times,
    href: Callable[[Column], str],
    *,
    marked: str | None = None,
    here: str | None = None,
    name: str = "grid",
    is_wide: bool = False,
) -> Markup:
    """Tasks by runs: durations with a scale above, dates below.

    `columns`: oldest first; `rows`: tasks, which a run need not have; `marked`: the task of the marked row;
    `here`: the run of the marked column; `is_wide`: it has the width of a page, so few columns are wider.
    """
    wide = min(max(_CELL, _ROOM // max(len(columns), 1)), _WIDEST) if is_wide else _CELL
    top = _BARS + _LETTERS + _HEAD
    left = min(_LABEL, max(_NARROWEST, 8 + _LETTER * max(map(len, rows), default=0)))
    width, height = left + wide * len(columns) + 2, top + _CELL * len(rows)
    boxes, letters, links = [], [], []
    longest = max((column.whole.took_s or 0 for column in columns), default=0) or 1.0
    day = ""
    for number, column in enumerate(columns):
        x = left + wide * number + (wide - _CELL) // 2
        boxes.append((column.state, mark(column.state, x, _BARS + _LETTERS)))
        if column.whole.took_s is not None:
            high = max(round((_BARS - 4) * column.whole.took_s / longest), 1)
            boxes.append((f"bar {column.state}", f"M{x + 6} {_BARS}v-{high}"))
        for y, task in enumerate(rows):
            if (cell := column.tasks.get(task)) is not None:
                boxes.append((cell.state, mark(cell.state, x, top + _CELL * y)))
        kind, called = (
            ("", "scheduled") if column.cause is None else KINDS.get(column.cause, ("", "scheduled"))
        )
        if kind:
            letters.append(_SMALL.format(x=x + 2, y=_BARS + 11, turned="", text=kind))
        date = times.date_text(column.date)
        text = date[11:16] if date[:10] == day and len(date) > 10 else date[5:10]
        day = date[:10]
        turned = Markup(' transform="rotate(90 {} {})"').format(x + 2, height + 6)
        letters.append(_SMALL.format(x=x + 2, y=height + 6, turned=turned, text=text))
        took = "" if column.whole.took_s is None else f", {format_span(column.whole.took_s)}"
        again = f", {counted(column.earlier, 'earlier run')} for this date" if column.earlier else ""
        run = (
            f"Run {column.run}, {column.state}{took}, {called}"
            if column.run
            else "No run"
            if column.state == "missing"
            else column.state
        )
        box = {"at": (left + wide * number, 2), "size": (wide - _CELL + _BOX, height - 2)}
        is_here = column.run is not None and column.run == here
        links.append(linked(href(column), f"{run}, {date}{again}", **box, is_here=is_here))
    scale = [
        level("scale", format_span(longest * share), left - 4, width, y, below=10)
        for y, share in ((4, 1), (4 + (_BARS - 4) // 2, 0.5))
    ]
    labels = (
        _NAME.format(
            x=left - 6,
            y=top + _CELL * y + _BOX - 1,
            label=(label := shortened(task, 28)),
            title="" if label == task else _TITLE.format(task),
        )
        for y, task in enumerate(rows)
    )
    at_row = next((number for number, task in enumerate(rows) if task == marked), None)
    return drawing(
        name,
        (width, height + _DATES),
        f"{counted(len(rows), 'task')} in {counted(len(columns), 'run')}, oldest first",
        *scale,
        *([] if at_row is None else [_ROW.format(y=top + _CELL * at_row - 1, w=width, h=_CELL)]),
        paths(boxes),
        *labels,
        *letters,
        *links,
    )


def calendar(
    dates: Iterable[tuple[datetime, str]], zone: tzinfo, href: Callable[[datetime], str] | None = None
) -> Markup:
    """Dates with their states as boxes, in one row for each day, month or year, by the distance of dates.

    `dates`: at least one, in any order; `href`: None: they are no links.
    """
    placed = sorted(dates)
    row_of, column_of = _layout([date.astimezone(zone) for date, _ in placed])
    rows: dict[str, int] = {}
    boxes, links, count, last = [], [], 0, 0
    for at, state in placed:
        date = at.astimezone(zone)
        count = count + 1 if row_of(date) in rows else 0
        y, column = rows.setdefault(row_of(date), len(rows)), column_of(date, count)
        x, last = _DAYS + _CELL * column, max(last, column)
        boxes.append((state, mark(state, x, _CELL * y + 1)))
        if href is not None:
            said = f"{date:%Y-%m-%d %H:%M}, {'no run' if state == 'missing' else state}"
            links.append(linked(href(at), said, (x, _CELL * y), (_CELL - 1, _CELL - 1)))
    labels = (_DAY.format(y=_CELL * y + _BOX, label=label) for label, y in rows.items())
    counts = Counter(state for _, state in placed)
    return drawing(
        "calendar",
        (_DAYS + _CELL * (1 + last), _CELL * len(rows)),
        ", ".join(f"{count} {state}" for state, count in counts.items()),
        paths(boxes),
        *labels,
        *links,
        role="group" if href else "img",
    )


def _layout(dates: Sequence[datetime]) -> tuple[Callable[[datetime], str], Callable[[datetime, int], int]]:
    """Functions for the row and the column of a date. The column may depend on the count in the row."""
    step = min((abs(two - first) for first, two in pairwise(dates)), default=timedelta(1))
    if step < timedelta(hours=23):  # 23: the day on which summer time begins
        return (lambda date: f"{date:%Y-%m-%d}"), (lambda _, count: count)
    if step < timedelta(days=28):
        return (lambda date: f"{date:%Y-%m}"), (lambda date, _: date.day - 1)
    return (lambda date: f"{date:%Y}"), (lambda date, _: date.month - 1)


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
