"""What the API does not during a start, but before the first request."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from leader import ZooKeeperAuthError
from nimbus import pipeline_record
from nimbus.api import app as module
from nimbus.api.app import operation_id
from nimbus.api.server import ApiServer
from nimbus.ports import StoreUnavailableError
from tests.nimbus.integration.conftest import World


def test_readyz_builds_the_routes_of_health_alone_and_warm_up_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []

    def noted(route: object) -> str:
        built.append(operation_id(route))  # type: ignore[arg-type]
        return built[-1]

    monkeypatch.setattr(module, "operation_id", noted)
    world = World()
    world.registry = CollectorRegistry()
    app = module.create_app(world.services())
    client = TestClient(app, base_url="http://127.0.0.1")

    client.get("/readyz")
    assert sorted(built) == ["health.healthz", "health.readyz"]

    ApiServer(app).warm_up()
    assert {"runs.list", "explanations.run", "cluster.status"} <= set(built)

    before = len(built)
    assert client.get("/api/v1/runs").status_code == 200
    assert len(built) == before


def test_warm_up_reads_the_catalog_and_the_runs_so_that_the_first_page_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.registry = CollectorRegistry()
    decoded: list[str] = []
    decode = pipeline_record.decode
    monkeypatch.setattr(
        pipeline_record, "decode", lambda data, place: decoded.append(place) or decode(data, place)
    )
    server = ApiServer(module.create_app(world.services()))

    server.warm_up()
    assert len(decoded) == 1

    assert len(world.reader.pipelines()) == 1
    assert len(decoded) == 1


@pytest.mark.parametrize(
    "error", [StoreUnavailableError("no connection"), ZooKeeperAuthError("the password has changed")]
)
def test_warm_up_goes_on_without_the_store(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.registry = CollectorRegistry()

    def unavailable() -> None:
        raise error

    monkeypatch.setattr(world.reader, "pipelines", unavailable)

    ApiServer(module.create_app(world.services())).warm_up()
