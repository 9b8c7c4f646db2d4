"""Backfills: the API and the command line, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from click.testing import Result

from nimbus.domain.commands import ControlBackfill, CreateBackfill
from nimbus.domain.ids import BackfillId, ReleaseDigest
from nimbus.domain.pipelines.backfill import (
    Backfill,
    BackfillRequest,
    BackfillState,
    OnFailure,
    Order,
    Reprocess,
)
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import Concurrency, Schedule
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import RunState
from tests.nimbus.definitions import active
from tests.nimbus.integration.conftest import T0

Invoke = Callable[..., Result]
DAY = timedelta(days=1)
ID = BackfillId("b1")
RANGE = ("--from", "2026-02-01", "--to", "2026-02-03")


@pytest.fixture(autouse=True)
def spec(world: Any) -> Any:
    """It fires at 06:00 in Berlin, and one of its runs may be live at a time."""
    schedule = Schedule(cron="0 6 * * *", timezone="Europe/Berlin")
    spec = replace(world.spec, schedule=schedule, concurrency=Concurrency(limit=1))
    world.cluster.put(active(spec))
    return spec


def backfill(**changes: Any) -> Backfill:
    request = BackfillRequest(first=T0 - 30 * DAY, last=T0, max_parallel=2, total=30)
    known = Backfill(
        id=ID,
        pipeline="sums",  # type: ignore[arg-type]
        release=ReleaseDigest("0" * 64),
        schedule=None,
        request=request,
        created_at=T0,
        created_by="api@s1",
        skipped=5,
        started=12,
        succeeded=9,
        failed=1,
    )
    return replace(known, **changes)


def submitted(world: Any, nimbus: Invoke, *words: str) -> Any:
    """The command that a command line submits while there is no leader."""
    world.deciding, world.health.leading = False, None
    assert nimbus(*words).exit_code == 6
    (queued,) = world.reader.commands()
    return queued.command


def test_command_line_creates_the_backfill_that_it_describes(world: Any, nimbus: Invoke) -> None:
    words = "--max-parallel 3 --reprocess failed --order newest --on-failure continue --param x=1 --id b1"
    command = submitted(world, nimbus, "backfill", "create", "sums", *RANGE, *words.split())

    assert command == CreateBackfill(
        pipeline=world.spec.name,
        backfill=ID,
        request=BackfillRequest(
            first=datetime(2026, 1, 31, 23, tzinfo=UTC),
            last=datetime(2026, 2, 3, 23, tzinfo=UTC) - timedelta(microseconds=1),
            max_parallel=3,
            reprocess=Reprocess.FAILED,
            order=Order.NEWEST,
            on_failure=OnFailure.CONTINUE,
            parameters={"x": 1},
            total=3,
        ),
    )


@pytest.mark.parametrize(
    ("words", "to", "reason"),
    [
        (("pause", "b1", "--reason", "night"), BackfillState.PAUSED, "night"),
        (("resume", "b1"), BackfillState.ACTIVE, "by resume"),
        (("cancel", "b1"), BackfillState.CANCELLED, "by cancel"),
    ],
)
def test_command_line_steers_a_backfill(
    world: Any, nimbus: Invoke, words: tuple[str, ...], to: BackfillState, reason: str
) -> None:
    world.cluster.put(backfill())

    assert submitted(world, nimbus, "backfill", *words) == ControlBackfill(backfill=ID, to=to, reason=reason)


def test_dry_run_says_which_dates_would_get_a_run_and_creates_nothing(world: Any, nimbus: Invoke) -> None:
    end = datetime(2026, 2, 2, 5, tzinfo=UTC)
    done = replace(
        world.new_run("r"),
        state=RunState.SUCCEEDED,
        finished_at=T0,
        data_interval=DataInterval(start=end - DAY, end=end),
    )
    world.cluster.set("intervals", world.spec.name, IntervalIndex(begins=end - DAY).with_run(done))

    found = nimbus("backfill", "create", "sums", *RANGE, "--dry-run", "-o", "json")
    answer = json.loads(found.stdout)

    assert [row["state"] for row in answer["dates"]] == ["unknown", "succeeded", "missing"]
    assert (answer["total"], answer["runs"]) == (3, 2)
    assert world.reader.commands() == ()


@pytest.mark.parametrize(
    ("change", "runs", "why"),
    [
        (
            {},
            ("queued", "running"),
            "1 of its 2 runs are queued, and wait for the concurrency limit 1 of sums",
        ),
        (
            {},
            ("running", "running"),
            "max_parallel (2) is reached: the end of one run starts the next",
        ),
        ({}, ("running",), "its next date starts as soon as the leader has release 000000000000"),
        ({"position": T0}, ("running",), "all dates are dealt with: it ends with the last of its runs"),
        (
            {"state": BackfillState.PAUSED, "reason": "run r failed"},
            (),
            "paused (run r failed): `nimbus backfill resume b1` lets it go on",
        ),
        ({"state": BackfillState.FINISHED}, (), None),
    ],
)
def test_backfill_says_how_far_it_is_and_what_it_waits_for(
    world: Any, nimbus: Invoke, change: dict[str, Any], runs: tuple[str, ...], why: str | None
) -> None:
    world.cluster.put(backfill(**change))
    for number, state in enumerate(runs):
        run = replace(world.new_run(f"b1-{number}"), backfill=ID)
        world.cluster.put(lifecycle.queued(run) if state == "queued" else run)

    answer = json.loads(nimbus("backfill", "show", "b1", "-o", "json").stdout)

    assert answer["why"] == why
    assert answer["progress"].endswith(" of 30, 2 under way")
    assert len(answer["runs"]) == len(runs)
    assert nimbus("backfill", "show", "b1").exit_code == 0


def test_backfill_of_a_paused_pipeline_says_so(world: Any, nimbus: Invoke, spec: Any) -> None:
    world.cluster.put(active(spec, state=PipelineState.PAUSED), backfill())

    answer = json.loads(nimbus("backfill", "show", "b1", "-o", "json").stdout)

    assert answer["why"] == "pipeline sums is paused: `nimbus pipeline activate sums` lets it go on"


def test_backfills_are_listed_newest_first(world: Any, nimbus: Invoke) -> None:
    world.cluster.put(backfill(), backfill(id=BackfillId("b2"), created_at=T0 + DAY))

    lines = nimbus("backfill", "list", "--pipeline", "sums").stdout.splitlines()

    assert [line.split()[0] for line in lines[-2:]] == ["b2", "b1"]
    assert nimbus("backfill", "list", "--pipeline", "other").stderr.strip() == "no backfills"


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"to": "2026-01-01"}, 409, "no_dates"),
        ({"from": "1700-01-01"}, 409, "too_many_dates"),
        ({"max_parallel": 101}, 422, "invalid_request"),
        ({"every": "1s"}, 409, "bad_every"),
        ({"pipeline": "none"}, 404, "unknown_pipeline"),
    ],
)
def test_range_that_makes_no_backfill_is_refused(
    api_url: str, change: dict[str, Any], status: int, code: str
) -> None:
    body = {"pipeline": "sums", "id": "b1", "from": "2026-02-01", "to": "2026-02-03"} | change

    answer = httpx.post(f"{api_url}/api/v1/backfills", json=body, timeout=30)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_unknown_backfill_is_not_found(nimbus: Invoke) -> None:
    assert nimbus("backfill", "show", "b9").exit_code == 3
    assert nimbus("backfill", "pause", "b9").exit_code == 3
