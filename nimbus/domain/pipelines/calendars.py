"""Calendars: which days are worked. Pure.

A calendar changes at which moments a schedule fires, and nothing else: the moments still follow one another,
and position, catch-up, data intervals and backfills only know the moments.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

MAX_DATES = 400
"""Limit of the dates of a calendar: it is kept in the record of each pipeline that uses it."""
MAX_DAYS_OFF = 31
"""Limit of days without work in a row, so that the next working day is found soon."""
_DAY = timedelta(days=1)
_MONTHS = 48
"""How many months without an n-th working day end the search for one."""


class OnHolidays(StrEnum):
    """What a schedule with a calendar does about a fire time on a day that is not worked."""

    SKIP = "skip"
    BEFORE = "before"
    """It fires at the same time of the last working day before."""
    AFTER = "after"
    """It fires at the same time of the next working day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The days that are worked."""

    weekdays: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Weekdays that are worked; 0 is Monday."""
    exceptions: tuple[date, ...] = ()
    """In order: holidays on such weekdays, and days that are worked on other weekdays."""

    def is_working(self, day: date) -> bool:
        """True when a day is worked."""
        place = bisect_left(self.exceptions, day)
        is_exception = self.exceptions[place : place + 1] == (day,)
        return (day.weekday() in self.weekdays) is not is_exception

    def next_working(self, day: date) -> date:
        """The first working day from a day on, which may be that day. OverflowError: the end of all dates."""
        while not self.is_working(day):
            day += _DAY
        return day

    def last_working(self, day: date) -> date:
        """The last working day up to a day, which may be that day. OverflowError: the start of all dates."""
        while not self.is_working(day):
            day -= _DAY
        return day

    def next_numbered(self, day: date, number: int) -> date | None:
        """The first day from a day on that is the n-th working day of its month, counted from 1.

        Negative: counted from the end, -1 is the last one. None: no month has so many.
        """
        first = day.replace(day=1)
        for _ in range(_MONTHS):
            after = (first + 31 * _DAY).replace(day=1)
            days = [first + offset * _DAY for offset in range((after - first).days)]
            worked = [day for day in days if self.is_working(day)]
            place = number - 1 if number > 0 else len(worked) + number
            if 0 <= place < len(worked) and worked[place] >= day:
                return worked[place]
            first = after
        return None

    def stretch_off(self) -> date | None:
        """The start of more than `MAX_DAYS_OFF` days in a row that are not worked; None: there is none."""
        for exception in self.exceptions:
            if not any(self.is_working(exception + offset * _DAY) for offset in range(MAX_DAYS_OFF + 1)):
                return exception
        return None


def days_in_words(calendar: str | None, on_holidays: str, working_day: int | None) -> str:
    """On what days a schedule fires, such as `on working days (calendar de)`; empty: it has no calendar."""
    if calendar is None:
        return ""
    if working_day is not None:
        which = "the last working day" if working_day == -1 else f"working day {working_day}"
        return f"on {which} of a month (calendar {calendar})"
    moved = {"before": ", else the one before", "after": ", else the next"}.get(on_holidays, "")
    return f"on working days{moved} (calendar {calendar})"
