"""The days for which a dataset by interval is published, as a calendar. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from nimbus.domain.intervals import DataInterval, gaps
from nimbus.web.backfill_dates import ShownDate, calendar

MOST_DAYS = 400
"""Limit of the days in a calendar: the last ones."""
PUBLISHED, IN_PART, MISSING = STATES = ("succeeded", "stopping", "not_run")


class Days(NamedTuple):
    """A calendar, and how many days it has of each state."""

    drawn: Markup
    counts: Counter[str]


def days_of(spans: Sequence[DataInterval], zone: tzinfo, known_from: datetime | None = None) -> Days | None:
    """The days from the first to the last that is published; None: nothing is.

    Args:
        spans: The times that are published, in order.
        zone: The zone of the days.
        known_from: Earlier times are not known, and are left out.
    """
    if not spans:
        return None
    start = max(spans[0].start, known_from or spans[0].start)
    ends = [_midnight(spans[-1].end - timedelta.resolution, zone, 1)]
    while len(ends) <= MOST_DAYS and ends[-1] > start:
        ends.append(_midnight(ends[-1], zone, -1))
    days = [_in_utc(DataInterval(start=first, end=end)) for end, first in pairwise(ends)]
    known = [_in_utc(span) for span in spans]
    shown = [ShownDate(date=day.start, interval=day, state=_state(day, known)) for day in days]
    return Days(calendar(shown, zone), Counter(one.state for one in shown))


def _in_utc(interval: DataInterval) -> DataInterval:
    """The same interval; times of one zone are compared fast."""
    return DataInterval(start=interval.start.astimezone(UTC), end=interval.end.astimezone(UTC))


def _midnight(moment: datetime, zone: tzinfo, days: int) -> datetime:
    local = moment.astimezone(zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
    return (local + timedelta(days=days)).replace(tzinfo=zone)


def _state(day: DataInterval, spans: Sequence[DataInterval]) -> str:
    inside = [span for span in spans if span.start < day.end and span.end > day.start]
    if not inside:
        return MISSING
    return IN_PART if gaps(day, inside) else PUBLISHED
