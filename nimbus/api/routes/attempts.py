"""Routes for drivers in Spark clusters. Each driver reaches only the slots and data of its own attempt.

They are not part of the API for users. The clients are `nimbus.worker.application.bootstrap` and, for signed
URLs, `nimbus.worker.data.signed`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, HTTPException, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from nimbus.api.services import AttemptDoor, ClusterAttempt, DataRequest, DriverReport, SecretsRequest
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import AttemptId, pipeline_name, release_digest
from nimbus.ports import AttemptWithdrawnError, KeptLog

_Text = Annotated[str, Field(max_length=256)]


class ClaimBody(BaseModel):
    """A driver's claim, sent before it runs user code."""

    nonce: _Text
    driver: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,253}$")]
    target: _Text
    worker: _Text
    host: _Text


class BeatBody(BaseModel):
    """A driver's heartbeat."""

    nonce: _Text
    number: int
    progress: dict[str, Any] = Field(default_factory=dict)
    checkpoint: str | None = None


def router(door: AttemptDoor) -> APIRouter:
    """Build the routes over `door`."""
    routes = APIRouter(prefix="/attempt/v1", include_in_schema=False)

    def admitted(
        attempt: str,
        pipeline: Annotated[str, Query()],
        release: Annotated[str, Query()],
        authorization: Annotated[str, Header()] = "",
    ) -> ClusterAttempt:
        found = ClusterAttempt(
            id=AttemptId.parse(attempt), pipeline=pipeline_name(pipeline), release=release_digest(release)
        )
        if not door.admits(found, authorization.removeprefix("Bearer ")):
            raise HTTPException(401, "The token is not one for this attempt.")
        return found

    its_own: Any = Depends(admitted)

    @routes.get("/bootstrap.py")
    def bootstrap() -> Response:
        return Response(door.bootstrap(), media_type="application/zip")

    @routes.get("/{attempt}/release.tar")
    def release(attempt: ClusterAttempt = its_own) -> StreamingResponse:
        return StreamingResponse(door.release(attempt), media_type="application/x-tar")

    @routes.post("/{attempt}/claim")
    def claim(body: ClaimBody, attempt: ClusterAttempt = its_own) -> dict[str, Any]:
        return {"granted": door.claim(attempt, **body.model_dump()), "schedulers": door.schedulers()}

    @routes.post("/{attempt}/beat")
    def beat(body: BeatBody, attempt: ClusterAttempt = its_own) -> dict[str, Any]:
        said = {"number": body.number, **body.progress}
        answer = door.beat(attempt, body.nonce, said, body.checkpoint)
        return {**answer._asdict(), "schedulers": door.schedulers()}

    @routes.post("/{attempt}/log")
    def log(
        offset: Annotated[int, Query(ge=0)],
        nonce: Annotated[str, Query(max_length=256)],
        data: Annotated[bytes, Body(media_type="application/octet-stream")],
        kept: Annotated[KeptLog, Query()] = KeptLog.LOG,
        attempt: ClusterAttempt = its_own,
    ) -> dict[str, bool]:
        return {"stored": door.log(attempt, nonce, offset, data, kept)}

    @routes.post("/{attempt}/end")
    def end(body: DriverReport, attempt: ClusterAttempt = its_own) -> dict[str, str]:
        return {"outcome": door.end(attempt, body)}

    _add_secrets(routes, door, its_own)
    _add_data(routes, door)
    return routes


def _add_secrets(routes: APIRouter, door: AttemptDoor, its_own: Any) -> None:
    """Add the secrets of the task."""

    @routes.post("/{attempt}/secrets")
    def secrets(body: SecretsRequest, attempt: ClusterAttempt = its_own) -> dict[str, Any]:
        try:
            values = door.secrets(attempt, body)
        except AttemptWithdrawnError as exc:
            raise HTTPException(409, str(exc)) from exc  # the driver asks again for a while
        except NimbusError as exc:  # another scheduler may have it
            raise HTTPException(422 if exc.code == "secret_denied" else 503, str(exc)) from exc
        if values is None:
            raise HTTPException(422, "The secrets are not the attempt's, or the attempt is over.")
        return {"values": values}


def _add_data(routes: APIRouter, door: AttemptDoor) -> None:
    """Add signed URLs for the bucket of outputs."""

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
        try:
            signed = door.sign(found, body)
        except AttemptWithdrawnError as exc:
            raise HTTPException(409, str(exc)) from exc  # the driver asks again for a while
        if signed is None:
            raise HTTPException(422, "The object is not the attempt's, or the attempt is over.")
        return {**signed._asdict(), "schedulers": door.schedulers()}
