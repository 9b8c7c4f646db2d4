"""The list of commands, over real HTTP and on the command line."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from nimbus.cli.main import cli
from nimbus.domain.commands import CommandOutcome, PausePipeline, StopRun
from nimbus.domain.ids import CommandId, PipelineName, RunId


def _old_refusal(world: Any) -> CommandOutcome:
    return CommandOutcome(
        command=CommandId("cmd-0000000000"),
        accepted=False,
        code="busy",
        message="it has live runs",
        decided_at=world.clock.time - timedelta(days=20),
        epoch=3,
        kind="remove_pipeline",
        pipeline=PipelineName("old"),
        submitted_by="ann",
    )


def test_waiting_commands_outcomes_and_old_refusals_are_listed_newest_first(
    world: Any, api: httpx.Client
) -> None:
    refusal = _old_refusal(world)
    world.history.store_outcomes([refusal])
    world.deciding = False
    world.cluster.put(world.new_run("r1"))
    world.queue.submit(StopRun(run_id=RunId("r1"), reason="x"), submitted_by="bob")
    world.queue.submit(PausePipeline(pipeline=PipelineName("other")), submitted_by="bob")

    answer = api.get("/commands").json()

    assert answer["history_complete"] is True
    assert [(row["status"], row["kind"], row["pipeline"]) for row in answer["commands"]][-1] == (
        "refused",
        "remove_pipeline",
        "old",
    )
    pending = {(row["kind"], row["pipeline"]) for row in answer["commands"] if row["status"] == "pending"}
    assert pending == {("stop_run", "sums"), ("pause_pipeline", "other")}

    (one,) = api.get("/commands", params={"refused": True}).json()["commands"]
    assert (one["command_id"], one["code"], one["submitted_by"]) == ("cmd-0000000000", "busy", "ann")
    assert api.get("/commands", params={"refused": True, "pipeline": "sums"}).json()["commands"] == []
    assert len(api.get("/commands", params={"limit": 1}).json()["commands"]) == 1


def test_list_says_who_asked_from_where_and_why_and_keeps_it(
    world: Any, api: httpx.Client, api_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"X-Nimbus-User": "ann", "X-Nimbus-Reason": "incident 7"}
    world.deciding = False
    api.post("/pipelines/sums/pause", headers=headers)
    (queued,) = world.reader.commands()
    (pending,) = api.get("/commands").json()["commands"]
    world.cluster.answer(
        CommandOutcome(
            command=queued.id,
            accepted=True,
            code="ok",
            message="done",
            decided_at=queued.submitted_at,
            epoch=7,
            submitted_by=queued.submitted_by,
            asked_by=queued.asked_by,
            kind="start_run",
        )
    )
    (decided,) = api.get("/commands").json()["commands"]

    assert {key: pending[key] for key in ("address", "reason", "epoch")} == {
        "address": "127.0.0.1",
        "reason": "incident 7",
        "epoch": None,
    }
    assert (decided["submitted_by"], decided["address"], decided["reason"], decided["epoch"]) == (
        "ann",
        "127.0.0.1",
        "incident 7",
        7,
    )
    monkeypatch.setenv("NIMBUS_SERVER", api_url)
    shown = CliRunner().invoke(cli, ["command", "list"]).stdout
    assert all(word in shown for word in ("ann", "127.0.0.1", "incident 7"))


def test_reason_of_a_command_is_that_of_the_list(world: Any, api: httpx.Client) -> None:
    world.deciding = False
    world.cluster.put(world.new_run("r1"))
    api.post("/runs/r1/stop", json={"reason": "wrong month"})

    assert [row["reason"] for row in api.get("/commands").json()["commands"]] == ["wrong month"]


def test_list_of_one_kind_or_of_who_asked_looks_through_all_of_history(world: Any, api: httpx.Client) -> None:
    old = [
        replace(
            _old_refusal(world),
            command=CommandId(f"cmd-{number:010d}"),
            kind="stop_run" if number == 0 else "pause_run",
            submitted_by="ann" if number == 0 else "bob",
            names={"run": "r1"},
        )
        for number in range(200)
    ]
    world.history.store_outcomes(old)
    for query in ({"kind": "stop_run"}, {"submitted_by": "ann"}):
        (one,) = api.get("/commands", params=query).json()["commands"]

        assert (one["command_id"], one["names"]) == ("cmd-0000000000", {"run": "r1"})


def test_the_list_says_when_history_is_down(world: Any, api: httpx.Client) -> None:
    world.releases.bucket.unavailable = True

    answer = api.get("/commands").json()

    assert (answer["commands"], answer["history_complete"]) == ([], False)


def test_the_command_prints_why_something_was_refused(
    world: Any, api_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIMBUS_SERVER", api_url)
    world.history.store_outcomes([_old_refusal(world)])

    shown = CliRunner().invoke(cli, ["command", "list", "--refused", "--pipeline", "old"])

    assert shown.exit_code == 0, shown.output
    assert "it has live runs" in shown.output
    assert "no commands" in CliRunner().invoke(cli, ["command", "list", "--pipeline", "sums"]).output
