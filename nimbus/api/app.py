"""Builds the API application. Called once for each process, by `nimbus.bootstrap`."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Depends, FastAPI

from nimbus.api import (
    routes_access,
    routes_alerts,
    routes_attempts,
    routes_backfills,
    routes_calendars,
    routes_cluster,
    routes_commands,
    routes_datasets,
    routes_events,
    routes_explanations,
    routes_grants,
    routes_health,
    routes_intervals,
    routes_limits,
    routes_login,
    routes_outputs,
    routes_pipelines,
    routes_purges,
    routes_releases,
    routes_replay,
    routes_run_commands,
    routes_runs,
    routes_selections,
    routes_shares,
    routes_terms,
    routes_variables,
    routes_webhooks,
)
from nimbus.api.access import Authenticate, authorize
from nimbus.api.asking import note_who_asks
from nimbus.api.cross_site import CrossSiteGuard
from nimbus.api.entity_tags import EntityTags, note_if_match
from nimbus.api.event_hub import EventHub
from nimbus.api.idempotency import note_key
from nimbus.api.middleware import AnswerHead, BodyLimit, HttpMetrics, Measure, SayVersion
from nimbus.api.openapi import PROBLEMS, DocumentedApi, operation_id
from nimbus.api.problems import install
from nimbus.api.seen import seen_services
from nimbus.api.services import ApiServices

PREFIX = "/api/v1"

_DESCRIPTION = """\
Any scheduler answers reads. Writes become commands, durable once answered, and are decided by the leader:
ask with `?wait=10` to get the decision with the answer. Errors are problem details (RFC 9457) with a stable
`code`. A write with the header `Idempotency-Key` may be sent again: it is done once. One with `If-Match` is
done only if nothing has changed since the `ETag` was read.
"""


def create_app(services: ApiServices, allowed_hosts: Iterable[str] = ()) -> FastAPI:
    """Build the application on top of `services`. Starts nothing.

    Args:
        services: The ports that it reads from and writes to.
        allowed_hosts: Names and addresses that requests may be sent to, besides those of loopback.
    """
    warm_ups, services = (services.reader.pipelines, services.reader.run_list), seen_services(services)
    app = DocumentedApi(
        title="Nimbus",
        version=services.health.info().version,
        description=_DESCRIPTION,
        docs_url=None,  # the page loads scripts from the Internet; clusters are often offline
        redoc_url=None,
        responses=PROBLEMS,
        generate_unique_id_function=operation_id,
        dependencies=[Depends(authorize)],
    )
    install(app)
    app.state.reader, app.state.services, app.state.warm_ups = services.reader, services, warm_ups
    app.state.events = hub = EventHub(services.changes)
    metrics = HttpMetrics(services.metrics)
    metrics.watch_streams(lambda: hub.streams)
    app.add_middleware(EntityTags)
    app.add_middleware(SayVersion, version=services.changes.version)
    app.add_middleware(BodyLimit)
    app.add_middleware(Authenticate, gate=services.gate, provider=services.provider)
    app.add_middleware(CrossSiteGuard, allowed_hosts=allowed_hosts)
    app.add_middleware(Measure, metrics=metrics)
    app.add_middleware(AnswerHead)
    # First, because FastAPI builds the routes of a router when it first searches a path in it. A client that
    # waits for the start requests only these; `ApiServer.warm_up` builds the others.
    app.include_router(routes_health.router(services))
    parts = (
        routes_cluster, routes_commands, routes_limits, routes_shares, routes_calendars,
        routes_backfills, routes_variables, routes_alerts, routes_intervals, routes_datasets,
        routes_explanations, routes_pipelines, routes_releases, routes_runs, routes_outputs,
        routes_replay, routes_run_commands, routes_selections, routes_access, routes_grants,
        routes_purges, routes_terms,
    )  # fmt: skip
    noted = [Depends(note_who_asks), Depends(note_key), Depends(note_if_match)]
    for part in parts:
        app.include_router(part.router(services, PREFIX), dependencies=noted)
    app.include_router(routes_events.router(hub, services.gate, PREFIX))
    app.include_router(routes_webhooks.router(services))
    app.include_router(routes_login.router(services))
    if services.door is not None:
        app.include_router(routes_attempts.router(services.door))
    return app
