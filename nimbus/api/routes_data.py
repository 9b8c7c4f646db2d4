"""The route for the bucket of outputs: signed URLs for drivers in Spark clusters.

The client is `nimbus.worker.data.signed`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Query

from nimbus.api.services import AttemptDoor, ClusterAttempt, DataRequest
from nimbus.domain.ids import AttemptId, pipeline_name, release_digest


def router(door: AttemptDoor) -> APIRouter:
    """Build the route over `door`."""
    routes = APIRouter(prefix="/attempt/v1", include_in_schema=False)

    @routes.post("/{attempt}/sign")
    def sign(
        attempt: str,
        body: DataRequest,
        pipeline: Annotated[str, Query()],
        release: Annotated[str, Query()],
        authorization: Annotated[str, Header()] = "",
    ) -> dict[str, Any]:
        found = ClusterAttempt(
            id=AttemptId.parse(attempt), pipeline=pipeline_name(pipeline), release=release_digest(release)
        )
        if not door.admits_to_data(found, authorization.removeprefix("Bearer "), body):
            raise HTTPException(401, "The token is not one for this output and these inputs.")
        signed = door.sign(found, body)
        if signed is None:
            raise HTTPException(422, "The object is not the attempt's, or the attempt is over.")
        return {**signed._asdict(), "schedulers": door.schedulers()}

    return routes
