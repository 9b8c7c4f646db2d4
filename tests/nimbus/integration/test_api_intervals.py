"""The calendar of a pipeline: the API and the command line, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from click.testing import Result

from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import Schedule
from nimbus.domain.runs.run import RunState
from tests.nimbus.definitions import active
from tests.nimbus.integration.conftest import T0

Invoke = Callable[..., Result]
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def daily(world: Any) -> None:
    """It fires at 06:00 in Berlin. Of five dates one failed, one succeeded, one runs, one is unknown."""
    schedule = Schedule(cron="0 6 * * *", timezone="Europe/Berlin")
    world.cluster.put(active(replace(world.spec, schedule=schedule)))
    index = IntervalIndex(begins=T0 - 5 * DAY)
    for number, state in {4: RunState.FAILED, 3: RunState.SUCCEEDED}.items():
        run = world.new_run(f"r{number}")
        index = index.with_run(replace(run, state=state, finished_at=T0, data_interval=day(number)))
    world.cluster.set("intervals", world.spec.name, index)
    world.cluster.put(replace(world.new_run("r1"), data_interval=day(1)))


def day(ago: int) -> DataInterval:
    end = T0 - timedelta(hours=1) - ago * DAY
    return DataInterval(start=end - DAY, end=end)


def test_calendar_says_what_became_of_each_date(nimbus: Invoke) -> None:
    found = nimbus(
        "pipeline", "intervals", "sums", "--from", "2026-02-24", "--to", "2026-02-28", "-o", "json"
    )
    answer = json.loads(found.stdout)

    assert [(row["end"], row["state"], row["run"]) for row in answer["intervals"]] == [
        ("2026-02-24T05:00:00Z", "unknown", None),
        ("2026-02-25T05:00:00Z", "failed", "r4"),
        ("2026-02-26T05:00:00Z", "succeeded", "r3"),
        ("2026-02-27T05:00:00Z", "missing", None),
        ("2026-02-28T05:00:00Z", "running", "r1"),
    ]


def test_calendar_without_a_beginning_has_the_last_thirty_dates(nimbus: Invoke, api_url: str) -> None:
    answer = httpx.get(f"{api_url}/api/v1/pipelines/sums/intervals").json()

    assert len(answer["intervals"]) == 30
    assert answer["intervals"][-1]["end"] == "2026-03-01T05:00:00Z"
    assert (answer["timezone"], answer["next_from"]) == ("Europe/Berlin", None)
    lines = nimbus("pipeline", "intervals", "sums").stdout.splitlines()
    assert lines[-1].split() == ["2026-03-01", "05:00:00Z", "2026-02-28", "05:00:00Z", "missing"]


def test_calendar_comes_in_pages(nimbus: Invoke, api_url: str) -> None:
    dates = {"from": "2026-02-24", "to": "2026-02-28", "limit": 3}
    first = httpx.get(f"{api_url}/api/v1/pipelines/sums/intervals", params=dates).json()
    dates["from"] = first["next_from"]
    second = httpx.get(f"{api_url}/api/v1/pipelines/sums/intervals", params=dates).json()

    assert [len(page["intervals"]) for page in (first, second)] == [3, 2]
    assert second["next_from"] is None


def test_interval_that_is_no_date_of_the_schedule_is_shown_and_speaks_for_the_dates_that_it_covers(
    world: Any, nimbus: Invoke
) -> None:
    index = world.reader.intervals(world.spec.name)
    span = DataInterval(start=day(10).start, end=day(9).end + timedelta(hours=1))
    run = replace(world.new_run("wide"), state=RunState.SUCCEEDED, finished_at=T0, data_interval=span)
    world.cluster.set("intervals", world.spec.name, index.with_run(run))

    found = nimbus(
        "pipeline", "intervals", "sums", "--from", "2026-02-19", "--to", "2026-02-20", "-o", "json"
    )

    rows = json.loads(found.stdout)["intervals"]
    assert [(row["end"][:13], row["run"]) for row in rows] == [
        ("2026-02-19T05", "wide"),
        ("2026-02-20T05", "wide"),
        ("2026-02-20T06", "wide"),
    ]


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31T06:00:00", "0001-01-01"])
def test_bound_that_is_no_date_is_refused(nimbus: Invoke, text: str) -> None:
    refused = nimbus("pipeline", "intervals", "sums", "--from", text)

    assert refused.exit_code == 2
    assert "is neither a day" in refused.stderr
