"""The state of each date of a backfill, past or expected: a table and a calendar. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise

from markupsafe import Markup

from nimbus.definition.backfill_dates import dates_left, interval_of_date, whole_range
from nimbus.domain.backfill import Backfill, BackfillState, Order
from nimbus.domain.interval_index import Ended, IntervalIndex
from nimbus.domain.intervals import DataInterval
from nimbus.domain.run import ListedRun, RunState
from nimbus.web.pipeline.grid import mark, paths

_CELL, _BOX, _LABEL = 15, 12, 84
_ENDED = {RunState.SUCCEEDED: "succeeded", RunState.FAILED: "failed", RunState.STOPPED: "was stopped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDate:
    """One date, of a backfill or of a pipeline."""

    date: datetime
    interval: DataInterval | None
    state: str
    """State of its run; `waiting`: it will get a run; `skipped`: it gets none; `not_run`: not known."""
    run: str | None = None
    """Its run, or the run because of which it gets none."""
    said: str = ""


def dates_of(backfill: Backfill, after: datetime | None) -> Iterator[tuple[datetime, DataInterval | None]]:
    """The dates of the range in the order of the backfill, each with its data interval.

    Args:
        backfill: A backfill in any state.
        after: Only dates after this one are returned. None: all.
    """
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
    """The state of one date, or its expected state if it were started now.

    Args:
        backfill: The backfill of the date.
        date: The date.
        interval: Its data interval.
        index: The pipeline's index of intervals.
        runs: Live runs, and runs that ended lately, by id.
    """
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


_SVG = Markup(
    '<svg id="calendar" class="grid" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="{role}" '
    'aria-label="{said}">{boxes}{labels}</svg>'
)
_LINK = Markup(
    '<a href="{href}" aria-label="{said}"><title>{said}</title>'
    '<rect class="over" x="{x}" y="{y}" width="{size}" height="{size}"/></a>'
)
_ROW = Markup('<text x="0" y="{y}">{label}</text>')


def calendar(
    dates: Sequence[ShownDate], zone: tzinfo, href: Callable[[ShownDate], str] | None = None
) -> Markup:
    """Dates as boxes, in one row for each day, month or year, by the distance of dates.

    Args:
        dates: In any order, at least one.
        zone: The zone of days and months.
        href: Returns the URL of a date. None: dates are no links.
    """
    row_of, column_of = _layout([one.date.astimezone(zone) for one in dates])
    placed = sorted(dates, key=lambda one: one.date)
    rows: dict[str, list[tuple[int, str]]] = {}
    links = []
    for one in placed:
        date = one.date.astimezone(zone)
        row = rows.setdefault(row_of(date), [])
        row.append((column_of(date, len(row)), one.state))
        if href is not None:
            said = f"{date:%Y-%m-%d %H:%M}, {'no run' if one.state == 'missing' else one.state}"
            x, y = _LABEL + _CELL * row[-1][0], _CELL * list(rows).index(row_of(date))
            links.append(_LINK.format(href=href(one), said=said, x=x, y=y, size=_CELL - 1))
    boxes = [
        (state, mark(state, _LABEL + _CELL * x, _CELL * y + 1))
        for y, row in enumerate(rows.values())
        for x, state in row
    ]
    labels = (_ROW.format(y=_CELL * y + _BOX, label=label) for y, label in enumerate(rows))
    counts = Counter(one.state for one in placed)
    return _SVG.format(
        w=_LABEL + _CELL * (1 + max(x for row in rows.values() for x, _ in row)),
        h=_CELL * len(rows),
        role="group" if href else "img",
        said=", ".join(f"{count} {state}" for state, count in counts.items()),
        boxes=paths(boxes),
        labels=Markup("").join((*labels, *links)),
    )


def _layout(dates: Sequence[datetime]) -> tuple[Callable[[datetime], str], Callable[[datetime, int], int]]:
    """Functions for the row and the column of a date. The column may depend on the count in the row."""
    step = min((abs(two - one) for one, two in pairwise(dates)), default=timedelta(1))
    if step < timedelta(hours=23):  # 23: the day on which summer time begins
        return (lambda date: f"{date:%Y-%m-%d}"), (lambda _, count: count)
    if step < timedelta(days=28):
        return (lambda date: f"{date:%Y-%m}"), (lambda date, _: date.day - 1)
    return (lambda date: f"{date:%Y}"), (lambda date, _: date.month - 1)
