"""The table of roles contains exactly all routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry

from nimbus.api.access import NEEDS, is_open
from nimbus.api.app import create_app
from nimbus.domain.cluster.access import AccessRole
from tests.nimbus.integration.conftest import World


def routes_of(routes: Iterable[Any]) -> Iterator[str]:
    for route in routes:
        nested = getattr(route, "original_router", None)
        if nested is not None:
            yield from routes_of(nested.routes)
        else:
            yield from (f"{method} {route.path}" for method in (route.methods or ()) if method != "HEAD")


def served() -> set[str]:
    world = World()
    world.registry = CollectorRegistry()
    return set(routes_of(create_app(world.services()).routes))


def test_every_route_has_its_role_in_the_table() -> None:
    asked = {route for route in served() if not is_open(route.partition(" ")[2])}

    assert asked - set(NEEDS) == set(), "say in nimbus/api/access.py which role these routes need"
    assert set(NEEDS) - asked == set(), "there are no such routes"


def test_nothing_that_changes_something_is_a_viewers() -> None:
    reads = {route for route, role in NEEDS.items() if role is AccessRole.VIEWER}

    plans = {"POST /api/v1/backfill-plan", "POST /api/v1/purge-plan"}
    assert {route for route in reads if not route.startswith("GET ")} == plans
