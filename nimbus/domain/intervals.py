"""Data intervals: the time span of the data that a run processes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    found = []
    start = wanted.start
    for one in sorted(covered, key=lambda one: one.start):
        if one.start > start:
            found.append(DataInterval(start=start, end=min(one.start, wanted.end)))
        start = max(start, one.end)
        if start >= wanted.end:
            break
    if start < wanted.end:
        found.append(DataInterval(start=start, end=wanted.end))
    return tuple(gap for gap in found if gap.start < gap.end)


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
