"""Routes for drivers in Spark clusters. Each driver reaches only the slots and data of its own attempt.

They are not part of the API for users. The clients are `nimbus.worker.application.bootstrap` and, for signed
URLs, `nimbus.worker.data.signed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from fastapi import APIRouter, Body, Depends, Header, HTTPException, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, BaseModel, Field

from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, pipeline_name, release_digest
from nimbus.ports import AttemptWithdrawnError, KeptLog


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAttempt:
    """The attempt of a requesting driver, with the release that the driver names."""

    id: AttemptId
    pipeline: PipelineName
    release: ReleaseDigest


class AttemptReport(BaseModel):
    """How the task of a driver in a cluster ended."""

    nonce: Annotated[str, Field(max_length=256)]
    status: Annotated[int, Field(ge=-255, le=255)] | None
    """Exit status, as in `Popen.returncode`; None: the task was not started."""
    refused: Annotated[str, Field(max_length=2000)] = ""
    """Why it was not started."""
    ordered: Annotated[str, Field(max_length=32)] = "not"
    """Why the bootstrap ended it, as `nimbus.worker.attempt.verdict.Ordered` spells it."""
    came_to_its_end: bool = False
    started_at: AwareDatetime | None = None
    log_tail: str = ""
    not_flushed: Annotated[str, Field(max_length=2000)] = ""
    """Why its output may not be on the disk, or could not be stored in the bucket."""
    output: Annotated[str, Field(max_length=1024)] | None = None
    """Reference of its output in the bucket; None: it is in a folder."""
    is_program: bool = False
    timeout_s: float | None = None
    application: Any = None
    """Id of its Spark application, in any form: a wrong id must not make END fail."""
    cost: Any = None
    """What it used, in any form, as above; see `nimbus.domain.attempts.cost`."""
    result: str | None = None
    """Its result as text; see `nimbus.result`."""
    checkpoint: str | None = None
    """Its last checkpoint as text; see `nimbus.checkpoint`."""


class HeartbeatAnswer(NamedTuple):
    """The answer to a driver's heartbeat."""

    stop: bool = False
    """The driver must stop."""
    outdated: bool = False
    """The attempt is over for this driver."""
    claimed: bool = True
    """False: the claim is not there. If that lasts, the attempt was archived; else a server lags behind."""


class DataRequest(BaseModel):
    """A driver's request for the signed URL of an object in the bucket of outputs."""

    nonce: Annotated[str, Field(max_length=256)]
    uri: Annotated[str, Field(max_length=1024)]
    """URI of the bucket."""
    output: Annotated[str, Field(max_length=1024)]
    """Prefix of the attempt's own output."""
    inputs: Sequence[str]
    """References of its inputs."""
    method: Literal["GET", "HEAD", "PUT"]
    key: Annotated[str, Field(max_length=1024)]


class SecretsRequest(BaseModel):
    """A driver's request for the secrets of its task."""

    nonce: Annotated[str, Field(max_length=256)]
    names: Annotated[dict[str, str], Field(max_length=32)]
    """As of `TaskSpec.secrets`."""
    token: Annotated[str, Field(max_length=256)]
    """Valid for this attempt and these secrets."""


class SignedUrl(NamedTuple):
    """A signed URL, and the headers that a request with it must have."""

    url: str
    headers: Mapping[str, str]


class AttemptGateway(Protocol):
    """The access of drivers in clusters to their attempts.

    Methods with an attempt raise StoreUnavailableError when ZooKeeper or storage does not answer.
    """

    def admits(self, attempt: ClusterAttempt, token: str) -> bool:
        """True when the token is valid for this attempt and its release."""

    @property
    def schedulers(self) -> Callable[[], Sequence[str]]:
        """Returns the base URLs of the registered schedulers."""

    def bootstrap(self) -> bytes:
        """The program that runs in the cluster, as a zip archive."""

    def release(self, attempt: ClusterAttempt) -> Iterator[bytes]:
        """A tar file of the release, in pieces."""

    def claim(
        self, attempt: ClusterAttempt, *, nonce: str, driver: str, target: str, worker: str, host: str
    ) -> bool:
        """Fill CLAIM. True: this driver holds it. Safe to repeat."""

    def heartbeat(
        self, attempt: ClusterAttempt, nonce: str, progress: Mapping[str, Any], checkpoint: str | None
    ) -> HeartbeatAnswer:
        """Record a heartbeat, unless the claim is not there or the attempt is over.

        `checkpoint`: a new checkpoint of its task, as text; None: there is none.
        """

    def log(
        self, attempt: ClusterAttempt, nonce: str, offset: int, data: bytes, kept: KeptLog = KeptLog.LOG
    ) -> bool:
        """Store a piece of the log; False: it is too long, or the attempt is over for this driver.

        Raises StoreUnavailableError: the claim is not there, as of `HeartbeatAnswer.claimed`.
        """

    def secrets(self, attempt: ClusterAttempt, request: SecretsRequest) -> Mapping[str, str] | None:
        """The values of the task's secrets, by variable; None: no access, or it is over for this driver.

        Raises AttemptWithdrawnError: the claim is not there (yet); NimbusError: they cannot be had; with code
        `secret_denied`, its pipeline may not use one.
        """

    def admits_to_data(self, attempt: ClusterAttempt, token: str, request: DataRequest) -> bool:
        """True when the token is valid for this output and these inputs of the attempt."""

    def sign(self, attempt: ClusterAttempt, request: DataRequest) -> SignedUrl | None:
        """The signed URL of an object; None: no access, or the attempt is over for this driver.

        Raises AttemptWithdrawnError: the claim is not there, as of `HeartbeatAnswer.claimed`.
        """

    def end(self, attempt: ClusterAttempt, report: AttemptReport) -> str:
        """Fill END. Return the outcome in END, which may be an earlier one."""


