"""Data intervals: the time span of the data that a run processes."""

from __future__ import annotations

from collections.abc import Iterable
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


def shown(interval: DataInterval, zone: str) -> str:
    """An interval for people, in a time zone."""
    start, end = (moment.astimezone(ZoneInfo(zone)) for moment in (interval.start, interval.end))
    return f"{start:%Y-%m-%dT%H:%M%z} to {end:%Y-%m-%dT%H:%M%z}"
