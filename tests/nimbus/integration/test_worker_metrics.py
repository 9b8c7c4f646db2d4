"""The metrics of a separate worker, and who may read them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from prometheus_client import CollectorRegistry

from nimbus.access.gate import AccessGate
from nimbus.api.server import ApiServer, PortInUseError
from nimbus.bootstrap.processes import MetricsServer, create_metrics_app
from nimbus.scheduler.followers import AccessFollower
from nimbus.telemetry.build import tell_build
from tests.nimbus.unit.test_access import a_token
from tests.nimbus.unit.test_scheduler_access_follower import Store

KEYS = ("worker.metrics", "worker.metrics")


@pytest.fixture
def gate() -> AccessGate:
    return AccessGate(required=True)


@pytest.fixture
def server(gate: AccessGate) -> Iterator[ApiServer]:
    registry = CollectorRegistry()
    tell_build(registry)
    made = ApiServer(create_metrics_app(registry, gate, ["worker.example.com"]), keys=KEYS)
    made.start()
    yield made
    made.stop()


def test_metrics_are_told_to_a_viewer_and_to_nobody_without_a_token(
    gate: AccessGate, server: ApiServer
) -> None:
    text, token = a_token()
    gate.know_store({token.id: token}, b"k" * 32)
    url = f"{server.url}/metrics"

    told = httpx.get(url, headers={"Authorization": f"Bearer {text}"})

    assert "nimbus_build_info{" in told.text
    assert told.headers["content-type"].startswith("text/plain; version=")
    refused = httpx.get(url)
    assert (refused.status_code, refused.json()["code"]) == (401, "token_missing")


def test_a_worker_answers_under_its_names_alone_and_serves_nothing_else(
    gate: AccessGate, server: ApiServer
) -> None:
    gate.required = False

    def status(path: str, host: str) -> int:
        return httpx.get(f"{server.url}{path}", headers={"Host": host}).status_code

    assert status("/metrics", "worker.example.com") == 200
    assert status("/metrics", "evil.example") == 421
    assert [status(path, "localhost") for path in ("/", "/ui", "/openapi.json", "/api/v1/runs")] == [404] * 4


def test_a_second_worker_on_one_port_is_told_which_key_to_change(gate: AccessGate, server: ApiServer) -> None:
    app = create_metrics_app(CollectorRegistry(), gate)
    second = MetricsServer(ApiServer(app, port=server.port, keys=KEYS), AccessFollower(Store(), gate))

    with pytest.raises(PortInUseError, match=r"^cannot listen on .*`worker\.metrics`"):
        second.start()

    second.stop(timedelta(seconds=5))  # like a worker that could not start
