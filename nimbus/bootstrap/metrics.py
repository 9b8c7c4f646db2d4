"""Builds the metrics server of a standalone worker."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from fastapi import Depends, FastAPI
from prometheus_client import CollectorRegistry

from blobsync import Syncer
from leader import SessionState
from nimbus.access.gate import AccessGate
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeAccess
from nimbus.api.access import Authenticate, authorize
from nimbus.api.middleware import AnswerHead, CrossSiteGuard
from nimbus.api.problems import install
from nimbus.api.routes import health
from nimbus.api.server import ApiServer
from nimbus.bootstrap.access import allowed_hosts, build_access_follower, build_gate, build_tls
from nimbus.bootstrap.resources import Resources
from nimbus.scheduler.access_follower import AccessFollower
from nimbus.telemetry.daemon import SyncMetrics
from nimbus.worker.host.identity import hostname


class MetricsServer:
    """Serves `/metrics` with the same access rules as a scheduler. Threads `nimbus-api`, `nimbus-access`."""

    def __init__(self, server: ApiServer, access: AccessFollower) -> None:
        self._server, self._access = server, access

    def start(self) -> None:
        """Start to serve. PortInUseError, BindError: it cannot listen there."""
        self._server.start()
        self._access.start()

    def stop(self, timeout: timedelta) -> None:
        """End both threads."""
        self._access.stop(timeout)
        self._server.stop(timeout)


def build_metrics_server(resources: Resources, registry: CollectorRegistry) -> MetricsServer | None:
    """The metrics server of a standalone worker; None if it is not configured.

    Raises:
        CertificateError: the files of `api.tls` cannot be used.
    """
    settings, session = resources.settings, resources.session
    where = settings.worker.metrics_address
    if where is None:
        return None
    host, port = where
    # Only tokens of the cluster: a worker fetches no keys of an identity provider.
    gate, tls = build_gate(settings, None, registry), build_tls(settings, registry)
    access = build_access_follower(settings, TreeAccess(calls_on(session), settings.cluster.root), gate, tls)

    def on_session(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            access.look()  # only enqueues

    session.add_listener(on_session)
    app = create_metrics_app(registry, gate, [host, hostname(), *allowed_hosts(settings)])
    server = ApiServer(
        app, host, port, tls=None if tls is None else tls.context, keys=("worker.metrics", "worker.metrics")
    )
    return MetricsServer(server, access)


def tell_sync(registry: CollectorRegistry, resources: Resources, syncer: Syncer) -> None:
    """Add the metrics of this daemon's local store."""
    SyncMetrics(
        registry,
        progress=syncer.progress,
        scrub=syncer.scrub_progress,
        disk=resources.local.disk_state,
    )


def create_metrics_app(
    registry: CollectorRegistry, gate: AccessGate, allowed_hosts: Iterable[str] = ()
) -> FastAPI:
    """Build the application. Starts nothing.

    Args:
        registry: The metrics.
        gate: Authenticates requests.
        allowed_hosts: As in `nimbus.api.app.create_app`.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, dependencies=[Depends(authorize)])
    install(app)
    app.add_middleware(Authenticate, gate=gate)
    app.add_middleware(CrossSiteGuard, allowed_hosts=allowed_hosts)
    app.add_middleware(AnswerHead)
    app.include_router(health.metrics_router(registry))
    return app
