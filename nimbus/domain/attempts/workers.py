"""Workers, the orders that they get, and which of them refuse attempts. Pure.

A worker without Java, or with a full disk, refuses at once and is free again at once; without a back-off it
would attract every task. Refusals are derived from the attempts in runs, so all schedulers agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from nimbus.domain.attempts.slots import Claim
from nimbus.domain.data.publications import Version
from nimbus.domain.ids import HostId, PipelineName, ReleaseDigest, RunId, WorkerId
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import Limits, TaskSpec
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun, TaskState


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
    """True when it found Java at its start."""
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
    """Number of the run, see `nimbus.domain.runs.run_number`."""
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


BACKOFF = timedelta(seconds=10)
"""After one refusal; doubled with each further one in a row, up to BACKOFF_MAX."""
BACKOFF_MAX = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Refusals:
    """Attempts in a row that a worker did not start."""

    count: int
    last_at: datetime

    @property
    def until(self) -> datetime:
        """The worker gets no attempts before this time, unless all others back off, too."""
        return self.last_at + min(BACKOFF * (1 << min(self.count - 1, 16)), BACKOFF_MAX)


def refusals(runs: Iterable[Run]) -> Mapping[WorkerId, Refusals]:
    """The refusals of each worker, from the attempts that its runs still hold."""
    closed = [
        attempt
        for run in runs
        for task in run.tasks.in_order()
        for attempt in task.attempts
        if _is_evidence(task, attempt)
    ]
    known: Mapping[WorkerId, Refusals] = {}
    for attempt in sorted(closed, key=lambda attempt: attempt.ended_at or attempt.opened_at):
        known = _with(known, attempt)
    return known


def with_last(known: Mapping[WorkerId, Refusals], task: TaskRun) -> Mapping[WorkerId, Refusals]:
    """The refusals after a task's last attempt, which has just ended."""
    last = task.attempts[-1]
    return _with(known, last) if _is_evidence(task, last) else known


def _is_evidence(task: TaskRun, attempt: Attempt) -> bool:
    """True when the attempt's end depends on its worker, and not on its pipeline or a stop of its run."""
    stopped = attempt.outcome is Outcome.FENCED and task.state is TaskState.NOT_RUN
    return attempt.outcome is not None and not stopped and not attempt.pipeline_at_fault


def _with(known: Mapping[WorkerId, Refusals], attempt: Attempt) -> Mapping[WorkerId, Refusals]:
    before = known.get(attempt.worker)
    if attempt.outcome in (Outcome.REFUSED, Outcome.FENCED):
        count = before.count + 1 if before else 1
        return {**known, attempt.worker: Refusals(count, attempt.ended_at or attempt.opened_at)}
    if before is None or (attempt.started_at or attempt.opened_at) < before.last_at:
        return known  # it began before the last refusal, so it does not prove that the worker recovered
    return {worker: times for worker, times in known.items() if worker != attempt.worker}
