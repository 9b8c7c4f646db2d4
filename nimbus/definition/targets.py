"""Targets of a pipeline that starts by data: the intervals between fire times of its schedule. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from nimbus.definition.cron import next_fire
from nimbus.definition.intervals import interval_of, previous_fire
from nimbus.domain.intervals import DataInterval
from nimbus.domain.local_dates import earlier
from nimbus.domain.pipeline import Schedule
from nimbus.domain.publications import Read

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Target:
    """A run that may be created: what it would read depends on these. See `nimbus.domain.reads.Reader`."""

    data_interval: DataInterval | None = None
    timezone: str = "UTC"


def target_of(schedule: Schedule, fire: datetime) -> Target:
    """The target of a fire time."""
    return Target(interval_of(schedule, fire), schedule.timezone)


def grid_of(schedule: Schedule, fire: datetime) -> DataInterval | None:
    """The time from the fire time before. These times join without gaps, whatever the data intervals are."""
    start = previous_fire(schedule, fire)
    return None if start is None else DataInterval(start=start, end=fire)


def newest(schedule: Schedule, now: datetime) -> DataInterval | None:
    """The time of the last target that has ended."""
    fire = previous_fire(schedule, now + _MOMENT)
    return None if fire is None else grid_of(schedule, fire)


def overlapping(read: Read, schedule: Schedule, changed: DataInterval) -> DataInterval | None:
    """The time of the targets whose runs read a changed interval; None: there is no such target."""
    first, last = next_fire(schedule, changed.start), last_reader(read, schedule, changed.end)
    start = None if first is None else previous_fire(schedule, first)
    if start is None or first is None or last is None or last < first:
        return None
    return DataInterval(start=start, end=last)


def last_reader(read: Read, schedule: Schedule, end: datetime) -> datetime | None:
    """The last fire time whose run reads data from before `end`."""
    length = read.last or schedule.data_interval
    if length is None:
        return next_fire(schedule, end - _MOMENT)
    # Days have another length when clocks change, so the guess may be a few fire times off.
    fire = previous_fire(schedule, end + length)
    while fire is not None and _start(fire, length, schedule) >= end:
        fire = previous_fire(schedule, fire)
    while fire is not None and (after := next_fire(schedule, fire)) is not None:
        if _start(after, length, schedule) >= end:
            break
        fire = after
    return fire


def first_reader_after(read: Read, schedule: Schedule, end: datetime) -> datetime | None:
    """The first fire time whose run reads only data from `end` on."""
    last = last_reader(read, schedule, end)
    return None if last is None else next_fire(schedule, last)


def _start(fire: datetime, length: timedelta, schedule: Schedule) -> datetime:
    return earlier(fire, length, ZoneInfo(schedule.timezone))
