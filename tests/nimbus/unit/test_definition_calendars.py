"""Calendars: their files with what is wrong in them, and the fire times of schedules that follow one."""

# ruff: noqa: E501 - one row of a table is one line

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from nimbus.config.problems import InvalidDocumentError
from nimbus.definition import InvalidDefinitionError, read_definition
from nimbus.definition.calendar_file import parse_calendar
from nimbus.definition.cron import fires_between, next_fire
from nimbus.definition.intervals import intervals_of
from nimbus.domain.pipelines.calendars import Calendar, OnHolidays
from nimbus.domain.pipelines.pipeline import Schedule

BERLIN = "Europe/Berlin"
EASTER = Calendar(exceptions=(date(2026, 4, 3), date(2026, 4, 6), date(2026, 5, 1), date(2026, 12, 25)))


def fires(schedule: Schedule, after: str, until: str) -> list[str]:
    zone = ZoneInfo(schedule.timezone)
    first, last = (datetime.fromisoformat(text).replace(tzinfo=zone) for text in (after, until))
    return [f"{one.astimezone(zone):%a %d %H:%M}" for one in fires_between(schedule, first, last, 1000)]


@pytest.mark.parametrize(
    ("cron", "more", "after", "until", "expected"),
    [
        (
            "30 2 * * *",
            {},
            "2026-04-01T12:00",
            "2026-04-08T12:00",
            ["Thu 02 02:30", "Tue 07 02:30", "Wed 08 02:30"],
        ),
        # Good Friday to Easter Monday move to Thursday or Tuesday, which have their own: that is one fire
        ("0 6 * * 5,6,0,1", {"on_holidays": OnHolidays.BEFORE}, "2026-04-01", "2026-04-09", ["Thu 02 06:00"]),
        ("0 6 * * 5,6,0,1", {"on_holidays": OnHolidays.AFTER}, "2026-04-01", "2026-04-09", ["Tue 07 06:00"]),
        (
            "0 6 1 * *",
            {"on_holidays": OnHolidays.BEFORE},
            "2026-04-02",
            "2026-08-02",
            ["Thu 30 06:00", "Mon 01 06:00", "Wed 01 06:00", "Fri 31 06:00"],
        ),
        (
            "0 6 1 * *",
            {"on_holidays": OnHolidays.AFTER},
            "2026-04-02",
            "2026-08-04",
            ["Mon 04 06:00", "Mon 01 06:00", "Wed 01 06:00", "Mon 03 06:00"],
        ),
        # in the order of the clock, though moved across days
        ("0 18 * * sat", {"on_holidays": OnHolidays.AFTER}, "2026-04-08", "2026-04-14", ["Mon 13 18:00"]),
        (
            "0 18,6 * * sat,sun",
            {"on_holidays": OnHolidays.AFTER},
            "2026-04-08",
            "2026-04-14",
            ["Mon 13 06:00", "Mon 13 18:00"],
        ),
        (
            "0 18 * * *",
            {"working_day": -1},
            "2026-01-01",
            "2026-06-01",
            ["Fri 30 18:00", "Fri 27 18:00", "Tue 31 18:00", "Thu 30 18:00", "Fri 29 18:00"],
        ),
        ("0 18 * * *", {"working_day": 3}, "2026-04-01", "2026-05-31", ["Tue 07 18:00", "Wed 06 18:00"]),
        ("0 18 * 2,3 *", {"working_day": 1}, "2026-01-01", "2026-12-31", ["Mon 02 18:00", "Mon 02 18:00"]),
        ("0 18 * * *", {"working_day": 23}, "2026-01-01", "2026-12-31", ["Fri 31 18:00"]),
        # Sunday lacks 02:30 when clocks go forward: what moves to Monday is still 02:30, once
        (
            "30 2 * * *",
            {"on_holidays": OnHolidays.AFTER},
            "2026-03-27T12:00",
            "2026-03-31T12:00",
            ["Mon 30 02:30", "Tue 31 02:30"],
        ),
        (
            "30 2 * * sun",
            {"on_holidays": OnHolidays.BEFORE},
            "2026-03-23",
            "2026-03-31T12:00",
            ["Fri 27 02:30"],
        ),
        (
            "*/30 2 * * *",
            {},
            "2026-10-22T12:00",
            "2026-10-26T12:00",
            ["Fri 23 02:00", "Fri 23 02:30", "Mon 26 02:00", "Mon 26 02:30"],
        ),
        ("0 6 * * sun", {}, "2026-01-01", "2026-12-31", []),
    ],
)
def test_schedule_fires_on_the_days_of_its_calendar(
    cron: str, more: dict[str, object], after: str, until: str, expected: list[str]
) -> None:
    schedule = Schedule(cron=cron, timezone=BERLIN, calendar="de", days=EASTER, **more)  # type: ignore[arg-type]  # its fields

    assert fires(schedule, after, until) == expected


def test_day_that_is_worked_on_a_weekend_counts() -> None:
    days = parse_calendar(b"holidays: [2026-02-16..2026-02-20]\nworkdays: [2026-02-14]\n", "cn.yaml")
    schedule = Schedule(cron="0 6 * * *", timezone="Asia/Shanghai", calendar="cn", days=days)

    assert fires(schedule, "2026-02-12T12:00", "2026-02-24") == [
        "Fri 13 06:00",
        "Sat 14 06:00",
        "Mon 23 06:00",
    ]


