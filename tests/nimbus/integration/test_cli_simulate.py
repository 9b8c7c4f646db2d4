"""`nimbus simulate` against a real API server."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from nimbus.cli.main import cli
from nimbus.domain.pipelines.calendars import Calendar, OnHolidays
from nimbus.domain.pipelines.pipeline import Concurrency, Schedule, WhenFull

NIGHT = ("--from", "2026-03-28T22:30:00Z", "--to", "2026-03-29T03:30:00Z")


@pytest.fixture
def hourly(world: Any) -> Any:
    """`sums` fires each hour in Berlin, with one run at a time; it skips fire times if one is live."""
    profile = replace(
        world.record.profile,
        schedule=Schedule(cron="0 * * * *", timezone="Europe/Berlin"),
        concurrency=Concurrency(limit=1, when_full=WhenFull.SKIP),
    )
    world.cluster.put(replace(world.record, profile=profile))
    return world


def simulate(url: str, *words: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", "--server", url, *words])


def test_every_fire_is_shown_with_its_run(hourly: Any, api_url: str) -> None:
    result = simulate(api_url, *NIGHT, "--runs", "--assume", "90m", "-o", "json")

    found = json.loads(result.stdout)
    fates = [(run["fire"][11:16], run["fate"]) for run in found["runs"]]
    assert sorted(fates) == [
        ("00:00", "skipped"), ("01:00", "runs"), ("02:00", "skipped"), ("03:00", "runs"), ("23:00", "runs"),
    ]  # fmt: skip
    (line,) = found["pipelines"]
    assert (line["fires"], line["runs"], line["skipped"], line["basis"]) == (5, 3, 2, "assumed")


def test_each_schedule_fires_by_its_calendar(world: Any, api_url: str) -> None:
    """28 February 2026 is a Saturday. The position of `closing` is ahead."""
    days = {"calendar": "c", "days": Calendar(exceptions=(date(2026, 3, 2),)), "timezone": "Europe/Berlin"}
    daily = Schedule(name="daily", cron="0 6 * * *", on_holidays=OnHolidays.AFTER, **days)
    closing = Schedule(name="closing", cron="0 18 * * *", working_day=-1, **days)
    profile = replace(world.record.profile, schedule=daily, more_schedules=(closing,))
    ahead = datetime(2027, 3, 1, tzinfo=UTC)
    position = {"schedule_position": world.clock.now(), "positions": {"daily": ahead}}
    world.cluster.put(replace(world.record, profile=profile, **position))

    several = simulate(api_url, "--from", "2027-02-25", "--to", "2027-04-01", "--runs", "-o", "json")

    found = sorted((run["fire"][5:16], run["schedule"]) for run in json.loads(several.stdout)["runs"])
    assert found[:3] == [("02-26T17:00", "closing"), ("03-01T05:00", "daily"), ("03-02T05:00", "daily")]
    assert found[-2:] == [("03-31T04:00", "daily"), ("03-31T16:00", "closing")]
    assert len(found) == 25
    reasons = httpx.get(f"{api_url}/api/v1/pipelines/sums/explanation").json()["reasons"]
    said = {one["about"]: one["why"] for one in reasons}
    last = "0 18 * * * (Europe/Berlin) on the last working day of a month (calendar c): "
    assert said["schedule closing"].startswith(last)
    assert "calendar c names no date after 2026-03-02: is it up to date?" in said["schedule daily"]
    page = httpx.get(f"{api_url}/ui/pipelines/sums").text
    assert "on working days, else the next (calendar c)" in page


def test_duration_is_the_median_of_runs_that_succeeded(hourly: Any, api_url: str) -> None:
    for number, minutes in enumerate([10, 20, 60]):
        run = hourly.succeeded(f"r{number}")
        hourly.cluster.put(
            replace(run, started_at=run.created_at, finished_at=run.created_at + timedelta(minutes=minutes))
        )

    (line,) = json.loads(simulate(api_url, *NIGHT, "-o", "json").stdout)["pipelines"]

    assert (line["duration_s"], line["basis"]) == (1200.0, "median of 3")


def test_table_has_a_line_for_each_pipeline(hourly: Any, api_url: str) -> None:
    result = simulate(api_url, *NIGHT)

    assert result.exit_code == 0
    assert "sums" in result.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--from", "soon", "--to", "2026-03-29"), 2, "--from 'soon' is not a time"),
        (("--from", "2026-03-28", "--to", "9999-12-31T23:00-05:00"), 2, "in the years 1000 to 8999"),
        (("--from", "0001-01-01T00:00+05:00", "--to", "2026-03-28"), 2, "in the years 1000 to 8999"),
        (("--from", "2026-03-29", "--to", "2026-03-28"), 2, "--to must be later than --from"),
        ((*NIGHT, "--pipeline", "other"), 3, "other has no schedule that fires"),
    ],
)
def test_wrong_question_is_refused(
    hourly: Any, api_url: str, words: tuple[str, ...], code: int, said: str
) -> None:
    result = simulate(api_url, *words)

    assert result.exit_code == code
    assert said in result.stderr


def test_assumed_duration_without_a_unit_is_refused(api_url: str) -> None:
    result = simulate(api_url, *NIGHT, "--assume", "10")

    assert result.exit_code == 2
    assert 'did you mean "10s"' in result.stderr
