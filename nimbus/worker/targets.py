"""Named places where a task's Spark runs, as a worker uses them. See `spark.targets` of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import structlog

from nimbus.domain.errors import NimbusError
from nimbus.domain.slots import ConnectSession
from nimbus.worker.connect_plan import ConnectPlan
from nimbus.worker.connect_server import RemoteServer

_log = structlog.get_logger(__name__)


class TargetKind(StrEnum):
    """What a target is."""

    LOCAL = "local"
    CONNECT = "connect"
    STANDALONE = "standalone"
    YARN = "yarn"
    KUBERNETES = "kubernetes"

    @property
    def runs_drivers(self) -> bool:
        """It is a cluster that a driver can be submitted to."""
        return self not in (TargetKind.LOCAL, TargetKind.CONNECT)


class TargetError(NimbusError):
    """A target cannot be used as it is configured."""

    code = "spark_target"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTarget:
    """One place. Checked where the configuration was read, then trusted."""

    name: str
    kind: TargetKind
    slots: int = 8
    master: str = ""
    """Of Spark; empty for a Connect server."""
    url: str = ""
    """Of a Connect server, `sc://host:port`."""
    rest: tuple[str, ...] = ()
    """Of standalone's REST servers, or of YARN's ResourceManagers, `http://host:port`."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Properties, those included that follow from other keys. The worker's yield, the task's own win."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that drivers and submissions need."""
    ca_file: Path | None = None
    """Of the authority of the Kubernetes API server."""
    token: Callable[[], str | None] = field(default=lambda: None, repr=False)
    """Read what the target wants to hear, if anything. Raises TargetError when it cannot be read."""

    def plan(self) -> ConnectPlan:
        """A session on this Connect server.

        Raises:
            TargetError: its token cannot be read.
            ConnectPackagesError: the extra `connect` is not installed.
        """
        return RemoteServer(self.url, self.token()).plan()

    def reach(self, session: ConnectSession) -> ConnectPlan | None:
        """How to reach a session; None: it is not on this server, or the token is gone."""
        found = RemoteServer(self.url, None).reach(session) if self.url else None
        try:
            return None if found is None else replace(found, token=self.token())
        except TargetError as exc:
            _log.warning("connect_token_unreadable", error=str(exc))
            return None
