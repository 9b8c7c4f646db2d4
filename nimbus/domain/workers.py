"""Workers, and what they are given to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from nimbus.domain.ids import HostId, PipelineName, ReleaseDigest, RunId, WorkerId
from nimbus.domain.intervals import DataInterval
from nimbus.domain.pipeline import TaskSpec
from nimbus.domain.slots import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker's registration: it is alive while this stands in ZooKeeper."""

    id: WorkerId
    host: HostId
    hostname: str
    pid: int
    slots: int
    version: str
    started_at: datetime
    draining: bool = False
    load_average: float = 0.0
    memory_available_bytes: int = 0
    scheduler_id: str | None = None
    """The scheduler it is embedded in."""
    newest_schema: int = 1
    """As that of a scheduler, see `SchedulerInfo.newest_schema`."""
    has_java: bool = True
    """It found a Java at its start. Releases that do not say this do not start without one."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Names of the places where it can run a task's Spark, beside its own, with the slots of each."""
    submits: tuple[str, ...] = ()
    """Names of those of them that it submits drivers to, and follows drivers in."""
    orders_in_clusters: int = 0
    """Its orders, at the last heartbeat, of attempts whose drivers run in clusters: none takes a slot."""
    labels: tuple[str, ...] = ()
    """What tasks can ask for with `runs_on`."""
    lacks: str = ""
    """What its host has too little of (`worker.min_free`): it is given nothing new so long."""
    class_archive: str = ""
    """How it is with the class-data archive of Spark's jars, for people."""
    warm_drivers: str = ""
    """How many Spark drivers wait for an attempt, or why none does, for people."""
    executor: str = ""
    """The pid of the executor process that takes pooled attempts, or why there is none, for people."""
    reported_at: datetime | None = None
    """When this was written. None: an earlier release did."""


class AssignmentKind(StrEnum):
    """What a worker is asked to do with an attempt."""

    RUN = "run"
    REAP = "reap"
    """Look for what is left of it on this host; if its driver is gone, end the rest and write END: what the
    runner had recorded and could not deliver, or lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An order to one worker: the intent, written before anything is started. Safe to read twice."""

    attempt: str
    kind: AssignmentKind
    epoch: int
    pipeline: PipelineName
    release: ReleaseDigest
    run: RunId
    task: TaskSpec
    logical_date: datetime
    parameters: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    """References of the committed outputs of the needed tasks."""
    data_interval: DataInterval | None = None
    timezone: str | None = None
    output: str = ""
    """Where the attempt's own output is to lie, relative to `worker.data`; in a bucket with a nonce."""
    timeout: timedelta | None = None
    memory_scale: float = 1.0
    """How many times its own memory the task gets. The worker applies it to every size of memory that it
    sets for the task: what the task says, or else the worker's default."""
    claim: Claim | None = None
    """For REAP: whom to look for."""
