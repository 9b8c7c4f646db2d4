"""Data intervals: the time span of the data that a run processes; and moments on the calendar of a time zone.

A local date has the zone's offset, in whole minutes, but not the zone. A record keeps the offset alone,
and a datetime with a named zone in a repeated hour is unequal to every datetime with an offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

NO_INTERVAL = (
    "this run has no data interval; a scheduled run has one, a run that is started by hand takes "
    "`--data-interval FROM TO`"
)


@dataclass(frozen=True)
class DataInterval:
    """The data from `start` to `end`, which is excluded. Both are aware."""

    start: datetime
    end: datetime


def gaps(wanted: DataInterval, covered: Iterable[DataInterval]) -> tuple[DataInterval, ...]:
    """The parts of an interval that no `covered` interval covers, in order."""
    spans = []
    start = wanted.start
    for interval in sorted(covered, key=lambda interval: interval.start):
        if interval.start > start:
            spans.append(DataInterval(start=start, end=min(interval.start, wanted.end)))
        start = max(start, interval.end)
        if start >= wanted.end:
            break
    if start < wanted.end:
        spans.append(DataInterval(start=start, end=wanted.end))
    return tuple(gap for gap in spans if gap.start < gap.end)


def within(spans: Sequence[DataInterval], interval: DataInterval) -> slice:
    """The place of those that overlap or touch an interval, of spans in order that do not overlap."""
    first = bisect_left(spans, interval.start, key=lambda span: span.end)
    return slice(first, bisect_right(spans, interval.end, lo=first, key=lambda span: span.start))


def with_span(spans: tuple[DataInterval, ...], added: DataInterval) -> tuple[DataInterval, ...]:
    """Spans in order, joined with one more: those that touch are one."""
    place = within(spans, added)
    both = (added, *spans[place])
    start, end = min(span.start for span in both), max(span.end for span in both)
    return (*spans[: place.start], DataInterval(start=start, end=end), *spans[place.stop :])


def without_span(spans: tuple[DataInterval, ...], removed: DataInterval) -> tuple[DataInterval, ...]:
    """Spans in order, without the time of one."""
    place = within(spans, removed)
    parts = (part for span in spans[place] for part in gaps(span, [removed]))
    return (*spans[: place.start], *parts, *spans[place.stop :])


def shown(interval: DataInterval, zone: str) -> str:
    """An interval for people, in a time zone."""
    start, end = (moment.astimezone(ZoneInfo(zone)) for moment in (interval.start, interval.end))
    return f"{start:%Y-%m-%dT%H:%M%z} to {end:%Y-%m-%dT%H:%M%z}"


def local(moment: datetime, zone: tzinfo) -> datetime:
    """An aware moment with the offset of `zone` at that time. Raises OverflowError outside the calendar."""
    offset = moment.astimezone(zone).utcoffset() or timedelta(0)
    return moment.astimezone(timezone(timedelta(minutes=round(offset / timedelta(minutes=1)))))


def on_calendar(moment: datetime, zone: tzinfo, change: Callable[[datetime], Any]) -> datetime:
    """`moment` with its local date and time changed by `change`, which takes and returns a naive datetime.

    A time in a missing hour is moved forward by the length of the gap. In a repeated hour the first is used,
    unless `change` changes nothing.
    """
    shown = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    changed = change(shown)
    if changed == shown:
        return local(moment, zone)
    return local(changed.replace(tzinfo=zone).astimezone(timezone.utc), zone)


def earlier(moment: datetime, length: timedelta, zone: tzinfo) -> datetime:
    """The moment `length` before `moment`: whole days are calendar days, the rest is elapsed time.

    Raises OverflowError: the result is outside the calendar.
    """
    days = timedelta(days=length.days)
    return on_calendar(moment, zone, lambda at: at - days) - (length - days)
