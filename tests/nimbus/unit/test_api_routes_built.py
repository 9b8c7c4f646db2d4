"""When the API builds its routes: not during a start, but before the first request."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from nimbus.api import app as module
from nimbus.api.openapi import operation_id
from nimbus.api.server import ApiServer
from tests.nimbus.integration.conftest import World


def test_readyz_builds_the_routes_of_health_alone_and_build_routes_the_rest(
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

    ApiServer(app).build_routes()
    assert {"runs.list", "explanations.run", "cluster.status"} <= set(built)

    before = len(built)
    assert client.get("/api/v1/runs").status_code == 200
    assert len(built) == before
