"""The state of a run at a past moment, over real HTTP and on the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.domain.ids import RunId


def _at(run: Any, **after: float) -> str:
    return str((run.created_at + timedelta(**after)).isoformat())


def test_a_run_in_history_is_shown_as_it_stood_between_two_attempts(world: Any, api: httpx.Client) -> None:
    run = world.failed("r1")
    world.history.store(run)
    at = {"at": _at(run, minutes=3)}

    first, again = api.get("/runs/r1/replay", params=at), api.get("/runs/r1/replay", params=at)

    assert first.content == again.content
    answer = first.json()
    assert (answer["state"], answer["verdict"], answer["reason"]) == ("running", None, "")
    assert [(task["name"], task["state"], len(task["attempts"])) for task in answer["tasks"]] == [
        ("extract", "waiting", 1),
        ("load", "waiting", 0),
    ]
    assert [event["kind"] for event in answer["events"]] == [
        "run_created",
        "attempt_opened",
        "attempt_started",
        "attempt_ended",
    ]


def test_a_replay_at_the_end_has_the_states_of_the_run(world: Any, api: httpx.Client) -> None:
    run = world.failed("r1")

    answer = api.get("/runs/r1/replay", params={"at": _at(run, hours=9)}).json()

    shown = api.get("/runs/r1").json()
    assert (answer["state"], answer["reason"]) == (shown["state"], shown["reason"])
    assert {t["name"]: t["state"] for t in answer["tasks"]} == {t["name"]: t["state"] for t in shown["tasks"]}
    assert answer["events"] == api.get("/runs/r1/timeline").json()["events"]


def test_a_moment_that_the_run_has_not_is_refused(world: Any, api: httpx.Client) -> None:
    run = world.opened(world.new_run("r1"), "extract")

    for at, code in ((_at(run, hours=-1), "before_creation"), (_at(run, days=900), "in_future")):
        assert api.get("/runs/r1/replay", params={"at": at}).json()["code"] == code
    assert api.get("/runs/r1/replay", params={"at": "2026-03-01T06:00:00"}).status_code == 422
    assert api.get("/runs/absent/replay", params={"at": _at(run)}).status_code == 404


def test_the_command_prints_tasks_and_events(
    world: Any, api_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIMBUS_SERVER", api_url)
    run = world.failed("r1")
    assert run.id == RunId("r1")

    result = CliRunner().invoke(cli, ["run", "replay", "r1", "--at", _at(run, seconds=90)])

    assert result.exit_code == 0, result.output
    assert "state  running" in result.output
    extract = next(line for line in result.output.splitlines() if line.startswith("extract"))
    assert extract.split() == ["extract", "running", "1", "w1"]
    assert "attempt_ended" not in result.output
