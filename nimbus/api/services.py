"""What the API needs from the process that serves it, as ports. Filled by `nimbus.bootstrap`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

from anyio import CapacityLimiter
from prometheus_client import CollectorRegistry
from pydantic import AwareDatetime, BaseModel, Field

from nimbus.access.gate import Gate
from nimbus.api.spark_history import HistoryServers
from nimbus.config.shown import Shown
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest
from nimbus.domain.release_files import Holders, Publication, ReleaseFile
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.succession import FailoverTimes
from nimbus.ports import (
    ChangeFeed,
    Clock,
    ClusterReader,
    CommandQueue,
    Definitions,
    History,
    IdentityProvider,
    Kept,
    LogArchive,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at to say whether this scheduler can serve."""

    name: str
    """`zookeeper`, `storage`, `artifacts`."""
    ok: bool
    detail: str = ""
    required: bool = True
    """False: shown, but does not make the scheduler unready to serve. One that still syncs can serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """One latch in the lock queue."""

    id: str
    """The scheduler's id."""
    boot_id: str
    position: int
    """0: holds the lock."""
    is_leader: bool
    is_next: bool = False
    """Would lead if the leader left now, by the rule of the election."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """The confirmed leader, as it published itself."""

    id: str
    address: str
    """Base URL of its API."""
    epoch: int


class HealthPort(Protocol):
    """What this process knows of itself and of the election.

    The last three raise StoreUnavailableError when ZooKeeper does not answer.
    """

    def readiness(self) -> Sequence[Check]:
        """Look at what serving needs. Under a second, and never raises: a failure is a failed check."""
        ...

    def info(self) -> SchedulerInfo:
        """This scheduler, as it registers itself. Answered from memory."""
        ...

    def participants(self) -> Sequence[QueuePlace]:
        """The lock queue, first in line first."""
        ...

    def schema(self) -> int | None:
        """The schema of the cluster; None before its first leader."""
        ...

    def leader(self) -> LeaderView | None:
        """The confirmed leader; None while there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAttempt:
    """An attempt whose driver asks for something, and what it says its release is."""

    id: AttemptId
    pipeline: PipelineName
    release: ReleaseDigest


class DriverReport(BaseModel):
    """How the task of a driver in a cluster ended."""

    nonce: Annotated[str, Field(max_length=256)]
    status: Annotated[int, Field(ge=-255, le=255)] | None
    """As of `Popen.returncode`; None: the task was not started."""
    refused: Annotated[str, Field(max_length=2000)] = ""
    """Why it was not started."""
    ordered: Annotated[str, Field(max_length=32)] = "not"
    """Why the bootstrap ended it, as `nimbus.worker.verdict.Ordered` spells it."""
    came_to_its_end: bool = False
    started_at: AwareDatetime | None = None
    log_tail: str = ""
    not_flushed: Annotated[str, Field(max_length=2000)] = ""
    """Why its output is not sure to be on the disk, or could not be stored in the bucket."""
    output: Annotated[str, Field(max_length=1024)] | None = None
    """Reference of its output in the bucket; None: it is in a folder."""
    is_program: bool = False
    timeout_s: float | None = None
    application: Any = None
    """Id of its Spark application, in whatever form: an END is never refused for it."""
    result: str | None = None
    """The text of its result; see `nimbus.result`."""
    checkpoint: str | None = None
    """The text of its last checkpoint; see `nimbus.checkpoint`."""


class DataRequest(BaseModel):
    """A driver asks for the address of an object in the bucket of outputs."""

    nonce: Annotated[str, Field(max_length=256)]
    uri: Annotated[str, Field(max_length=1024)]
    """Of the bucket."""
    output: Annotated[str, Field(max_length=1024)]
    """Prefix of the attempt's own output."""
    inputs: Sequence[str]
    """References of its inputs."""
    method: Literal["GET", "HEAD", "PUT"]
    key: Annotated[str, Field(max_length=1024)]


