"""Moments on the calendar of a time zone. Pure.

A local date has the zone's offset, in whole minutes, and not the zone: a record keeps no more, and a date of
a named zone within a repeated hour equals no date that was read.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any


def local(moment: datetime, zone: tzinfo) -> datetime:
    """An aware moment with the offset that `zone` has then. OverflowError: its calendar ends before."""
    offset = moment.astimezone(zone).utcoffset() or timedelta(0)
    return moment.astimezone(timezone(timedelta(minutes=round(offset / timedelta(minutes=1)))))


def on_calendar(moment: datetime, zone: tzinfo, change: Callable[[datetime], Any]) -> datetime:
    """`moment` with its local date and time changed by `change`, which is given them without a zone.

    A time within a missing hour becomes the one as long after it; within a repeated hour, the first is meant,
    unless nothing changes.
    """
    shown = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    changed = change(shown)
    if changed == shown:
        return local(moment, zone)
    return local(changed.replace(tzinfo=zone).astimezone(UTC), zone)


def earlier(moment: datetime, length: timedelta, zone: tzinfo) -> datetime:
    """A moment before another one: whole days are days of the calendar, and the rest is time that passes.

    Raises:
        OverflowError: the calendar does not reach that far.
    """
    days = timedelta(days=length.days)
    return on_calendar(moment, zone, lambda at: at - days) - (length - days)
