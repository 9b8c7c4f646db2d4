"""A worker's view of the named places where a task's Spark runs: `spark.targets` of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import structlog

from nimbus.domain.attempts.slots import ConnectSession
from nimbus.domain.errors import NimbusError
from nimbus.worker.connect.plan import ConnectPlan
from nimbus.worker.connect.server import RemoteServer

_log = structlog.get_logger(__name__)


class TargetKind(StrEnum):
    """The kind of a target."""

    LOCAL = "local"
    CONNECT = "connect"
    STANDALONE = "standalone"
    YARN = "yarn"
    KUBERNETES = "kubernetes"

    @property
    def runs_drivers(self) -> bool:
        """True for a cluster to which drivers can be submitted."""
        return self not in (TargetKind.LOCAL, TargetKind.CONNECT)


class TargetError(NimbusError):
    """A target's configuration cannot be used."""

    code = "spark_target"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTarget:
    """One place. Checked when the configuration was read, then trusted."""

    name: str
    kind: TargetKind
    slots: int = 8
    master: str = ""
    url: str = ""
    rest: tuple[str, ...] = ()
    """URLs of standalone's REST servers, or of YARN's ResourceManagers, `http://host:port`."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Properties, including those derived from other keys. They override the worker's."""
    executors_see: str | None = None
    """What its executors see if they are not this worker's processes: `data`, `host`, or None: unknown."""
    environment: str = ""
    """Environment of drivers on workers whose task names none; empty: the worker's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    """PEM file with the certificate authority of the Kubernetes API server."""
    token: Callable[[], str | None] = field(default=lambda: None, repr=False)
    """Reads the token for the target, if it has one. Raises TargetError if it cannot be read."""

    def plan(self) -> ConnectPlan:
        """The plan of a session on this Connect server. Raises TargetError, MissingPackagesError."""
        return RemoteServer(self.url, self.token()).plan()

    def reach(self, session: ConnectSession) -> ConnectPlan | None:
        """The plan for an existing session; None if it is not on this server, or the token is missing."""
        plan = RemoteServer(self.url, None).reach(session) if self.url else None
        try:
            return None if plan is None else replace(plan, token=self.token())
        except TargetError as exc:
            _log.warning("connect_token_unreadable", error=str(exc))
            return None
