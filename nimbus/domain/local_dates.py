"""Moments on the calendar of a time zone. Pure.

A local date has the zone's offset, in whole minutes, but not the zone. A record keeps the offset alone,
and a datetime with a named zone in a repeated hour is unequal to every datetime with an offset.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any


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

    Raises:
        OverflowError: the result is outside the calendar.
    """
    days = timedelta(days=length.days)
    return on_calendar(moment, zone, lambda at: at - days) - (length - days)
