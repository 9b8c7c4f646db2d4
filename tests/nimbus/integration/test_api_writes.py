"""Writes of the API, over real HTTP: commands, their outcomes, and every kind of bad input."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from nimbus.domain.commands import (
    Abdicate,
    ActivatePipeline,
    CommandOutcome,
    DecideApproval,
    PausePipeline,
    PauseRun,
    PublishRelease,
    RemovePipeline,
    ResumeRun,
    RewindSchedule,
    StartRun,
    StopRun,
)
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import Priority

DIGEST = "ab" * 32
EARLIEST, LATEST = "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"
"""Texts that are not times in UTC."""
START = "2026-01-30T00:00:00+02:00"


def _queued(world: Any) -> Any:
    (queued,) = world.reader.commands()
    return queued.command


def test_a_write_is_durable_before_it_is_answered_and_pending_while_nobody_leads(
    world: Any, api: httpx.Client
) -> None:
    world.deciding = False

    answer = api.post("/runs", json={"pipeline": "sums"})

    body = answer.json()
    assert (answer.status_code, body["status"], body["outcome"]) == (202, "pending", None)
    assert re.fullmatch(r"sums-20260301t060000z-[0-9a-f]{6}", body["run_id"])
    assert _queued(world) == StartRun(pipeline="sums", run_id=body["run_id"])  # type: ignore[arg-type]
    assert api.get(f"/commands/{body['command_id']}").json()["status"] == "pending"


@pytest.mark.parametrize(
    ("method", "path", "body", "command"),
    [
        (
            "POST",
            "/pipelines/new/releases",
            {"digest": DIGEST, "activate": True},
            PublishRelease(pipeline="new", digest=DIGEST, activate=True),  # type: ignore[arg-type]
        ),
        ("POST", "/pipelines/sums/activate", None, ActivatePipeline(pipeline="sums")),  # type: ignore[arg-type]
        (
            "POST",
            "/pipelines/sums/activate",
            {"digest": DIGEST},
            ActivatePipeline(pipeline="sums", digest=DIGEST),  # type: ignore[arg-type]
        ),
        ("POST", "/pipelines/sums/pause", None, PausePipeline(pipeline="sums")),  # type: ignore[arg-type]
        (
            "POST",
            "/pipelines/sums/rewind",
            {"reason": "clock of s1"},
            RewindSchedule(pipeline="sums", reason="clock of s1"),  # type: ignore[arg-type]
        ),
        ("DELETE", "/pipelines/sums", None, RemovePipeline(pipeline="sums")),  # type: ignore[arg-type]
        ("POST", "/runs/r1/stop", {"reason": " late "}, StopRun(run_id="r1", reason="late")),  # type: ignore[arg-type]
        ("POST", "/runs/r1/pause", None, PauseRun(run_id="r1")),  # type: ignore[arg-type]
        ("POST", "/runs/r1/resume", None, ResumeRun(run_id="r1")),  # type: ignore[arg-type]
        (
            "POST",
            "/runs/r1/tasks/asked/approval",
            {"approved": False, "reason": "late"},
            DecideApproval(run_id="r1", task="asked", approved=False, reason="late"),  # type: ignore[arg-type]
        ),
        ("POST", "/cluster/abdicate", {"reason": "update"}, Abdicate(reason="update")),
    ],
)
def test_each_write_becomes_its_command(
    world: Any, api: httpx.Client, method: str, path: str, body: Any, command: Any
) -> None:
    world.deciding = False
    world.cluster.put(world.new_run("r1"))

    answer = api.request(method, path, json=body)

    assert answer.status_code == 202
    assert _queued(world) == command


def test_every_field_of_a_start_is_handed_on(world: Any, api: httpx.Client) -> None:
    world.deciding = False
    body = {
        "pipeline": "sums",
        "run_id": "mine",
        "parameters": {"months": [1, 2]},
        "logical_date": "2026-01-31T02:00:00+02:00",
        "data_interval": {"start": START, "end": "2026-01-31T00:00:00Z"},
        "priority": "high",
    }

    assert api.post("/runs", json=body).json()["run_id"] == "mine"

    command = _queued(world)
    assert command.logical_date.isoformat() == "2026-01-31T00:00:00+00:00"
    assert (command.priority, command.parameters) == (Priority.HIGH, {"months": [1, 2]})
    assert command.data_interval == DataInterval(
        start=datetime(2026, 1, 29, 22, tzinfo=UTC), end=datetime(2026, 1, 31, tzinfo=UTC)
    )


def test_start_with_an_interval_that_does_not_end_after_it_starts_is_refused(
    world: Any, api: httpx.Client
) -> None:
    refused = api.post("/runs", json={"pipeline": "sums", "data_interval": {"start": START, "end": START}})

    assert (refused.status_code, refused.json()["code"]) == (409, "empty_interval")
    assert world.reader.commands() == ()


def test_waiting_answers_the_leaders_decision(world: Any, api: httpx.Client) -> None:
    accepted = api.post("/runs?wait=10", json={"pipeline": "sums"})
    world.refuse = ("quarantined", "pipeline sums is quarantined: file lost")
    refused = api.post("/runs?wait=10", json={"pipeline": "sums"})

    assert (accepted.status_code, accepted.json()["outcome"]["epoch"]) == (200, 7)
    assert (refused.status_code, refused.json()["code"]) == (409, "quarantined")
    assert "file lost" in refused.json()["detail"]


def test_a_wait_without_a_leader_ends_as_pending(world: Any, api: httpx.Client) -> None:
    world.deciding = False

    answer = api.post("/cluster/abdicate?wait=0.05", json={"reason": "x"})

    assert (answer.status_code, answer.json()["status"]) == (202, "pending")


def test_a_refusal_for_an_unknown_thing_is_a_404(world: Any, api: httpx.Client) -> None:
    world.refuse = ("unknown_pipeline", "pipeline sums is not in the catalog")

    answer = api.post("/pipelines/sums/pause?wait=5")

    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_pipeline")


def test_a_command_can_be_asked_for_later(world: Any, api: httpx.Client) -> None:
    world.deciding = False
    command = api.post("/cluster/abdicate", json={"reason": "x"}).json()["command_id"]
    outcome = CommandOutcome(
        command=command,
        accepted=False,
        code="busy",
        message="no",
        decided_at=world.clock.time,
        epoch=8,
        kind="start_run",
    )
    world.cluster.answer(outcome)

    answer = api.get(f"/commands/{command}", params={"wait": 5}).json()

    assert (answer["status"], answer["outcome"]["code"], answer["outcome"]["epoch"]) == ("refused", "busy", 8)


def test_a_finished_run_cannot_be_stopped(world: Any, api: httpx.Client) -> None:
    world.succeeded("r1")

    answer = api.post("/runs/r1/stop", json={"reason": "x"})

    assert (answer.status_code, answer.json()["code"]) == (409, "run_finished")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "place"),
    [
        ("POST", "/runs", {}, 422, "body.pipeline"),
        ("POST", "/runs", {"pipeline": "Sums!"}, 422, "body.pipeline"),
        ("POST", "/runs", {"pipeline": "sums", "paramters": {}}, 422, "body.paramters"),
        ("POST", "/runs", {"pipeline": "sums", "parameters": [1]}, 422, "body.parameters"),
        ("POST", "/runs", {"pipeline": "sums", "run_id": "../x"}, 422, "body.run_id"),
        (
            "POST",
            "/runs",
            {"pipeline": "sums", "logical_date": "2026-01-01T00:00:00"},
            422,
            "body.logical_date",
        ),
        ("POST", "/runs", {"pipeline": "sums", "logical_date": EARLIEST}, 422, "body.logical_date"),
        ("POST", "/runs", {"pipeline": "sums", "logical_date": LATEST}, 422, "body.logical_date"),
        (
            "POST",
            "/runs",
            {"pipeline": "sums", "data_interval": {"start": "2026-01-01T00:00:00", "end": START}},
            422,
            "body.data_interval.start",
        ),
        (
            "POST",
            "/runs",
            {"pipeline": "sums", "data_interval": {"start": START}},
            422,
            "body.data_interval.end",
        ),
        ("POST", "/runs", {"pipeline": "sums", "priority": "urgent"}, 422, "body.priority"),
        ("POST", "/runs?wait=61", {"pipeline": "sums"}, 422, "query.wait"),
        ("POST", "/runs/r1/stop", {"reason": "  "}, 422, "body.reason"),
        ("POST", "/runs/r1/stop", {"reason": "x" * 501}, 422, "body.reason"),
        ("POST", "/cluster/abdicate", None, 422, "body"),
        ("POST", "/pipelines/sums/releases", {"digest": "abc"}, 422, "body.digest"),
        ("POST", "/pipelines/Bad/pause", None, 422, "path.name"),
        ("GET", "/runs?limit=501", None, 422, "query.limit"),
        ("GET", "/runs?state=sleeping", None, 422, "query.state"),
        ("GET", "/runs/a.b", None, 422, "path.run_id"),
        ("GET", "/commands/%2e%2e", None, 422, "path.command_id"),
        ("GET", "/commands/cmd-1%00", None, 422, "path.command_id"),
        ("GET", "/runs/r1/tasks/t/log?offset=-1", None, 422, "query.offset"),
        ("PUT", "/runs", {}, 405, None),
        ("POST", "/runs", {"pipeline": "absent"}, 404, None),
    ],
)
def test_bad_input_is_refused_with_its_place_and_reaches_no_leader(
    world: Any, api: httpx.Client, method: str, path: str, body: Any, status: int, place: str | None
) -> None:
    answer = api.request(method, path, json=body)

    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["type"] == f"urn:nimbus:problem:{problem['code']}"
    if place is not None:
        assert problem["code"] == "invalid_request"
        assert [error["place"] for error in problem["errors"]] == [place]
    assert world.reader.commands() == ()


@pytest.mark.parametrize(
    "value",
    ["NaN", "-Infinity", '"\\ud800"', '{"\\ud800": 1}', "[" * 500 + "]" * 500],
    ids=["nan", "infinity", "surrogate", "surrogate-key", "deep"],
)
def test_parameter_that_cannot_be_stored_as_it_is_is_refused(
    world: Any, api: httpx.Client, value: str
) -> None:
    body = f'{{"pipeline": "sums", "parameters": {{"x": {value}}}}}'

    answer = api.post("/runs", content=body, headers={"content-type": "application/json"})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert world.reader.commands() == ()


def test_broken_json_is_bad_input(api: httpx.Client) -> None:
    answer = api.post("/runs", content=b"{", headers={"content-type": "application/json"})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_a_body_that_is_too_large_is_refused_announced_or_not(world: Any, api: httpx.Client) -> None:
    big = b'{"pipeline": "sums", "parameters": {"x": "' + b"y" * 300_000 + b'"}}'

    announced = api.post("/runs", content=big)
    chunked = api.post("/runs", content=iter([big[:200_000], big[200_000:]]))

    assert [announced.status_code, chunked.status_code] == [413, 413]
    assert chunked.json()["code"] == "body_too_large"
    assert world.reader.commands() == ()


def test_key_of_a_request_that_queues_nothing_makes_nobody_read_its_body(api: httpx.Client) -> None:
    big = api.request("GET", "/runs", content=b"x" * 300_000, headers={"Idempotency-Key": "k"})
    small = api.request("GET", "/runs", content=b"x", headers={"Idempotency-Key": "k"})

    assert (big.status_code, big.json()["code"]) == (413, "body_too_large")
    assert small.status_code == 200


def test_zookeeper_out_is_a_503_that_says_when_to_come_back(world: Any, api: httpx.Client) -> None:
    world.cluster.available = False

    read, write = api.get("/runs"), api.post("/cluster/abdicate", json={"reason": "x"})

    assert [(a.status_code, a.json()["code"]) for a in (read, write)] == [(503, "store_unavailable")] * 2
    assert int(write.headers["Retry-After"]) > 0


def test_a_defect_is_answered_with_a_reference_and_without_its_insides(
    world: Any, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise KeyError("a secret of the inside")

    monkeypatch.setattr(world.health, "leader", broken)

    answer = api.get("/leader")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.json()["reference"] in answer.json()["detail"]
    assert "secret" not in answer.text


def test_an_id_that_history_knows_is_not_used_again(world: Any, api: httpx.Client) -> None:
    assert api.post("/runs", json={"pipeline": "sums", "run_id": "sums-now"}, params={"wait": 5}).is_success
    world.history.store(world.new_run("sums-of-old"))

    answer = api.post("/runs", json={"pipeline": "sums", "run_id": "sums-of-old"})

    assert (answer.status_code, answer.json()["code"]) == (409, "run_exists")


def test_runs_start_while_history_does_not_answer(world: Any, api: httpx.Client) -> None:
    world.deciding = False
    world.releases.bucket.unavailable = True

    assert api.post("/runs", json={"pipeline": "sums", "run_id": "sums-new"}).status_code == 202


@pytest.mark.parametrize(("headers", "by"), [({"X-Nimbus-User": "ann lee"}, "ann lee"), ({}, "api@s1")])
def test_command_names_who_asks(world: Any, api: httpx.Client, headers: dict[str, str], by: str) -> None:
    world.deciding = False

    assert api.post("/runs", json={"pipeline": "sums"}, headers=headers).status_code == 202

    (queued,) = world.reader.commands()
    assert queued.submitted_by == by


def test_name_that_no_log_line_could_hold_is_refused(api: httpx.Client) -> None:
    answer = api.post("/runs", json={"pipeline": "sums"}, headers={"X-Nimbus-User": "a" * 101})

    assert answer.status_code == 422
