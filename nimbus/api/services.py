"""Ports that the API needs from its process. `nimbus.bootstrap` provides them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from anyio import CapacityLimiter
from prometheus_client import CollectorRegistry
from pydantic import AwareDatetime, BaseModel, Field

from nimbus.access.gate import AccessGate
from nimbus.config.settings import Shown
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest
from nimbus.domain.outputs import ListedFile, Listing
from nimbus.domain.release_files import Holders, ReleaseFile, ReleasePublication
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.supervision import Timings
from nimbus.ports import (
    ChangeFeed,
    Clock,
    ClusterReader,
    CommandQueue,
    Definitions,
    History,
    IdentityProvider,
    KeptLog,
    LogArchive,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryServers:
    """Base URLs of Spark's history servers, from the configuration."""

    general: str | None = None
    of_targets: Mapping[str, str] = field(default_factory=dict)
    """Servers of targets that have their own, by the target's name."""

    def page(self, target: str | None, application: str) -> str | None:
        """The page of an application; None: no server is known. `target`: that of the task, if it has one."""
        server = self.of_targets.get(target or "", self.general)
        return None if server is None else f"{server}/history/{application}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of whether this scheduler can serve."""

    name: str
    """For example `zookeeper`, `storage`, `artifacts`."""
    ok: bool
    detail: str = ""
    required: bool = True
    """False: only shown. A failed check does not prevent serving: a syncing scheduler can serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """One latch in the lock queue."""

    id: str
    """The scheduler's id."""
    boot_id: str
    position: int
    """Position in the queue; 0: holds the lock."""
    is_leader: bool
    is_next: bool = False
    """True: it would lead if the leader's latch were removed now, by the rules of the election."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """The confirmed leader, from its published record."""

    id: str
    address: str
    """Base URL of its API."""
    epoch: int


class HealthPort(Protocol):
    """Facts about this process and the election.

    The last three raise StoreUnavailableError when ZooKeeper does not answer.
    """

    def readiness(self) -> Sequence[Check]:
        """Check what serving needs. Takes under a second, and never raises: an error is a failed check."""
        ...

    def info(self) -> SchedulerInfo:
        """This scheduler's registration, from memory."""
        ...

    def participants(self) -> Sequence[QueuePlace]:
        """The lock queue, in order."""
        ...

    def schema(self) -> int | None:
        """The schema of the cluster; None before its first leader."""
        ...

    def leader(self) -> LeaderView | None:
        """The confirmed leader; None while there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAttempt:
    """The attempt of a requesting driver, with the release that the driver names."""

    id: AttemptId
    pipeline: PipelineName
    release: ReleaseDigest


class DriverReport(BaseModel):
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
    """What it used, in any form, as above; see `nimbus.domain.cost`."""
    result: str | None = None
    """Its result as text; see `nimbus.result`."""
    checkpoint: str | None = None
    """Its last checkpoint as text; see `nimbus.checkpoint`."""


class BeatAnswer(NamedTuple):
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


class Releases(Protocol):
    """Files of releases, and the schedulers that have them.

    Methods that read storage raise StorageUnavailableError when it does not answer.
    """

    def published(self, pipeline: PipelineName) -> Sequence[ReleasePublication]:
        """Publications of releases, newest first. Reads storage."""
        ...

    def is_here(self, release: ReleaseOf) -> bool:
        """True when a release is on this disk, complete and verified."""
        ...

    def files(self, release: ReleaseOf) -> Sequence[ReleaseFile] | None:
        """Its files, by path; None: there is no such release. Reads storage if it is not on this disk."""
        ...

    def content(self, release: ReleaseOf, path: str) -> bytes | None:
        """The bytes of a file; None: it is not on this disk. Never reads storage."""
        ...

    def holders(self, digest: ReleaseDigest) -> Holders:
        """The schedulers that have it. Reads storage."""
        ...


class OpenedFile(NamedTuple):
    """A file of an output, open to read."""

    file: ListedFile
    pieces: Iterator[bytes]
    """Fails before its last piece if the content is not that of `file`."""


class OutputFiles(Protocol):
    """Files of committed outputs, which tasks have named. `reference`: as of `Attempt.output`.

    Raises OutputsNotHereError if this scheduler cannot read the output, and NimbusError with `retryable`
    if the bucket or ZooKeeper does not answer.
    """

    def uri(self, reference: str) -> str:
        """The URI below which the files of an output are."""
        ...

    def listed(self, reference: str, limit: int, after: str = "") -> Listing:
        """The first files after a path."""
        ...

    def opened(self, reference: str, path: str) -> OpenedFile | None:
        """Open a file; None: the output has none of that name."""
        ...


class AttemptDoor(Protocol):
    """The access of drivers in clusters to their attempts.

    Methods with an attempt raise StoreUnavailableError when ZooKeeper or storage does not answer.
    """

    def admits(self, attempt: ClusterAttempt, token: str) -> bool:
        """True when the token is valid for this attempt and its release."""
        ...

    @property
    def schedulers(self) -> Callable[[], Sequence[str]]:
        """Returns the base URLs of the registered schedulers."""
        ...

    def bootstrap(self) -> bytes:
        """The program that runs in the cluster, as a zip archive."""
        ...

    def release(self, attempt: ClusterAttempt) -> Iterator[bytes]:
        """A tar file of the release, in pieces."""
        ...

    def claim(
        self, attempt: ClusterAttempt, *, nonce: str, driver: str, target: str, worker: str, host: str
    ) -> bool:
        """Fill CLAIM. True: this driver holds it. Safe to repeat."""
        ...

    def beat(
        self, attempt: ClusterAttempt, nonce: str, progress: Mapping[str, Any], checkpoint: str | None
    ) -> BeatAnswer:
        """Record a heartbeat, unless the claim is not there or the attempt is over.

        `checkpoint`: a new checkpoint of its task, as text; None: there is none.
        """
        ...

    def log(
        self, attempt: ClusterAttempt, nonce: str, offset: int, data: bytes, kept: KeptLog = KeptLog.LOG
    ) -> bool:
        """Store a piece of the log; False: it is too long, or the attempt is over for this driver.

        Raises:
            StoreUnavailableError: the claim is not there, as of `BeatAnswer.claimed`.
        """
        ...

    def secrets(self, attempt: ClusterAttempt, request: SecretsRequest) -> Mapping[str, str] | None:
        """The values of the task's secrets, by variable; None: no access, or it is over for this driver.

        Raises:
            AttemptWithdrawnError: the claim is not there (yet).
            NimbusError: they cannot be had; with code `secret_denied`, its pipeline may not use one.
        """
        ...

    def admits_to_data(self, attempt: ClusterAttempt, token: str, request: DataRequest) -> bool:
        """True when the token is valid for this output and these inputs of the attempt."""
        ...

    def sign(self, attempt: ClusterAttempt, request: DataRequest) -> SignedUrl | None:
        """The signed URL of an object; None: no access, or the attempt is over for this driver.

        Raises:
            AttemptWithdrawnError: the claim is not there, as of `BeatAnswer.claimed`.
        """
        ...

    def end(self, attempt: ClusterAttempt, report: DriverReport) -> str:
        """Fill END. Return the outcome in END, which may be an earlier one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTests:
    """This scheduler's alert targets, for tests of them."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kinds of targets, by name."""
    send: Callable[[str], None] = lambda _target: None
    """Sends a test message, within about 20 s. Raises AlertNotSentError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """Everything the API reads from and writes to."""

    reader: ClusterReader
    definitions: Definitions
    commands: CommandQueue
    history: History
    logs: LogArchive
    health: HealthPort
    metrics: CollectorRegistry
    clock: Clock
    releases: Releases
    changes: ChangeFeed
    """Any code may call its `version`; the other methods are for the streams of events."""
    max_running: int | None = None
    timings: Timings = field(default_factory=Timings)
    """Both as in the engine's policy."""
    session_timeout: timedelta | None = None
    """Of a scheduler's session in ZooKeeper; None: no other scheduler can lead."""
    door: AttemptDoor | None = None
    """Access of drivers in clusters; None: there are none."""
    outputs: OutputFiles | None = None
    """Files of outputs; None: this process has no place of outputs."""
    hook_secret: Callable[[str], str] | None = None
    """Gives the secret of a webhook by its name; None: this scheduler has no secrets."""
    spark_history: HistoryServers = field(default_factory=HistoryServers)
    alerts: AlertTests = field(default_factory=AlertTests)
    gate: AccessGate = field(default_factory=AccessGate)
    """Authenticates requests."""
    provider: IdentityProvider | None = None
    """The OpenID Connect provider; None: there is none."""
    browser_login: bool = False
    """True when browsers log in at the provider."""
    redirect_uri: str | None = None
    """URI to which the provider redirects browsers; None: derived from the browser's `Host`."""
    settings: Sequence[Shown] = ()
    """The settings of the process, with masked secrets."""
    comparing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    """Limit of threads that compare releases, which takes processor time and memory."""
    reading: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(4))
    """Limit of threads that list and open outputs: a folder on a network may hang."""
