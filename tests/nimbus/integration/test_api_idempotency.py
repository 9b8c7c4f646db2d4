"""Writes that are sent again with their `Idempotency-Key`, over real HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from nimbus.api.submitting import queued_before
from nimbus.domain.commands import Abdicate, CommandKey
from nimbus.domain.errors import RefusedError

START = {"pipeline": "sums"}
KEY = {"Idempotency-Key": "a-7f"}


def test_a_start_that_is_sent_again_starts_one_run(world: Any, api: httpx.Client) -> None:
    answers = [api.post("/runs", json=START, headers=KEY, params={"wait": 1}) for _ in range(3)]

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert len({answer.json()["command_id"] for answer in answers}) == 1
    assert len(world.reader.run_list()) == 1


def test_a_command_that_still_waits_is_answered_as_before(world: Any, api: httpx.Client) -> None:
    world.deciding = False

    first, again = (api.post("/runs", json=START, headers=KEY) for _ in range(2))

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert len(world.reader.commands()) == 1


def test_a_decided_command_is_answered_with_its_outcome(world: Any, api: httpx.Client) -> None:
    world.deciding = False
    first = api.post("/runs", json=START, headers=KEY).json()
    world.decide()

    again = api.post("/runs", json=START, headers=KEY)

    assert again.status_code == 200
    assert (again.json()["status"], again.json()["run_id"]) == ("accepted", first["run_id"])


def test_a_refusal_is_answered_again(world: Any, api: httpx.Client) -> None:
    world.refuse = ("quarantined", "no")

    answers = [api.post("/runs", json=START, headers=KEY, params={"wait": 1}) for _ in range(2)]

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(409, "quarantined")] * 2


@pytest.mark.parametrize(
    ("path", "body"), [("/runs", {**START, "priority": "high"}), ("/pipelines/sums/pause", None)]
)
def test_a_key_of_another_request_is_refused(
    world: Any, api: httpx.Client, path: str, body: dict[str, str] | None
) -> None:
    api.post("/runs", json=START, headers=KEY)

    refused = api.post(path, json=body, headers=KEY)

    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert len(world.reader.run_list()) == 1


def test_keys_of_two_callers_are_two_keys(world: Any, api: httpx.Client) -> None:
    for name in ("ann", "bob"):
        api.post("/runs", json=START, headers={**KEY, "X-Nimbus-User": name}).raise_for_status()

    assert len(world.reader.run_list()) == 2


def test_a_key_whose_command_was_lost_is_refused(world: Any) -> None:
    world.deciding = False
    key = CommandKey(hash="0" * 32, request="r")
    command = world.queue.submit(Abdicate(reason="x"), submitted_by="me", key=key)
    world.cluster.set("commands", command, None)

    with pytest.raises(RefusedError, match="not known"):
        queued_before(world.services(), key)
