"""Routes for load balancers, supervisors and Prometheus: outside `/api/v1`, where those look."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from nimbus.api.models import CheckModel, ReadinessModel
from nimbus.api.services import ApiServices


def router(services: ApiServices) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter(tags=["health"])

    @routes.get("/healthz")
    def healthz() -> dict[str, str]:
        """The process answers. Looks at nothing else: restarting us would not heal ZooKeeper."""
        info = services.health.info()
        return {"status": "ok", "id": info.id, "version": info.version}

    @routes.get("/readyz", responses={503: {"model": ReadinessModel}})
    def readyz(response: Response) -> ReadinessModel:
        """200 when this scheduler can serve; a standby can."""
        checks = services.health.readiness()
        ready = all(check.ok for check in checks if check.required)
        response.status_code = 200 if ready else 503
        rows = [CheckModel.model_validate(check) for check in checks]
        return ReadinessModel(ready=ready, role=services.health.info().role, checks=rows)

    @routes.get("/metrics", response_class=Response)
    def metrics() -> Response:
        """Prometheus, text format."""
        return Response(generate_latest(services.metrics), media_type=CONTENT_TYPE_LATEST)

    return routes
