"""The registration of a scheduler, and the leader's report in it: facts that no record holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from nimbus.domain.attempts.workers import Refusals, WorkerInfo
from nimbus.domain.ids import HostId, RunId, TaskName, WorkerId
from nimbus.domain.starts.waits import LastProbe


class WaitingTask(NamedTuple):
    """A ready task that waits."""

    run: RunId
    task: TaskName


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamUse:
    """What a team has and wants of what teams share."""

    slots: int = 0
    """Number of open attempts that take slots of workers."""
    runs: int = 0
    """Number of its runs that count for `runs.max_running`."""
    waiting: int = 0
    """Number of ready tasks."""
    queued: bool = False
    """True: a run of it is queued."""
    pools: Mapping[str, int] = field(default_factory=dict)
    """How much open attempts take of each pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """Use of the limits that tasks share. Names with no use are left out."""

    pools: Mapping[str, int] = field(default_factory=dict)
    """How much open attempts take of each pool."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Number of ready tasks that need each pool."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Number of open attempts whose Spark runs at each target."""
    teams: Mapping[str, TeamUse] = field(default_factory=dict)
    """By owner of pipelines; empty text: those without one. Cut if there are very many."""
    held_for: Mapping[str, WaitingTask] = field(default_factory=dict)
    """By pool: the first waiting task, which no other overtakes. Cut if there are very many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedKey:
    """A key that the leader leaves out for a while, because it could not decide about it."""

    kind: str
    """For example `run`, `pipeline`, `backfill`, `command`; `children`: a task that starts child runs."""
    id: str
    """Id of the run, the pipeline, the backfill or the command."""
    task: str = ""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSlots:
    """Slots that ready tasks lack: with that many more, on workers that suit, all of them would start."""

    labels: tuple[str, ...] = ()
    """Labels that the worker must have, sorted."""
    target: str = ""
    """The target that the worker must have; empty: none."""
    slots: int
    """Tasks whose drivers run in a cluster take none, so for all of them it is 1."""
    since: datetime
    """When the oldest of these tasks became ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderReport:
    """What explanations need to know about the leader."""

    limits: LimitUse = field(default_factory=LimitUse)
    parked: tuple[ParkedKey, ...] = ()
    """Cut if there are very many."""
    parked_count: int = 0
    wanted: tuple[WantedSlots, ...] | None = None
    """What workers must be added for, counted every few seconds. Cut if there are very many kinds.
    None: not counted since the take-over."""


class ElectionRole(StrEnum):
    """The position of a scheduler in the election."""

    STARTING = "starting"
    SYNCING = "syncing"
    """Out of the queue, because artifacts are missing."""
    BACKING_OFF = "backing_off"
    """Out of the queue for a short time after it abdicated."""
    QUEUED = "queued"
    VALIDATING = "validating"
    """Holds the lock; its guard is being called."""
    RECOVERING = "recovering"
    """Leads, and is still reading the state."""
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
    """A scheduler's registration: an ephemeral record, which exists while the scheduler is alive."""

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
    role: ElectionRole
    epoch: int | None = None
    """Set while the scheduler leads."""
    leader_since: datetime | None = None
    recovered_at: datetime | None = None
    """When the leader had read the state, adopted open attempts, and done its first round of decisions."""
    ready: bool = False
    """True when every artifact of every active pipeline is on this disk and verified."""
    lacks: str = ""
    """Why it is not ready. Empty: it is ready."""
    missing: tuple[MissingFile, ...] = ()
    """The first few missing files."""
    missing_count: int = 0
    missing_bytes: int = 0
    missing_eta_s: float | None = None
    """Seconds until all files are here at the present speed; None: none is missing, or none came lately."""
    guard_said: str = ""
    """The guard's last answer: `ready`, `degraded: ...`, or a reason; empty: not called since the start."""
    last_abdication: str = ""
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Leader only: pipelines whose artifacts no scheduler and no storage has, with the reason."""
    newest_schema: int = 1
    """The newest cluster schema that it knows, see `nimbus.domain.cluster.schema`."""
    has_sentinel: bool = False
    """True while its crash sentinel runs."""
    refusals: Mapping[WorkerId, Refusals] = field(default_factory=dict)
    """Leader only: workers that did not start their last attempts. Cut if there are very many."""
    looks: Mapping[str, LastProbe] = field(default_factory=dict)
    """Leader only: the last probes of data that waiting tasks miss. Cut if there are many."""
    report: LeaderReport = field(default_factory=LeaderReport)
    """Leader only."""
    clock_ahead_s: float | None = None
    """How far its clock was ahead of ZooKeeper's at its last report; negative: behind. None: not known."""
    load_average: float = 0.0
    memory_available_bytes: int = 0
    disk_free_bytes: int = 0


def clocks_differ_s(participants: Iterable[SchedulerInfo | WorkerInfo]) -> float:
    """The largest difference between the clocks of two participants, in seconds."""
    ahead = [
        participant.clock_ahead_s for participant in participants if participant.clock_ahead_s is not None
    ]
    return max(ahead, default=0.0) - min(ahead, default=0.0)


def leader_report(schedulers: Iterable[SchedulerInfo]) -> LeaderReport:
    """The leader's report, from its registration; an empty report while there is no leader.

    A former leader may still be registered as leader for some seconds: the highest epoch counts.
    """
    reports = {scheduler.epoch: scheduler.report for scheduler in schedulers if scheduler.epoch is not None}
    return reports[max(reports)] if reports else LeaderReport()
