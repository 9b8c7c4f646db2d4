"""Times on pages: the zone of the pipeline, of a choice, and names of dates."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from starlette.requests import Request

from nimbus.domain.pipelines.catalog import Profile
from nimbus.domain.pipelines.pipeline import Schedule
from nimbus.web.times import PIPELINES, DateZone, Times, choice, date_zone

FIRE = datetime(2026, 11, 4, 5, 30, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def _zone(*crons: str, zone: str = BERLIN) -> DateZone:
    first, *others = (Schedule(cron=cron, timezone=zone) for cron in crons)
    return date_zone(Profile(schedule=first, more_schedules=tuple(others)))


def _dates(zone: DateZone, chosen: str = PIPELINES) -> Times:
    return Times(chosen, lambda _: zone, "sums")


@pytest.mark.parametrize(
    ("crons", "shown"),
    [
        (["30 6 * * *"], "2026-11-04"),
        (["30 6 * * 1-5"], "2026-11-04"),
        (["0 6 * * *"], "2026-11-04 06:30 CET"),  # a run by hand, at another time than the fires
        (["30 6,18 * * *"], "2026-11-04 06:30 CET"),
        (["30 * * * *"], "2026-11-04 06:30 CET"),
        (["30 6 * * *", "30 18 * * *"], "2026-11-04 06:30 CET"),
    ],
)
def test_data_date_is_only_a_date_when_that_names_one_fire(crons: list[str], shown: str) -> None:
    assert _dates(_zone(*crons)).date_text(FIRE) == shown


@pytest.mark.parametrize(
    ("chosen", "shown"), [("UTC", "2026-11-04 05:30Z"), (BERLIN, "2026-11-04"), ("Asia/Tokyo", None)]
)
def test_data_date_is_shown_in_the_zone_that_the_reader_has_chosen(chosen: str, shown: str | None) -> None:
    dates = _dates(_zone("30 6 * * *"), chosen)

    assert dates.date_text(FIRE) == (shown or "2026-11-04 14:30 JST")
    assert dates.text(FIRE).startswith("2026-11-04")


def test_midnight_names_a_date_unless_the_day_has_more_fires() -> None:
    midnight = datetime(2026, 11, 3, 23, tzinfo=UTC)

    assert _dates(_zone("30 6 * * *")).date_text(midnight) == "2026-11-04"
    assert _dates(_zone("@hourly")).date_text(midnight) == "2026-11-04 00:00 CET"
    assert _dates(date_zone(None)).date_text(midnight.replace(hour=0)) == "2026-11-03"


@pytest.mark.parametrize(
    ("query", "cookie", "chosen"),
    [
        ("", "", (PIPELINES, False)),
        ("times=UTC", "nimbus_times=Asia/Tokyo", ("UTC", True)),
        ("", "nimbus_times=Asia/Tokyo", ("Asia/Tokyo", False)),
        ("times=../../etc/passwd", "", (PIPELINES, False)),
        ("times=%22%3E%3Cscript%3E", "nimbus_times=UTC", ("UTC", False)),
        ("times=" + 65 * "A", "", (PIPELINES, False)),
        ("times=Mars/Olympus", "", (PIPELINES, False)),
    ],
)
def test_choice_is_a_known_zone_of_the_query_or_the_cookie(
    query: str, cookie: str, chosen: tuple[str, bool]
) -> None:
    headers = [(b"cookie", cookie.encode())]
    asked = Request({"type": "http", "query_string": query.encode(), "headers": headers})

    assert choice(asked) == chosen
