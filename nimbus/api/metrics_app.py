"""The HTTP server of a separate worker: `/metrics`, with the same checks as on a scheduler."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Depends, FastAPI
from prometheus_client import CollectorRegistry

from nimbus.access.gate import Gate
from nimbus.api import routes_health
from nimbus.api.access import Authenticate, authorize
from nimbus.api.cross_site import CrossSiteGuard
from nimbus.api.middleware import AnswerHead
from nimbus.api.problems import install


def create_metrics_app(registry: CollectorRegistry, gate: Gate, allowed_hosts: Iterable[str] = ()) -> FastAPI:
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
    app.include_router(routes_health.metrics_router(registry))
    return app
