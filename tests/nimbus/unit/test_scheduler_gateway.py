"""What a scheduler tells a driver in a cluster about its attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from nimbus.api.routes.attempts import ClusterAttempt, HeartbeatAnswer, SignedUrl, router
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.cluster.access import SecretRules
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import StoreUnavailableError
from nimbus.scheduler.gateway import ClusterGateway
from nimbus.worker.application.startup import data_token_for, secrets_token_for, token_for
from nimbus.worker.secrets import SecretError

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ATTEMPT = ClusterAttempt(
    id=AttemptId.parse("run1.task.1"), pipeline=PipelineName("p"), release=ReleaseDigest("0" * 64)
)
OURS = Claim(attempt=str(ATTEMPT.id), claimed_at=NOW, nonce="ours")
END = End(attempt=str(ATTEMPT.id), outcome=Outcome.LOST, written_by="leader", ended_at=NOW)


@pytest.mark.parametrize(
    ("slots", "answer", "is_reported"),
    [
        (Slots(claim=OURS), HeartbeatAnswer(), True),
        (Slots(claim=OURS, stop_requested=True), HeartbeatAnswer(stop=True), True),
        (Slots(claim=OURS, end=END), HeartbeatAnswer(outdated=True), False),
        (Slots(end=END), HeartbeatAnswer(outdated=True), False),
        (Slots(claim=replace(OURS, nonce="theirs")), HeartbeatAnswer(outdated=True), False),
        (Slots(), HeartbeatAnswer(claimed=False), False),
    ],
    ids=["ours", "stopped", "ended", "fenced", "of another", "not there, or not yet on this server"],
)
def test_answer_to_a_heartbeat(slots: Slots, answer: HeartbeatAnswer, is_reported: bool) -> None:
    reported: list[object] = []
    board: Any = SimpleNamespace(read=lambda _: slots, report=lambda *said: reported.append(said))
    none: Any = None
    gateway = ClusterGateway(board=board, logs=none, releases=none, clock=none, schedulers=tuple)

    assert gateway.heartbeat(ATTEMPT, "ours", {"stages": 1}, None) == answer
    assert bool(reported) is is_reported


def test_log_whose_claim_a_server_does_not_show_yet_is_sent_again() -> None:
    seen = iter((Slots(), Slots(claim=OURS), Slots(end=END)))
    stored: list[object] = []
    board: Any = SimpleNamespace(read=lambda _: next(seen))
    logs: Any = SimpleNamespace(append=lambda *piece: stored.append(piece))
    none: Any = None
    gateway = ClusterGateway(board=board, logs=logs, releases=none, clock=none, schedulers=tuple)

    with pytest.raises(StoreUnavailableError, match="claim"):
        gateway.log(ATTEMPT, "ours", 0, b"text")
    assert gateway.log(ATTEMPT, "ours", 0, b"text")
    assert not gateway.log(ATTEMPT, "ours", 0, b"text")
    assert len(stored) == 1


def test_upload_whose_claim_a_server_does_not_show_yet_is_asked_for_again() -> None:
    seen = iter((Slots(), Slots(claim=OURS), Slots(claim=OURS, end=END)))
    board: Any = SimpleNamespace(read=lambda _: next(seen), attempt_key=lambda: b"key")
    data: Any = SimpleNamespace(sign=lambda _: SignedUrl("http://bucket", {}))
    none: Any = None
    gateway = ClusterGateway(board=board, logs=none, releases=none, clock=none, schedulers=tuple, data=data)
    app = FastAPI()
    app.include_router(router(gateway))
    object_of: dict[str, Any] = {"uri": "s3://b", "output": "p/run1/task/1-ours", "inputs": []}
    token = data_token_for(b"key", str(ATTEMPT.id), **object_of)

    def status() -> int:
        return (
            TestClient(app)
            .post(
                f"/attempt/v1/{ATTEMPT.id}/sign",
                params={"pipeline": ATTEMPT.pipeline, "release": ATTEMPT.release},
                json={**object_of, "nonce": "ours", "method": "PUT", "key": "p/run1/task/1-ours/x"},
                headers={"Authorization": f"Bearer {token}"},
            )
            .status_code
        )

    assert [status(), status(), status()] == [409, 200, 422]


NAMES = {"DB_PASSWORD": "warehouse"}


def _status_of_secrets(
    gateway: ClusterGateway, names: dict[str, str], token: str, nonce: str = "ours"
) -> Any:
    app = FastAPI()
    app.include_router(router(gateway))
    own = token_for(b"key", str(ATTEMPT.id), ATTEMPT.pipeline, ATTEMPT.release)
    answer = TestClient(app).post(
        f"/attempt/v1/{ATTEMPT.id}/secrets",
        params={"pipeline": ATTEMPT.pipeline, "release": ATTEMPT.release},
        json={"nonce": nonce, "names": names, "token": token},
        headers={"Authorization": f"Bearer {own}"},
    )
    return answer.status_code, answer.json().get("values")


def test_secrets_are_only_for_the_holder_of_the_claim_with_a_token_for_these_names() -> None:
    slots = Slots(claim=OURS)
    board: Any = SimpleNamespace(read=lambda _: slots, attempt_key=lambda: b"key")
    none: Any = None

    def gateway(**more: Any) -> ClusterGateway:
        parts: dict[str, Any] = {"board": board, "logs": none, "releases": none, "clock": none}
        return ClusterGateway(
            **parts, schedulers=tuple, **{"secrets": lambda names: dict.fromkeys(names, "x")} | more
        )

    def unavailable(_names: object) -> dict[str, str]:
        raise SecretError("this scheduler has no secrets")

    token = secrets_token_for(b"key", str(ATTEMPT.id), ATTEMPT.pipeline, NAMES)
    other = {"DB_PASSWORD": "root"}

    assert _status_of_secrets(gateway(), NAMES, token) == (200, {"DB_PASSWORD": "x"})
    assert _status_of_secrets(gateway(), other, token) == (422, None)
    assert _status_of_secrets(gateway(), NAMES, token, nonce="theirs") == (422, None)
    assert _status_of_secrets(gateway(rules=SecretRules({"warehouse": ["q"]})), NAMES, token) == (422, None)
    assert _status_of_secrets(gateway(secrets=unavailable), NAMES, token) == (503, None)
    slots = Slots()
    assert _status_of_secrets(gateway(), NAMES, token) == (409, None)
    slots = Slots(claim=OURS, end=END)
    assert _status_of_secrets(gateway(), NAMES, token) == (422, None)