_Text = Annotated[str, Field(max_length=256)]


class ClaimBody(BaseModel):
    """A driver's claim, sent before it runs user code."""

    nonce: _Text
    driver: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,253}$")]
    target: _Text
    worker: _Text
    host: _Text


class HeartbeatBody(BaseModel):
    """A driver's heartbeat."""

    nonce: _Text
    number: int
    progress: dict[str, Any] = Field(default_factory=dict)
    checkpoint: str | None = None


def _named(
    attempt: str, pipeline: Annotated[str, Query()], release: Annotated[str, Query()]
) -> ClusterAttempt:
    return ClusterAttempt(
        id=AttemptId.parse(attempt), pipeline=pipeline_name(pipeline), release=release_digest(release)
    )


_Named = Annotated[ClusterAttempt, Depends(_named)]
_Authorization = Annotated[str, Header()]


def router(gateway: AttemptGateway) -> APIRouter:
    """Build the routes over `gateway`."""
    routes = APIRouter(prefix="/attempt/v1", include_in_schema=False)

    def admitted(named: _Named, authorization: _Authorization = "") -> ClusterAttempt:
        if not gateway.admits(named, authorization.removeprefix("Bearer ")):
            raise HTTPException(401, "The token is not one for this attempt.")
        return named

    its_own: Any = Depends(admitted)

    @routes.get("/bootstrap.py")
    def bootstrap() -> Response:
        return Response(gateway.bootstrap(), media_type="application/zip")

    @routes.get("/{attempt}/release.tar")
    def release(attempt: ClusterAttempt = its_own) -> StreamingResponse:
        return StreamingResponse(gateway.release(attempt), media_type="application/x-tar")

    @routes.post("/{attempt}/claim")
    def claim(body: ClaimBody, attempt: ClusterAttempt = its_own) -> dict[str, Any]:
        return {"granted": gateway.claim(attempt, **body.model_dump()), "schedulers": gateway.schedulers()}

    @routes.post("/{attempt}/beat")
    def heartbeat(body: HeartbeatBody, attempt: ClusterAttempt = its_own) -> dict[str, Any]:
        said = {"number": body.number, **body.progress}
        answer = gateway.heartbeat(attempt, body.nonce, said, body.checkpoint)
        return {**answer._asdict(), "schedulers": gateway.schedulers()}

    @routes.post("/{attempt}/log")
    def log(
        offset: Annotated[int, Query(ge=0)],
        nonce: Annotated[str, Query(max_length=256)],
        data: Annotated[bytes, Body(media_type="application/octet-stream")],
        kept: Annotated[KeptLog, Query()] = KeptLog.LOG,
        attempt: ClusterAttempt = its_own,
    ) -> dict[str, bool]:
        return {"stored": gateway.log(attempt, nonce, offset, data, kept)}

    @routes.post("/{attempt}/end")
    def end(body: AttemptReport, attempt: ClusterAttempt = its_own) -> dict[str, str]:
        return {"outcome": gateway.end(attempt, body)}

    _add_secrets(routes, gateway, its_own)
    _add_data(routes, gateway)
    return routes


def _add_secrets(routes: APIRouter, gateway: AttemptGateway, its_own: Any) -> None:
    """Add the secrets of the task."""

    @routes.post("/{attempt}/secrets")
    def secrets(body: SecretsRequest, attempt: ClusterAttempt = its_own) -> dict[str, Any]:
        try:
            values = gateway.secrets(attempt, body)
        except AttemptWithdrawnError as exc:
            raise HTTPException(409, str(exc)) from exc  # the driver asks again for a while
        except NimbusError as exc:  # another scheduler may have it
            raise HTTPException(422 if exc.code == "secret_denied" else 503, str(exc)) from exc
        if values is None:
            raise HTTPException(422, "The secrets are not the attempt's, or the attempt is over.")
        return {"values": values}


def _add_data(routes: APIRouter, gateway: AttemptGateway) -> None:
    """Add signed URLs for the bucket of outputs."""

    @routes.post("/{attempt}/sign")
    def sign(body: DataRequest, named: _Named, authorization: _Authorization = "") -> dict[str, Any]:
        if not gateway.admits_to_data(named, authorization.removeprefix("Bearer "), body):
            raise HTTPException(401, "The token is not one for this output and these inputs.")
        try:
            signed = gateway.sign(named, body)
        except AttemptWithdrawnError as exc:
            raise HTTPException(409, str(exc)) from exc  # the driver asks again for a while
        if signed is None:
            raise HTTPException(422, "The object is not the attempt's, or the attempt is over.")
        return {**signed._asdict(), "schedulers": gateway.schedulers()}
