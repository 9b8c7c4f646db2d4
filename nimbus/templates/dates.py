"""Dates in templates: those of the run, and functions on the calendar of the schedule's time zone.

Used where templates are rendered: in the scheduler, and in the driver of a SQL task.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from jinja2 import StrictUndefined

from nimbus.domain.pipelines.intervals import NO_INTERVAL, local, on_calendar
from nimbus.templates.names import INTERVAL
from nimbus.templates.sandbox import check_format


def date_values(
    logical_date: datetime, interval: tuple[datetime, datetime] | None, tz: str
) -> dict[str, Any]:
    """The values of `nimbus.templates.names.DATES` for one run.

    Args:
        logical_date: The logical date, with the zone's offset.
        interval: Start and end of the run's data interval, with the zone's offsets; None: it has none.
        tz: IANA name of the schedule's zone.
    """
    functions = DateFunctions(ZoneInfo(tz))
    ends = interval or [StrictUndefined(hint=NO_INTERVAL, name=name) for name in INTERVAL]
    return {
        "ds": f"{logical_date:%Y-%m-%d}",
        "ds_nodash": f"{logical_date:%Y%m%d}",
        "logical_date": logical_date,
        **dict(zip(INTERVAL, ends)),
        "tz": tz,
        "days": functions.days,
        "months": functions.months,
        "month_start": functions.month_start,
        "month_end": functions.month_end,
        "week_start": functions.week_start,
        "fmt": functions.fmt,
    }


class DateFunctions:
    """Functions on dates. Each takes a datetime, a date, or an ISO text, and returns a datetime or a date.

    They raise TypeError, ValueError or OverflowError.
    """

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone

    def days(self, value: Any, number: int) -> date:
        """`number` days later, at the same local time."""
        return self._changed(value, lambda day: day + timedelta(days=_whole(number)))

    def months(self, value: Any, number: int) -> date:
        """`number` months later, on the same day of the month, or on the last if the month is shorter."""

        def moved(day: date) -> date:
            year, month = divmod(day.year * 12 + day.month - 1 + _whole(number), 12)
            last = monthrange(year, month + 1)[1]
            return day.replace(year=year, month=month + 1, day=min(day.day, last))

        return self._changed(value, moved)

    def month_start(self, value: Any) -> date:
        """The beginning of the first day of the month."""
        return self._changed(value, lambda day: _midnight(day.replace(day=1)))

    def month_end(self, value: Any) -> date:
        """The beginning of the last day of the month."""
        return self._changed(
            value, lambda day: _midnight(day.replace(day=monthrange(day.year, day.month)[1]))
        )

    def week_start(self, value: Any) -> date:
        """The beginning of the week's Monday."""
        return self._changed(value, lambda day: _midnight(day - timedelta(days=day.weekday())))

    def fmt(self, value: Any, pattern: str) -> str:
        """The local date as text, by a pattern of `strftime`."""
        check_format(pattern)
        date = _date(value)
        return (self._local(date) if isinstance(date, datetime) else date).strftime(pattern)

    def _changed(self, value: Any, change: Callable[[Any], date]) -> date:
        moment = _date(value)
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            return change(moment)
        return on_calendar(moment, self._zone, change)

    def _local(self, moment: datetime) -> datetime:
        return moment if moment.tzinfo is None else local(moment, self._zone)


def _date(value: Any) -> date:
    if isinstance(value, StrictUndefined):
        str(value)  # raises, with its hint
    if isinstance(value, str):
        return date.fromisoformat(value) if len(value) <= len("2026-01-31") else datetime.fromisoformat(value)
    if not isinstance(value, date):
        raise TypeError(f"{type(value).__name__} is neither a date nor a text such as 2026-01-31")
    return value


def _midnight(day: Any) -> Any:
    return datetime.combine(day, time()) if isinstance(day, datetime) else day


def _whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{type(number).__name__} is no whole number")
    return number
