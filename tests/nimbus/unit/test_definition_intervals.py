"""Data intervals of scheduled runs: from the previous fire time, or with a length, by the zone's calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from nimbus.definition.cron import next_fire
from nimbus.definition.intervals import interval_of, previous_fire
from nimbus.domain.pipelines.pipeline import Schedule

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "zone", "fire", "start", "hours"),
    [
        ("0 6 * * *", BERLIN, "2026-03-28T05:00", "2026-03-27T05:00", 24),
        ("0 6 * * *", BERLIN, "2026-03-29T04:00", "2026-03-28T05:00", 23),
        ("0 6 * * *", BERLIN, "2026-10-25T05:00", "2026-10-24T04:00", 25),
        ("0 0 * * *", "Australia/Lord_Howe", "2026-10-04T13:00", "2026-10-03T13:30", 23.5),
        ("30 2 * * *", BERLIN, "2026-03-29T01:00", "2026-03-28T01:30", 23.5),
        ("0 6 * * mon-fri", BERLIN, "2026-03-30T04:00", "2026-03-27T05:00", 71),
        ("*/5 * * * *", BERLIN, "2026-03-29T01:00", "2026-03-29T00:55", 1 / 12),
        ("0 0 29 2 *", "UTC", "2104-02-29T00:00", "2096-02-29T00:00", 24 * 2921),
    ],
)
def test_interval_starts_at_the_fire_time_before(
    cron: str, zone: str, fire: str, start: str, hours: float
) -> None:
    schedule = Schedule(cron=cron, timezone=zone)
    assert next_fire(schedule, at(start)) == at(fire)

    found = interval_of(schedule, at(fire))

    assert found is not None
    assert (found.start, found.end) == (at(start), at(fire))
    assert found.end - found.start == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("length", "start"),
    [
        (timedelta(days=7), "2026-03-23T05:00"),
        (timedelta(days=1), "2026-03-29T04:00"),
        (timedelta(days=1, hours=12), "2026-03-28T16:00"),
        (timedelta(hours=6), "2026-03-29T22:00"),
    ],
)
def test_whole_days_of_a_given_length_are_days_of_the_calendar(length: timedelta, start: str) -> None:
    schedule = Schedule(cron="0 6 * * *", timezone=BERLIN, data_interval=length)

    found = interval_of(schedule, at("2026-03-30T04:00"))

    assert found is not None
    assert (found.start, found.end) == (at(start), at("2026-03-30T04:00"))


def test_length_in_hours_is_time_that_passes_also_within_a_repeated_hour() -> None:
    schedule = Schedule(cron="30 * * * *", timezone=BERLIN, data_interval=timedelta(hours=6))
    second = at("2026-10-25T01:30")  # 02:30 for the second time

    found = interval_of(schedule, second)

    assert found is not None
    assert found.end - found.start == timedelta(hours=6)


def test_length_that_begins_before_all_dates_gives_no_interval() -> None:
    schedule = Schedule(cron="0 6 * * *", timezone=BERLIN, data_interval=timedelta(days=999_999))

    assert interval_of(schedule, at("2026-10-25T05:00")) is None


def test_schedule_without_an_earlier_fire_time_has_no_interval() -> None:
    yearly = Schedule(cron="0 0 1 1 *", timezone="UTC")

    assert previous_fire(yearly, datetime(1, 1, 1, tzinfo=UTC)) is None
    assert interval_of(yearly, datetime(1, 1, 1, tzinfo=UTC)) is None