class Releases(Protocol):
    """What releases are made of, and who has them.

    Those that ask storage raise StorageUnavailableError when it does not answer.
    """

    def published(self, pipeline: PipelineName) -> Sequence[Publication]:
        """When releases were published, newest first. Asks storage."""
        ...

    def is_here(self, release: ReleaseOf) -> bool:
        """Whether a release is on this disk, whole and verified."""
        ...

    def files(self, release: ReleaseOf) -> Sequence[ReleaseFile] | None:
        """Its files, by path; None: there is no such release. Asks storage if it is not on this disk."""
        ...

    def content(self, release: ReleaseOf, path: str) -> bytes | None:
        """The bytes of a file; None: it is not on this disk. Asks no storage."""
        ...

    def holders(self, digest: ReleaseDigest) -> Holders:
        """Which schedulers have it. Asks storage."""
        ...


class AttemptDoor(Protocol):
    """What drivers in clusters reach of the cluster's state.

    Those that ask for an attempt raise StoreUnavailableError when ZooKeeper or storage does not answer.
    """

    def admits(self, attempt: ClusterAttempt, token: str) -> bool:
        """Whether the token is the one for this attempt and its release."""
        ...

    @property
    def schedulers(self) -> Callable[[], Sequence[str]]:
        """Base URLs of the schedulers that are registered now."""
        ...

    def bootstrap(self) -> str:
        """The program that runs in the cluster."""
        ...

    def kit(self) -> bytes:
        """A zip file with the modules that its task's process imports."""
        ...

    def release(self, attempt: ClusterAttempt) -> Iterator[bytes]:
        """A tar file of the release, in pieces."""
        ...

    def claim(
        self, attempt: ClusterAttempt, *, nonce: str, driver: str, target: str, worker: str, host: str
    ) -> bool:
        """Fill CLAIM; whether it is this driver's. Safe to repeat."""
        ...

    def beat(
        self, attempt: ClusterAttempt, nonce: str, progress: Mapping[str, Any], checkpoint: str | None
    ) -> tuple[bool, bool]:
        """Note that the driver lives; whether it is to stop, and whether the attempt is over for it.

        `checkpoint`: a new one of its task, as text; None: there is none.
        """
        ...

    def log(
        self, attempt: ClusterAttempt, nonce: str, offset: int, data: bytes, kept: Kept = Kept.LOG
    ) -> bool:
        """Store a piece of the log; False: it is too long, or the attempt is over for this driver."""
        ...

    def admits_to_data(self, attempt: ClusterAttempt, token: str, request: DataRequest) -> bool:
        """Whether the token is the one for this output and these inputs of the attempt."""
        ...

    def sign(self, attempt: ClusterAttempt, request: DataRequest) -> str | None:
        """The address of an object; None: it is not the attempt's, or the attempt is over for this driver."""
        ...

    def end(self, attempt: ClusterAttempt, report: DriverReport) -> str:
        """Fill END; the outcome that stands there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTests:
    """The targets of alerts that this scheduler has."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    """By name."""
    send: Callable[[str], None] = lambda _target: None
    """Send a message that says it is a test, within about 20 s. Raises AlertNotSentError."""


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
    """Its `version` may be asked for by anybody; the rest is for the streams of events."""
    max_running: int | None = None
    """As in the engine's policy."""
    failover: FailoverTimes | None = None
    """None: no other scheduler can lead."""
    door: AttemptDoor | None = None
    """For drivers in clusters."""
    hook_secret: Callable[[str], str] | None = None
    """Gives the secret of a webhook by its name; None: this scheduler has no secrets."""
    spark_history: HistoryServers = field(default_factory=HistoryServers)
    alerts: AlertTests = field(default_factory=AlertTests)
    gate: Gate = field(default_factory=Gate)
    """Finds out who asks."""
    provider: IdentityProvider | None = None
    """Who knows people by OpenID Connect."""
    browser_login: bool = False
    """Whether browsers log in at the provider."""
    redirect_uri: str | None = None
    """Where the provider sends them back; None: to the host that a browser names."""
    settings: Sequence[Shown] = ()
    """What the process was started with, secrets masked."""
    comparing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    """Of threads that compare releases: that is work for the processor, and takes memory."""
