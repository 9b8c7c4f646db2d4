"""What a scheduler says of itself: its registration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from nimbus.domain.counted import counted
from nimbus.domain.ids import HostId, WorkerId
from nimbus.domain.leader_report import LeaderReport
from nimbus.domain.refusals import Refusals
from nimbus.domain.waits import LookReport


class Role(StrEnum):
    """What a scheduler is doing about leadership."""

    STARTING = "starting"
    SYNCING = "syncing"
    """Out of the queue, since artifacts are missing."""
    BACKING_OFF = "backing_off"
    """Out of the queue for a moment after it gave leadership up."""
    QUEUED = "queued"
    VALIDATING = "validating"
    """Holds the lock; its guard is being asked."""
    RECOVERING = "recovering"
    """Leads, and reads the state."""
    LEADER = "leader"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFile:
    """One file that a scheduler lacks."""

    pipeline: str
    path: str
    role: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerInfo:
    """A scheduler's registration: it is alive while this stands in ZooKeeper."""

    id: str
    boot_id: str
    """New with each start of the process."""
    host: HostId
    hostname: str
    address: str
    """Base URL of its HTTP API."""
    pid: int
    version: str
    started_at: datetime
    reported_at: datetime
    role: Role
    epoch: int | None = None
    """While it leads."""
    leader_since: datetime | None = None
    recovered_at: datetime | None = None
    """When the leader had read the state, adopted what was open, and done its first round of decisions."""
    ready: bool = False
    """Every artifact of every active pipeline is here and verified."""
    missing: tuple[MissingFile, ...] = ()
    """The first few of what it lacks."""
    missing_count: int = 0
    missing_bytes: int = 0
    missing_eta_s: float | None = None
    """Until all of it is here, at the present speed; None: nothing is missing, or nothing came lately."""
    guard_said: str = ""
    """The guard's last answer: `ready`, `degraded: ...`, or why not; empty: not asked since the start."""
    last_abdication: str = ""
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Leader only: pipelines whose artifacts are nowhere, with the reason."""
    newest_schema: int = 1
    """The newest schema of a cluster that it knows, see `nimbus.domain.schema`; 0.1 says none."""
    refusals: Mapping[WorkerId, Refusals] = field(default_factory=dict)
    """Leader only: workers that did not start their last attempts; if there are very many, not all."""
    looks: Mapping[str, LookReport] = field(default_factory=dict)
    """Leader only: the last looks at data that tasks wait for and that is not there; if many, not all."""
    report: LeaderReport = field(default_factory=LeaderReport)
    """Leader only."""
    load_average: float = 0.0
    memory_available_bytes: int = 0
    disk_free_bytes: int = 0

    @property
    def lacks(self) -> str:
        """What is missing, in words; empty: it is ready."""
        if self.ready:
            return ""
        if not self.missing_count:
            return "not all required releases were looked at yet"
        return f"{counted(self.missing_count, 'file')} missing, {counted(self.missing_bytes, 'byte')}"


def leader_report(schedulers: Iterable[SchedulerInfo]) -> LeaderReport:
    """What the leader says, as registered; nothing while there is none.

    A former leader may be registered as one for some seconds more.
    """
    found = {one.epoch: one.report for one in schedulers if one.epoch is not None}
    return found[max(found)] if found else LeaderReport()
