"""Fire times: Debian's rules in a named zone, once each, in order, also when clocks change."""

# ruff: noqa: E501 - one row of a table is one line

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from nimbus.config.problems import SuggestingError
from nimbus.definition.cron import check_cron, check_timezone, fires_between, next_fire
from nimbus.domain.pipelines.pipeline import Schedule

NEW_YORK = "America/New_York"
LORD_HOWE = "Australia/Lord_Howe"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(cron: str, zone: str, after: str, until: str) -> list[str]:
    found = fires_between(Schedule(cron=cron, timezone=zone), at(after), at(until), 1000)
    assert all(fire.tzinfo is UTC for fire in found)
    return [f"{fire:%m-%d %H:%M}" for fire in found]


# New York, 2013: clocks go forward on 10 March at 02:00 EST (07:00 UTC), back on 3 November at 02:00 EDT (06:00 UTC).
# Lord Howe, 2013: forward half an hour on 6 October at 02:00 (+10:30), back on 7 April at 02:00 (+11).
@pytest.mark.parametrize(
    ("cron", "zone", "after", "until", "expected"),
    [
        # ordinary
        ("0 6 * * *", "UTC", "2013-01-01T06:00", "2013-01-03T06:00", ["01-02 06:00", "01-03 06:00"]),
        ("0 6 * * *", NEW_YORK, "2013-03-09T00:00", "2013-03-11T23:00", ["03-09 11:00", "03-10 10:00", "03-11 10:00"]),
        ("0 6 * * *", NEW_YORK, "2013-11-02T00:00", "2013-11-04T23:00", ["11-02 10:00", "11-03 11:00", "11-04 11:00"]),
        # within the missing hour: right after it, once
        ("30 2 * * *", NEW_YORK, "2013-03-09T12:00", "2013-03-11T23:00", ["03-10 07:00", "03-11 06:30"]),
        ("0,30 2 * * *", NEW_YORK, "2013-03-09T12:00", "2013-03-10T23:00", ["03-10 07:00"]),
        ("30 2,3 * * *", NEW_YORK, "2013-03-10T00:00", "2013-03-10T23:00", ["03-10 07:00", "03-10 07:30"]),
        ("30 2 * * *", NEW_YORK, "2013-03-10T07:00", "2013-03-11T23:00", ["03-11 06:30"]),
        # within the repeated hour: only the first time, for any start of the search
        ("30 1 * * *", NEW_YORK, "2013-11-03T00:00", "2013-11-04T23:00", ["11-03 05:30", "11-04 06:30"]),
        ("30 1 * * *", NEW_YORK, "2013-11-03T05:30", "2013-11-04T23:00", ["11-04 06:30"]),
        ("30 1 * * *", NEW_YORK, "2013-11-03T06:10", "2013-11-04T23:00", ["11-04 06:30"]),
        ("30 1 * * *", NEW_YORK, "2013-11-03T06:30", "2013-11-04T23:00", ["11-04 06:30"]),
        # `*`: elapsed time
        ("30 * * * *", NEW_YORK, "2013-03-10T06:00", "2013-03-10T08:45", ["03-10 06:30", "03-10 07:30", "03-10 08:30"]),
        ("30 * * * *", NEW_YORK, "2013-11-03T05:00", "2013-11-03T07:45", ["11-03 05:30", "11-03 06:30", "11-03 07:30"]),
        ("*/30 1 * * *", NEW_YORK, "2013-11-03T04:59", "2013-11-03T08:00", ["11-03 05:00", "11-03 05:30", "11-03 06:00", "11-03 06:30"]),
        ("*/30 2 * * *", NEW_YORK, "2013-03-10T00:00", "2013-03-10T23:00", []),
        # half an hour
        ("15 2 * * *", LORD_HOWE, "2013-10-05T00:00", "2013-10-06T23:00", ["10-05 15:30", "10-06 15:15"]),
        ("45 1 * * *", LORD_HOWE, "2013-04-06T00:00", "2013-04-07T23:00", ["04-06 14:45", "04-07 15:15"]),
        ("45 1 * * *", LORD_HOWE, "2013-04-06T15:05", "2013-04-07T23:00", ["04-07 15:15"]),
        ("*/30 2 * * *", LORD_HOWE, "2013-04-06T12:00", "2013-04-07T15:30", ["04-06 15:30", "04-06 16:00", "04-07 15:30"]),
        # a skipped midnight, a skipped day
        ("0 0 * * *", "America/Santiago", "2024-09-07T00:00", "2024-09-08T23:00", ["09-07 04:00", "09-08 04:00"]),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00", "2012-01-01T00:00", ["12-29 22:00", "12-30 10:00", "12-30 22:00", "12-31 22:00"]),
        # aliases, and both kinds of days
        ("@daily", NEW_YORK, "2013-01-01T00:00", "2013-01-02T05:00", ["01-01 05:00", "01-02 05:00"]),
        ("@Hourly", "UTC", "2013-01-01T00:30", "2013-01-01T02:00", ["01-01 01:00", "01-01 02:00"]),
        ("0 0 L * *", "UTC", "2024-02-01T00:00", "2024-03-31T00:00", ["02-29 00:00", "03-31 00:00"]),
        ("0 0 13 * FRI", "UTC", "2013-09-10T00:00", "2013-09-21T00:00", ["09-13 00:00", "09-20 00:00"]),
    ],
)  # fmt: skip
def test_fire_times(cron: str, zone: str, after: str, until: str, expected: list[str]) -> None:
    assert fires(cron, zone, after, until) == expected