@pytest.mark.parametrize("on_holidays", list(OnHolidays))
@pytest.mark.parametrize(
    "zone", ["America/New_York", "Australia/Lord_Howe", "America/Santiago", "America/Havana"]
)
@pytest.mark.parametrize("cron", ["30 2 * * *", "45 1 * * *", "0,30 0 * * *", "30 23 1,15 * *", "15 2 * * *"])
def test_calendar_without_holidays_changes_no_fire_time_of_a_year(
    cron: str, zone: str, on_holidays: OnHolidays
) -> None:
    days = Calendar(weekdays=(0, 1, 2, 3, 4, 5, 6))
    plain = Schedule(cron=cron, timezone=zone)
    followed = Schedule(cron=cron, timezone=zone, calendar="all", days=days, on_holidays=on_holidays)
    year = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))

    found = fires_between(plain, *year, 1000)
    assert len(found) > 20
    assert fires_between(followed, *year, 1000) == found


def test_intervals_of_moved_fire_times_leave_no_gap() -> None:
    schedule = Schedule(
        cron="0 6 * * *", timezone=BERLIN, calendar="de", days=EASTER, on_holidays=OnHolidays.AFTER
    )
    found = fires_between(schedule, datetime(2026, 4, 1, tzinfo=UTC), datetime(2026, 4, 9, tzinfo=UTC), 100)

    intervals = intervals_of(schedule, found)

    assert [one.start for one in intervals[1:]] == [one.end for one in intervals[:-1]]
    assert max(one.end - one.start for one in intervals) == timedelta(days=5), (
        "from Maundy Thursday to Tuesday"
    )


def test_schedule_that_never_fires_is_found_soon() -> None:
    never = Schedule(cron="* * * * sun", timezone=BERLIN, calendar="de", days=EASTER)

    assert next_fire(never, datetime(2026, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "de.yaml: the document is empty"),
        ("holidays: []\n", "de.yaml: names no day; write `holidays: [2026-12-25]`, or `weekdays` that are worked"),
        ("weekdays: []\n", "de.yaml:1: weekdays: must not be empty"),
        ("holidays:\n  - 2026-05-01\n  - 2026-12-25\n  - 2026-05-01\n", "de.yaml:4: holidays[2]: 2026-05-01 is here twice (first on line 2); keep one"),
        ("holidays:\n  - 2026-12-24..2026-12-31\n  - 2026-12-25\n", "de.yaml:3: holidays[1]: 2026-12-25 is here twice (first on line 2); keep one"),
        ("holidays: [2026-05-01]\nworkdays: [2026-05-01]\n", "de.yaml:2: workdays[0]: 2026-05-01 is here twice (first on line 1); keep one"),
        ("holidays: [2026-02-30]\n", "de.yaml:1: holidays[0]: YAML cannot read this value; put it in quotes"),
        ("holidays: ['2026-02-30']\n", "de.yaml:1: holidays[0]: must be a date such as 2026-12-25, or a range such as 2026-12-24..2026-12-31, not '2026-02-30'"),
        ("holidays: [2026-12-31..2026-12-24]\n", "de.yaml:1: holidays[0]: ends before it starts; write 2026-12-24..2026-12-31"),
        ("holidays: [2026-01-01..2036-01-01]\n", "de.yaml:1: holidays[0]: has more than 400 days; a calendar has at most so many"),
        ("holidays: [2026-01-01..2026-03-01]\n", "de.yaml:1: holidays: no day is worked from 2026-01-01 on for more than 31 days"),
        ("weekdays: [mon, mon]\n", "de.yaml:1: weekdays: names a weekday twice; keep one"),
        ("weekdays: [mo]\n", "de.yaml:1: weekdays[0]: must be one of mon, tue, wed, thu, fri, sat, sun, not 'mo' (did you mean \"mon\"?)"),
        ("holiday: [2026-05-01]\n", "de.yaml:1: holiday: unknown key (did you mean \"holidays\"?)"),
        ("holidays: [2026-05-01]\n" + "#" * 70_000, "de.yaml: a calendar has at most 64 KiB"),
    ],
)  # fmt: skip
def test_calendar_is_refused_with_its_place_and_what_to_do(text: str, message: str) -> None:
    with pytest.raises(InvalidDocumentError) as refused:
        parse_calendar(text.encode(), "de.yaml")

    assert str(refused.value) == message


def test_calendar_of_the_release_is_read_with_its_definition(tmp_path: Path) -> None:
    (tmp_path / "calendars").mkdir()
    (tmp_path / "a.py").touch()
    text = "schema: 1\nname: p\nschedules:\n  d: {cron: '@daily', calendar: de}\n  m: {cron: '@daily', calendar: of-cluster}\ntasks: {a: {type: python, script: a.py}}\n"
    (tmp_path / "pipeline.yaml").write_text(text)
    (tmp_path / "calendars" / "de.yaml").write_text("holidays: [2026-05-01, 2026-05-02]\n")

    spec = read_definition(tmp_path)

    found = [(one.name, one.days, one.of_release) for one in spec.schedules]
    days = Calendar(exceptions=(date(2026, 5, 1),))  # 2 May is a Saturday
    assert found == [("d", days, True), ("m", None, False)]

    (tmp_path / "calendars" / "de.yaml").write_text("holidays: [2026-05-01, 2026-05-01]\n")
    with pytest.raises(InvalidDefinitionError) as refused:
        read_definition(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}/calendars/de.yaml:1: holidays[1]: 2026-05-01 is here twice (first on line 1); keep one"
    )
