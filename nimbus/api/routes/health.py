"""Routes for load balancers, supervisors and Prometheus, at their usual paths outside `/api/v1`.

They answer even if every request thread waits for ZooKeeper. Otherwise a supervisor kills a healthy process.
"""

from __future__ import annotations

from dataclasses import replace

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from nimbus.api.models import Model, of
from nimbus.api.services import ApiServices, ReadinessCheck
from nimbus.domain.cluster.schedulers import ElectionRole


@of(ReadinessCheck)
class CheckModel(Model):
    """One check of readiness."""


class ReadinessModel(Model):
    """True when this scheduler can serve. A standby can."""

    ready: bool
    role: ElectionRole
    checks: list[CheckModel]


def router(services: ApiServices) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter(tags=["health"])
    threads = CapacityLimiter(2)  # separate from those for requests
    info = services.health.info()
    alive = {"status": "ok", "id": info.id, "version": info.version}

    @routes.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers. Nothing else is checked: a restart would not repair ZooKeeper."""
        return alive

    @routes.get("/readyz", responses={503: {"model": ReadinessModel}})
    async def readyz(response: Response) -> ReadinessModel:
        """200 when this scheduler can serve; a standby can."""
        checks = await run_sync(services.health.readiness, limiter=threads)
        ready = all(check.ok for check in checks if check.required)
        response.status_code = 200 if ready else 503
        # This path is open: it is answered without authentication even where tokens are required.
        shown = checks if not services.gate.required else [replace(check, detail="") for check in checks]
        rows = [CheckModel.model_validate(check) for check in shown]
        role = (await run_sync(services.health.info, limiter=threads)).role
        return ReadinessModel(ready=ready, role=role, checks=rows)

    routes.include_router(metrics_router(services.metrics, threads))
    return routes


def metrics_router(registry: CollectorRegistry, threads: CapacityLimiter | None = None) -> APIRouter:
    """Build the route for the metrics of `registry`. `threads`: its thread limit; None: its own two."""
    routes, threads = APIRouter(tags=["health"]), threads or CapacityLimiter(2)

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus, text format."""
        text = await run_sync(generate_latest, registry, limiter=threads)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes
