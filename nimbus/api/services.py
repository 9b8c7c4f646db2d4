"""What the API needs from the process that serves it, as ports. Filled by `nimbus.bootstrap`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry

from nimbus.domain.schedulers import SchedulerInfo
from nimbus.ports import Clock, ClusterReader, CommandQueue, Definitions, History, LogArchive


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
