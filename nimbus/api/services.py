"""Ports that the API needs from its process. `nimbus.bootstrap` provides them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeVar

import structlog
from anyio import CapacityLimiter
from prometheus_client import CollectorRegistry

from nimbus.access.gate import AccessGate
from nimbus.api.routes.attempts import AttemptGateway
from nimbus.config.settings import Shown
from nimbus.domain.attempts.supervision import Timings
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.data.outputs import ListedFile, Listing
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.release_files import Holders, ReleaseFile, ReleasePublication
from nimbus.ports import (
    ChangeFeed,
    Clock,
    ClusterReader,
    CommandQueue,
    Definitions,
    History,
    IdentityProvider,
    LogArchive,
)

T = TypeVar("T")
_log = structlog.stdlib.get_logger(__name__)


def if_available(read: Callable[[], T], event: str = "history_unavailable", **about: str) -> T | None:
    """What a read returns; None, and a line in the log, while storage does not answer."""
    try:
        return read()
    except NimbusError as exc:
        if not exc.retryable:
            raise
        _log.warning(event, error=str(exc), **about)
        return None


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
class ReadinessCheck:
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
class ConfirmedLeader:
    """The confirmed leader, from its published record."""

    id: str
    address: str
    """Base URL of its API."""
    epoch: int


class HealthPort(Protocol):
    """Facts about this process and the election.

    The last three raise StoreUnavailableError when ZooKeeper does not answer.
    """

    def readiness(self) -> Sequence[ReadinessCheck]:
        """Check what serving needs. Takes under a second, and never raises: an error is a failed check."""

    def info(self) -> SchedulerInfo:
        """This scheduler's registration, from memory."""

    def participants(self) -> Sequence[QueuePlace]:
        """The lock queue, in order."""

    def schema(self) -> int | None:
        """The schema of the cluster; None before its first leader."""

    def leader(self) -> ConfirmedLeader | None:
        """The confirmed leader; None while there is none."""


class Releases(Protocol):
    """Files of releases, and the schedulers that have them.

    Methods that read storage raise StorageUnavailableError when it does not answer.
    """

    def published(self, pipeline: PipelineName) -> Sequence[ReleasePublication]:
        """Publications of releases, newest first. Reads storage."""

    def is_here(self, release: ReleaseOf) -> bool:
        """True when a release is on this disk, complete and verified."""

    def files(self, release: ReleaseOf) -> Sequence[ReleaseFile] | None:
        """Its files, by path; None: there is no such release. Reads storage if it is not on this disk."""

    def content(self, release: ReleaseOf, path: str) -> bytes | None:
        """The bytes of a file; None: it is not on this disk. Never reads storage."""

    def holders(self, digest: ReleaseDigest) -> Holders:
        """The schedulers that have it. Reads storage."""


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

    def listed(self, reference: str, limit: int, after: str = "") -> Listing:
        """The first files after a path."""

    def opened(self, reference: str, path: str) -> OpenedFile | None:
        """Open a file; None: the output has none of that name."""


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
    gateway: AttemptGateway | None = None
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
