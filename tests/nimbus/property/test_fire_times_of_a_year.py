"""Fire times of a whole year, minute by minute, in zones with different changes of their clocks.

The expected times are computed without cronsim: each minute of the year is converted to local time and
compared with the fields. A schedule that names its minutes and hours fires once for each local minute: the
first time it occurs, or, if clocks skip it, in the minute that follows. A schedule with `*` fires whenever it
matches.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, product
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pytest

from nimbus.definition.cron import fires_between, next_fire
from nimbus.definition.intervals import interval_of, previous_fire
from nimbus.domain.pipelines.calendars import Calendar, OnHolidays
from nimbus.domain.pipelines.pipeline import Schedule
from tests.thorough import at_most, sampled

ZONES = [
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "America/Santiago",
    "Africa/Casablanca",
    "America/New_York",
    "America/St_Johns",
    "Europe/Dublin",
    "Africa/Cairo",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "UTC",
]
"""With changes at midnight, by half an hour, at 02:45, twice around Ramadan; offsets of 45 minutes."""
UNCHANGED = ("UTC", "Asia/Kathmandu")
START, END = datetime(2025, 12, 31, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


Minutes = npt.NDArray[np.int64]
"""Whole minutes since 1970: in UTC, or in local time."""


class Fields(NamedTuple):
    """The values that a cron expression contains."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...] = tuple(range(24))
    weekdays: tuple[int, ...] = tuple(range(7))
    """Monday is 0."""
    days: tuple[int, ...] = tuple(range(1, 32))

    def match(self, shown: Minutes) -> npt.NDArray[np.bool_]:
        dates = shown.astype("datetime64[m]")
        days = (dates.astype("datetime64[D]") - dates.astype("datetime64[M]")).astype(int) + 1
        return (
            np.isin(shown % 60, self.minutes)
            & np.isin(shown // 60 % 24, self.hours)
            & np.isin((shown // 1440 + 3) % 7, self.weekdays)  # 1 January 1970 was a Thursday
            & np.isin(days, self.days)
        )


NAMED = {
    "0 0 * * *": Fields((0,), (0,)),
    "30 2 * * *": Fields((30,), (2,)),
    "15,45 1-3 * * *": Fields((15, 45), (1, 2, 3)),
    "59 23 * * 0": Fields((59,), (23,), weekdays=(6,)),
    "5 0 1 * *": Fields((5,), (0,), days=(1,)),
}
WITH_STARS = {
    "*/15 * * * *": Fields((0, 15, 30, 45)),
    "10 * * * *": Fields((10,)),
    "*/30 2 * * *": Fields((0, 30), (2,)),
    "*/20 0-2 * * *": Fields((0, 20, 40), (0, 1, 2)),
}


def minutes_of(zone: str) -> tuple[Minutes, Minutes]:
    """Each minute from START to END: in UTC, and in the local time of a zone."""
    info = ZoneInfo(zone)
    utc = np.arange(START.timestamp() // 60, END.timestamp() // 60, dtype=np.int64)
    offsets = (datetime.fromtimestamp(minute * 60, info).utcoffset() for minute in utc.tolist())
    return utc, utc + np.fromiter((offset // MINUTE for offset in offsets if offset is not None), np.int64)


def expected_named(fields: Fields, utc: Minutes, shown: Minutes) -> Minutes:
    """Each local minute the first time it occurs; skipped minutes together once, right after."""
    latest = np.concatenate(([shown[0] - 1], np.maximum.accumulate(shown)[:-1]))
    fires = fields.match(shown) & (shown > latest)
    for at in np.flatnonzero(shown - latest > 1):
        fires[at] = fields.match(np.arange(latest[at] + 1, shown[at] + 1)).any()
    return utc[fires]


def check(schedule: Schedule, expected: Minutes, changes: list[datetime]) -> None:
    found = fires_between(schedule, START - MINUTE, END - MINUTE, 100_000)

    assert found == tuple(datetime.fromtimestamp(minute * 60, UTC) for minute in expected.tolist())
    for before, fire in pairwise(found):  # a leader asks for one fire time after the other
        if any(abs(fire - change) < timedelta(hours=8) for change in changes):
            assert next_fire(schedule, before) == fire
            assert previous_fire(schedule, fire) == before


@pytest.mark.parametrize("zone", sampled(ZONES, at_most(4)))
def test_fire_times_of_a_year_are_those_of_each_minute_without_gap_or_double(zone: str) -> None:
    utc, shown = minutes_of(zone)
    changed = utc[1:][np.diff(shown) != 1].tolist()
    changes = [datetime.fromtimestamp(minute * 60, UTC) for minute in changed]

    for cron, fields in NAMED.items():
        check(Schedule(cron=cron, timezone=zone), expected_named(fields, utc, shown), changes)
    for cron, fields in WITH_STARS.items():
        check(Schedule(cron=cron, timezone=zone), utc[fields.match(shown)], changes)
    assert len(changes) == (0 if zone in UNCHANGED else 2)


def expected_moved(fields: Fields, days: Calendar, how: OnHolidays, utc: Minutes, shown: Minutes) -> Minutes:
    """The local minutes of the year, moved by day, the first time that each occurs or would."""
    minutes = np.arange(shown[0] - 40 * 1440, shown[-1] + 40 * 1440, dtype=np.int64)
    moved = set()
    for minute in minutes[fields.match(minutes)].tolist():
        day, of_day = divmod(minute, 1440)
        while not days.is_working(date(1970, 1, 1) + timedelta(days=day)):
            day += 1 if how is OnHolidays.AFTER else -1
        moved.add(day * 1440 + of_day)
    latest = np.maximum.accumulate(shown)
    places = np.searchsorted(latest, sorted(one for one in moved if shown[0] <= one <= latest[-1]))
    return np.unique(utc[places])


@pytest.mark.parametrize("zone", sampled(ZONES, at_most(2)))
def test_fire_times_of_a_year_follow_a_calendar_through_both_changes_of_clocks(zone: str) -> None:
    utc, shown = minutes_of(zone)
    changed = [datetime.fromtimestamp(minute * 60, UTC) for minute in utc[1:][np.diff(shown) != 1].tolist()]
    about = {one.astimezone(ZoneInfo(zone)).date() + timedelta(days=day) for one in changed for day in (0, 1)}
    some = {date(2026, 1, 1) + timedelta(days=day) for day in random.Random(zone).sample(range(360), 12)}
    off = tuple(sorted(day for day in about | some if day.weekday() < 5))
    for days in (Calendar(exceptions=off), Calendar(weekdays=(0, 1, 2, 3, 4, 5, 6), exceptions=off)):
        dates = range(int(shown[0]) // 1440, int(shown[-1]) // 1440 + 1)
        worked = [day for day in dates if days.is_working(date(1970, 1, 1) + timedelta(days=day))]
        for (cron, fields), how in product(NAMED.items(), OnHolidays):
            schedule = Schedule(cron=cron, timezone=zone, calendar="c", days=days, on_holidays=how)
            if how is OnHolidays.SKIP:
                every = expected_named(fields, utc, shown)
                expected = every[np.isin(every, utc[np.isin(shown // 1440, worked)])]
            else:
                expected = expected_moved(fields, days, how, utc, shown)
            check(schedule, expected, changed)
    assert len(changed) == (0 if zone in UNCHANGED else 2)


@pytest.mark.parametrize("zone", ZONES)
def test_intervals_of_a_year_join_without_gap_or_overlap(zone: str) -> None:
    schedule = Schedule(cron="0 6 * * *", timezone=zone)
    fires = fires_between(schedule, START, END, 1000)

    intervals = [interval_of(schedule, fire) for fire in fires]

    assert len(fires) == 366
    for one, after in pairwise(intervals):
        assert one is not None
        assert after is not None
        assert one.end == after.start
