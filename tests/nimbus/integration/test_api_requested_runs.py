"""A run between the answer to its start and the leader's decision, and one whose start was refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

START = {"pipeline": "sums", "run_id": "r1"}


@pytest.fixture
def undecided(world: Any, api: httpx.Client) -> str:
    """The command that requests run `r1`, without a decision."""
    world.deciding = False
    command: str = api.post("/runs", json=START).json()["command_id"]
    return command


def test_run_can_be_read_as_soon_as_its_start_is_answered(api: httpx.Client, undecided: str) -> None:
    answer = api.get("/runs/r1")

    assert (answer.status_code, answer.json()) == (
        200,
        {
            "id": "r1",
            "pipeline": "sums",
            "state": "pending",
            "reason": "",
            "tasks": [],
            "command": {"command_id": undecided, "status": "pending", "run_id": "r1", "outcome": None},
        },
    )


def test_pending_run_can_be_read_while_history_is_down(world: Any, api: httpx.Client, undecided: str) -> None:
    world.releases.bucket.unavailable = True

    assert api.get("/runs/r1").json()["state"] == "pending"


def test_run_that_is_started_between_two_looks_is_found(
    world: Any, api: httpx.Client, undecided: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = world.reader.commands

    def decided_first() -> Any:
        monkeypatch.setattr(world.reader, "commands", waiting)
        world.decide()
        return waiting()

    monkeypatch.setattr(world.reader, "commands", decided_first)

    assert api.get("/runs/r1").json()["state"] == "running"


def test_run_whose_start_was_refused_says_why(world: Any, api: httpx.Client, undecided: str) -> None:
    world.refuse = ("quarantined", "pipeline sums is quarantined: file lost")
    world.decide()

    answer = api.get("/runs/r1")

    body = answer.json()
    assert (answer.status_code, body["state"], body["pipeline"]) == (200, "refused", None)
    assert (body["command"]["command_id"], body["command"]["run_id"]) == (undecided, "r1")
    assert body["command"]["outcome"]["code"] == "quarantined"
    assert body["reason"] == body["command"]["outcome"]["message"]


def test_run_that_was_refused_first_and_started_later_is_the_one_that_was_started(
    world: Any, api: httpx.Client, undecided: str
) -> None:
    world.refuse = ("quarantined", "file lost")
    world.decide()
    world.refuse = None

    api.post("/runs", json=START)

    assert api.get("/runs/r1").json()["state"] == "running"


@pytest.mark.parametrize(("refuse", "code"), [(None, "run_pending"), (("busy", "no"), "run_refused")])
def test_parts_of_a_run_that_is_not_started_are_a_404_that_says_so(
    world: Any, api: httpx.Client, undecided: str, refuse: Any, code: str
) -> None:
    if refuse is not None:
        world.refuse = refuse
        world.decide()

    answers = [
        api.get("/runs/r1/timeline"),
        api.get("/runs/r1/tasks/extract/log"),
        api.post("/runs/r1/pause"),
    ]

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(404, code)] * 3


def test_stop_of_a_pending_run_is_queued_and_that_of_a_refused_one_is_a_404(
    world: Any, api: httpx.Client, undecided: str
) -> None:
    assert api.post("/runs/r1/stop", json={"reason": "x"}).status_code == 202
    world.refuse = ("busy", "no")
    world.decide()

    answer = api.post("/runs/r1/stop", json={"reason": "x"})

    assert (answer.status_code, answer.json()["code"]) == (404, "run_refused")
