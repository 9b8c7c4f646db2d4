"""Workers, and the orders that they get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from nimbus.domain.ids import HostId, PipelineName, ReleaseDigest, RunId, WorkerId
from nimbus.domain.intervals import DataInterval
from nimbus.domain.pipeline import Limits, TaskSpec
from nimbus.domain.publications import Version
from nimbus.domain.slots import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker's registration: an ephemeral record, which exists while the worker is alive."""

    id: WorkerId
    host: HostId
    hostname: str
    pid: int
    slots: int
    version: str
    started_at: datetime
    draining: bool = False
    evicts: bool = False
    """True: tasks that are kept running leave it. Set from the settings of the cluster alone."""
    load_average: float = 0.0
    memory_available_bytes: int = 0
    scheduler_id: str | None = None
    """The scheduler that the worker is embedded in."""
    newest_schema: int = 1
    """The newest schema that it knows, see `SchedulerInfo.newest_schema`."""
    has_java: bool = True
    """True when it found Java at its start. Releases without this field do not start without Java."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Names of the targets where it can run a task's Spark, with the slots of each."""
    submits: tuple[str, ...] = ()
    """Names of those targets to which it submits drivers, and in which it follows them."""
    orders_in_clusters: int = 0
    """Its orders for attempts with drivers in clusters, at the last heartbeat. They take no slots."""
    labels: tuple[str, ...] = ()
    """Labels that tasks can require with `runs_on`."""
    environments: Mapping[str, str] = field(default_factory=dict)
    """Versions of each of its environments, as text; of one that cannot be used the reason."""
    lacks: str = ""
    """What its host has too little of (`worker.min_free`). Until it is empty, it gets no new attempts."""
    spark_jvms: str = ""
    """How many Spark JVMs it keeps, or why none, as text."""
    jvm_releases: tuple[str, ...] = ()
    """Releases of these JVMs, idle or with an attempt: see `jvm_release`."""
    executor: str = ""
    """Pid of the executor of pooled attempts, with what it could not preload; or why there is none."""
    unstored_logs: str = ""
    """How many logs storage did not accept, and why, as text; empty: it accepts them."""
    reported_at: datetime
    """When this record was written."""
    clock_ahead_s: float | None = None
    """See `SchedulerInfo.clock_ahead_s`."""


def jvm_release(pipeline: PipelineName, release: ReleaseDigest) -> str:
    """How a worker names the release of a JVM that it keeps."""
    return f"{pipeline}/{release}"


class AssignmentKind(StrEnum):
    """What a worker must do with an attempt."""

    RUN = "run"
    REAP = "reap"
    """Look for its processes on this host. If its driver is gone, end the others and write END: the exit
    record that the runner could not deliver, or `lost`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An order to one worker, written before any process is started. Safe to read twice."""

    attempt: str
    kind: AssignmentKind
    epoch: int
    pipeline: PipelineName
    release: ReleaseDigest
    run: RunId
    run_number: int = 0
    """Number of the run, see `nimbus.domain.run_number`; 0: an older release wrote the order."""
    task: TaskSpec
    logical_date: datetime
    parameters: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    """References of the committed outputs of the needed tasks."""
    pins: Mapping[str, tuple[Version, ...]] = field(default_factory=dict)
    """The versions of datasets that the task reads. Their outputs are in `inputs`, by `read:place`."""
    needs_in_run: bool = False
    """Only in storage: needs, inputs and pins are so many that only the run's record has them."""
    data_interval: DataInterval | None = None
    timezone: str = "UTC"
    output: str = ""
    """Place of the attempt's own output, relative to `worker.data`. In a bucket, a nonce is added."""
    publishes: bool = False
    """True: a success of the attempt, or of a task that checks it, publishes its output."""
    timeout: timedelta | None = None
    host_lost_after: timedelta | None = None
    """Set for a task that is kept running: the leader's `Timings.host_lost_after`."""
    memory_scale: float = 1.0
    """Factor on the task's memory. The worker applies it to every memory size that it sets for the task: the
    task's own, or the worker's default."""
    claim: Claim | None = None
    """For REAP: the claim of the driver to look for."""

    @property
    def limits(self) -> Limits:
        """The attempt's limits: its task's, with more memory after attempts that ran out of memory."""
        limits = self.task.limits or Limits()
        if limits.memory_bytes is None:
            return limits
        return replace(limits, memory_bytes=round(limits.memory_bytes * self.memory_scale))
