"""The data interval of a scheduled run. Pure."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from zoneinfo import ZoneInfo

from nimbus.definition.cron import fires_after
from nimbus.domain.intervals import DataInterval
from nimbus.domain.local_dates import on_calendar
from nimbus.domain.pipeline import Schedule

_FIRST_LOOK = timedelta(hours=1)
_LONGEST_LOOK = timedelta(days=366 * 50)
"""As far as cronsim looks ahead."""


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
    """The data interval of the run of a fire time: it ends there.

    It starts at the fire time before, whether that had a run or not; or `data_interval` earlier. Of that,
    whole days are days of the calendar, and the rest is time that passes.
    """
    length = schedule.data_interval
    if length is None:
        start = previous_fire(schedule, fire)
    else:
        start = _earlier(fire, length, ZoneInfo(schedule.timezone))
    return None if start is None else DataInterval(start=start, end=fire)


def _earlier(moment: datetime, length: timedelta, zone: ZoneInfo) -> datetime | None:
    days = timedelta(days=length.days)
    try:
        return on_calendar(moment, zone, lambda at: at - days) - (length - days)
    except OverflowError:
        return None
