"""The data interval of a scheduled run. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

from nimbus.definition.cron import fires_after, fires_between
from nimbus.domain.pipelines.intervals import DataInterval, earlier
from nimbus.domain.pipelines.pipeline import Schedule

_MICROSECOND = timedelta(microseconds=1)
_FIRST_LOOK = timedelta(hours=1)
_LONGEST_LOOK = timedelta(days=366 * 50)
"""The limit to which cronsim looks ahead."""


@lru_cache(maxsize=4096)
def previous_fire(schedule: Schedule, before: datetime) -> datetime | None:
    """The last fire time earlier than `before` (aware), in UTC; None if there is none."""
    look = _FIRST_LOOK
    try:
        while look < _LONGEST_LOOK:
            fires = takewhile(lambda fire: fire < before, fires_after(schedule, before - look))
            if last := deque(fires, maxlen=1):
                return last[0]
            look *= 4
    except OverflowError:  # the beginning of all dates
        pass
    return None


def interval_of(schedule: Schedule, fire: datetime) -> DataInterval | None:
    """The data interval of the run of a fire time, which is its end.

    It starts at the fire time before, whether or not that had a run; or `data_interval` earlier. In that
    length, whole days are calendar days, and the rest is elapsed time.
    """
    length = schedule.data_interval
    if length is None:
        start = previous_fire(schedule, fire)
    else:
        start = _start(fire, length, ZoneInfo(schedule.timezone))
    return None if start is None else DataInterval(start=start, end=fire)


def dates_between(schedule: Schedule, first: datetime, last: datetime, limit: int) -> tuple[datetime, ...]:
    """Fire times from `first` up to `last`, both included, oldest first, at most `limit`."""
    return fires_between(schedule, first - _MICROSECOND, last, limit)


def intervals_of(schedule: Schedule, fires: Sequence[datetime]) -> tuple[DataInterval, ...]:
    """The data intervals of consecutive fire times; a fire time without one is left out."""
    intervals = [interval_of(schedule, fire) for fire in fires[:1]]
    for before, fire in pairwise(fires):
        usual = schedule.data_interval is None
        intervals.append(DataInterval(start=before, end=fire) if usual else interval_of(schedule, fire))
    return tuple(interval for interval in intervals if interval is not None)


def last_dates(schedule: Schedule, until: datetime, count: int) -> tuple[datetime, ...]:
    """The last fire times up to `until`, oldest first, at most `count`."""
    dates: deque[datetime] = deque()
    before = until + _MICROSECOND
    while len(dates) < count and (fire := previous_fire(schedule, before)) is not None:
        dates.appendleft(fire)
        before = fire
    return tuple(dates)


def bound_of(text: str, zone: tzinfo, *, is_last: bool = False) -> datetime:
    """A bound of a range of dates, which is part of the range: a day in a time zone, or a time.

    Args:
        text: For example `2026-01-31` or `2026-01-31T06:00:00Z`.
        zone: The zone of days.
        is_last: True: a day means its end. False: its start.

    Raises:
        ValueError: the text is neither, or not in the years 1000 to 8999.
    """
    try:
        bound = _bound(text, zone, is_last=is_last)
    except (ValueError, OverflowError):
        bound = None
    if bound is None or bound.tzinfo is None:
        raise ValueError(
            f"{text[:40]!r} is neither a day such as 2026-01-31, nor a time with an offset such as "
            "2026-01-31T06:00:00Z, in the years 1000 to 8999"
        )
    return bound.astimezone(UTC)


def _bound(text: str, zone: tzinfo, *, is_last: bool) -> datetime | None:
    is_time = len(text) > len("2026-01-31")
    written = datetime.fromisoformat(text) if is_time else date.fromisoformat(text)
    if not 1000 <= written.year < 9000:  # as written: requests are checked before the zone of a day is known
        return None
    if isinstance(written, datetime):
        return written
    day = written + timedelta(days=is_last)
    return datetime.combine(day, time(), zone).astimezone(UTC) - is_last * _MICROSECOND


def _start(fire: datetime, length: timedelta, zone: ZoneInfo) -> datetime | None:
    try:
        return earlier(fire, length, zone)
    except OverflowError:
        return None