def test_day_that_a_zone_left_out_is_run_once_right_after_it() -> None:
    """Samoa had no 30 December 2011: its noon fires at the next midnight, 31 December 00:00 (+14)."""
    found = fires("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00", "2012-01-05T00:00")

    assert found == ["12-30 10:00"]


def test_next_fire_is_the_first_of_those_between() -> None:
    schedule = Schedule(cron="0 6 * * *", timezone=NEW_YORK)

    assert next_fire(schedule, at("2013-03-09T11:00")) == at("2013-03-10T10:00")
    assert next_fire(schedule, at("2013-03-09T10:59:59.999999")) == at("2013-03-09T11:00")


def test_limit_bounds_what_is_answered() -> None:
    schedule = Schedule(cron="* * * * *", timezone="UTC")

    found = fires_between(schedule, at("2000-01-01T00:00"), at("2024-01-01T00:00"), 3)

    assert found == tuple(at("2000-01-01T00:00") + timedelta(minutes=n) for n in (1, 2, 3))


def test_schedule_that_never_fires_has_no_next_time() -> None:
    assert next_fire(Schedule(cron="0 0 30 2 *", timezone="UTC"), at("2024-01-01T00:00")) is None
    assert next_fire(Schedule(cron="0 0 * 2 MON#5", timezone="UTC"), at("2044-03-01T00:00")) is not None


def test_end_of_all_dates_is_no_error() -> None:
    last = datetime(9999, 12, 31, 23, 0, tzinfo=UTC)

    for zone in ("UTC", NEW_YORK, LORD_HOWE):
        assert next_fire(Schedule(cron="0 0 * * *", timezone=zone), last) is None


@pytest.mark.parametrize(
    "cron",
    [
        "0 6 * * *",
        " @daily ",
        "*/5 9-17 * * MON-FRI",
        "0 0 L * *",
        "0 0 * * 5L",
        "0 0 1 1 *",
        "0 0 29 2 *",
        "0 0 * * 7",
    ],
)
def test_good_cron_passes(cron: str) -> None:
    check_cron(cron)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("", "has 0 fields"),
        ("0 6 * *", "has 4 fields"),
        ("0 0 6 * * *", "has 6 fields"),
        ("60 * * * *", "'60' is not a valid minute: 0 to 59"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("* * 0 * *", "'0' is not a valid day-of-month"),
        ("* * * 13 *", "'13' is not a valid month"),
        ("* * * * 8", "'8' is not a valid day-of-week"),
        ("*/0 * * * *", "'*/0' is not a valid minute"),
        ("5-1 * * * *", "'5-1' is not a valid minute"),
        ("1/" + "9" * 5000 + " * * * *", "fields"),
        ("² * * * *", "is not a valid minute"),
        ("0 0 31 2,4,6 *", "never fires"),
        ("0 0 */31 2 MON#5", "never fires"),
        ("@reboot", "is not a known alias"),
        ("@dayly", "is not a known alias"),
    ],
)
def test_bad_cron_is_refused_with_its_field(cron: str, words: str) -> None:
    with pytest.raises(SuggestingError) as refused:
        check_cron(cron)

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("zone", "meant"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("america/newyork", "America/New_York"),
        ("Berlin", "Europe/Berlin"),
        ("right/Europe/Berlin", "Europe/Berlin"),
        ("", None),
        ("x" * 5000, None),
        ("a\0b", None),
    ],
)
def test_unknown_time_zone_is_refused_with_the_one_meant(zone: str, meant: str | None) -> None:
    with pytest.raises(SuggestingError) as refused:
        check_timezone(zone)

    assert refused.value.suggestion == meant


@pytest.mark.parametrize("zone", ["localtime", "Factory", "/etc/localtime", "Europe", "posix/Europe/Berlin"])
def test_what_is_no_zone_or_not_the_same_on_every_host_is_refused(zone: str) -> None:
    with pytest.raises(SuggestingError, match="is not a time zone"):
        check_timezone(zone)


def test_known_time_zones_pass() -> None:
    for zone in ("UTC", "Etc/GMT+5", NEW_YORK, LORD_HOWE, "Africa/Casablanca"):
        check_timezone(zone)
