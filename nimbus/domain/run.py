"""A run, its tasks and their attempts: records that hold all that a leader needs to go on with them.

A run carries its tasks' rendered specs and the digest of its release, so a successor needs nothing else, and
a later release of the pipeline changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from nimbus.domain.children import Children, Parent
from nimbus.domain.failures import FailureClass
from nimbus.domain.ids import AttemptId, BackfillId, PipelineName, ReleaseDigest, RunId, WorkerId
from nimbus.domain.intervals import DataInterval
from nimbus.domain.notify import Lateness, NotifyRule
from nimbus.domain.pipeline import FailureStrategy, Priority, TaskSpec
from nimbus.domain.settlement import Settlement
from nimbus.domain.tasks import Tasks


class RunState(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    """Created; it starts when its pipeline and the cluster have room for one more run."""
    RUNNING = "running"
    STOPPING = "stopping"
    """Nothing new starts; open attempts are being stopped; `verdict` says how it will end."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        """No event changes the run any more."""
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED)

    @property
    def is_ending(self) -> bool:
        """Nothing of the run starts any more."""
        return self not in (RunState.QUEUED, RunState.RUNNING)


class TaskState(StrEnum):
    """Where a task of a run stands."""

    WAITING = "waiting"
    """No open attempt: its needs are not done, or no worker is free, or a retry is due at `retry_at`."""
    RUNNING = "running"
    """Its last attempt is open: intended, claimed or running; or its child runs are under way."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Its `when` is false, or it follows the success of a task that was skipped. This fails no run."""
    NOT_RUN = "not_run"
    """Never ran to its end, since something it needs failed or its run was stopped."""

    @property
    def is_final(self) -> bool:
        """No event changes the task any more."""
        return self not in (TaskState.WAITING, TaskState.RUNNING)


class Outcome(StrEnum):
    """How an attempt ended: the content of its END."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"
    """On request."""
    LOST = "lost"
    """Its processes vanished without a word; user code may have run in part."""
    FENCED = "fenced"
    """A leader closed it before a driver claimed it: user code never ran and never will."""
    REFUSED = "refused"
    """The worker could not start it (release not to be had, disk full, no Java); user code never ran."""

    @property
    def is_infrastructure(self) -> bool:
        """Not the task's own fault: tried again without using up its retries."""
        return self in (Outcome.LOST, Outcome.FENCED, Outcome.REFUSED)


class RunCause(StrEnum):
    """Why a run exists."""

    MANUAL = "manual"
    SCHEDULE = "schedule"
    PARENT = "parent"
    """A task of another run started it."""
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a task. Open until `outcome` is set."""

    number: int
    worker: WorkerId
    opened_at: datetime
    opened_by_epoch: int
    reaper: WorkerId | None = None
    """A worker on the same host that was asked to look for, and end, what is left of the attempt."""
    stop_requested: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    reason: str = ""
    exit_code: int | None = None
    failure: FailureClass | None = None
    """Of an attempt that failed or timed out. None: not known, or another outcome."""
    pipeline_at_fault: bool = False
    """See `End.pipeline_at_fault`."""
    output: str | None = None
    """Reference of the committed output, relative to `worker.data`: a folder, or the key of a manifest."""
    application: str | None = None
    """Id of its Spark application, as `application_id` takes it; None: none is known. Not in layout 1."""
    has_result: bool = False
    """It succeeded with a result, which is in its END, and later in history. Not in layout 1."""

    @property
    def ending(self) -> str:
        """Outcome and class of failure, such as `failed (analysis)`; empty while it is open."""
        if self.outcome is None or self.failure is None or self.failure.value == self.outcome.value:
            return self.outcome or ""
        return f"{self.outcome} ({self.failure})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """Where the success of a task comes from that this run did not run."""

    run: RunId
    """The run in which it succeeded."""
    attempt: Attempt | None
    """None: the leader ended it there."""
    result: Mapping[str, Any] | None = None
    """What it gave, if a task of this run reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One task within one run."""

    spec: TaskSpec
    state: TaskState = TaskState.WAITING
    attempts: tuple[Attempt, ...] = ()
    """The last ones; see `nimbus.domain.growth`."""
    earlier_failures: int = 0
    """`failures` among the attempts that the record does not hold any more."""
    earlier_mishaps: int = 0
    earlier_out_of_memory: int = 0
    retry_at: datetime | None = None
    """Not before this; None: at once."""
    children: Children | None = None
    """Of a task of kind `pipeline` that has begun. Its attempt is in `attempts` only once it has ended."""
    settled: Settlement | None = None
    """Of a task that the leader has ended without an attempt. Not in layout 1."""
    left_out: bool = False
    """Skipped, since it was not selected; for those that need it, it went as they ask. Not in layout 1."""
    reused: Reused | None = None
    """It succeeded in an earlier run, and was not run. Not in layout 1."""
    warned: int = 0
    """The attempt that `late` was raised for last; 1 of a task without attempts. Not in layout 1."""
    asked: bool = False
    """`waiting_for_approval` was raised. Not in layout 1."""

    @property
    def committed(self) -> Attempt | None:
        """The attempt that succeeded, in this run or in the one that it is reused from."""
        if self.reused is not None:
            return self.reused.attempt
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.outcome is Outcome.SUCCEEDED else None

    @property
    def open_attempt(self) -> Attempt | None:
        """The attempt that has no END yet. At most the last one can be open."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.outcome is None else None

    @property
    def tried(self) -> int:
        """How many attempts were opened; the number of the last one."""
        return self.attempts[-1].number if self.attempts else 0

    @property
    def failures(self) -> int:
        """Attempts that count against the task's retries."""
        return self.earlier_failures + sum(
            a.outcome in (Outcome.FAILED, Outcome.TIMED_OUT) for a in self.attempts
        )

    @property
    def out_of_memory(self) -> int:
        """Attempts whose failure has the class out of memory."""
        return self.earlier_out_of_memory + sum(
            a.failure is FailureClass.OUT_OF_MEMORY for a in self.attempts
        )

    @property
    def mishaps(self) -> int:
        """Attempts that ended through no fault of the task."""
        return self.earlier_mishaps + sum(
            a.outcome is not None and a.outcome.is_infrastructure for a in self.attempts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Who paused a run, and when."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """What lists of runs sort, filter and count by, and what the order of queued runs rests on."""

    id: RunId
    pipeline: PipelineName
    created_at: datetime
    state: RunState
    cause: RunCause
    priority: Priority
    parent: Parent | None = None
    paused: Paused | None = None
    backfill: BackfillId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """What a run is and where it stands, without its tasks."""

    id: RunId
    pipeline: PipelineName
    release: ReleaseDigest
    parameters: Mapping[str, Any]
    logical_date: datetime
    """Aware, with the offset of the schedule's time zone; in UTC if the pipeline has no schedule."""
    created_at: datetime
    cause: RunCause
    priority: Priority
    failure_strategy: FailureStrategy
    python_path: tuple[str, ...] = ()
    max_parallel_tasks: int | None = None
    """Attempts that may be open at once; None: as many as there are slots."""
    timeout: timedelta | None = None
    """From the start to the deadline. In records of release 0.1 the deadline alone says it."""
    started_at: datetime | None = None
    """None: it is queued, or ended so; or its record is of release 0.1, where runs start at once."""
    deadline: datetime | None = None
    """None: it has no timeout, or has not started."""
    state: RunState = RunState.RUNNING
    verdict: RunState | None = None
    """The final state it is on its way to: while STOPPING; while RUNNING if only its clean-up goes on."""
    reason: str = ""
    stopping_at: datetime | None = None
    """Since when it is on its way to `verdict`. Not in layout 1."""
    finished_at: datetime | None = None
    data_interval: DataInterval | None = None
    """Local as `logical_date`. None: of a run by hand that was given none, or one of release 0.1."""
    timezone: str | None = None
    """IANA name of the schedule's, or UTC. None: release 0.1 made the run."""
    notify: tuple[NotifyRule, ...] | None = None
    """As of `PipelineSpec.notify`. Not in layout 1."""
    warn_after: timedelta | None = None
    """As of `PipelineSpec`. Not in layout 1."""
    expect: timedelta | None = None
    """As of `PipelineSpec`. Not in layout 1."""
    late: tuple[Lateness, ...] = ()
    """What `late` was raised for. Not in layout 1."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the cluster, those that its release names, as they were when it was made. Not in layout 1."""
    parent: Parent | None = None
    """The task that started it; None: no task did."""
    submitted_by: str = ""
    """Who asked for it: a person, or `schedule`. Empty: not known. Not in layout 1."""
    rerun_of: RunId | None = None
    """The run that it repeats, in part or as a whole. Not in layout 1."""
    selected: str = ""
    """Which tasks it was asked to run, such as `from load`; empty: all. Not in layout 1."""
    note: str = ""
    """Why, in the words of who asked. Not in layout 1."""
    paused: Paused | None = None
    """Until it is resumed it begins nothing: neither itself, if it is queued, nor a task. Not in layout 1."""
    backfill: BackfillId | None = None
    """That it is a date of."""
    layout: int = 1
    """How its record lies in ZooKeeper, for its whole life: 1: one node; 2: see `nimbus.run_record`."""

    @property
    def opens_tasks(self) -> bool:
        """Its tasks may begin."""
        return self.state is RunState.RUNNING and self.paused is None

    @property
    def is_cleaning_up(self) -> bool:
        """It has failed; tasks that ask for a failure, or for any end, still begin, and no others."""
        return self.state is RunState.RUNNING and self.verdict is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(RunHeader):
    """One execution of one release of a pipeline."""

    tasks: Tasks = field(default_factory=Tasks)

    def listed(self) -> ListedRun:
        """What lists hold of it."""
        return ListedRun(
            id=self.id,
            pipeline=self.pipeline,
            created_at=self.created_at,
            state=self.state,
            cause=self.cause,
            priority=self.priority,
            parent=self.parent,
            paused=self.paused,
            backfill=self.backfill,
        )

    def open_attempts(self) -> tuple[AttemptId, ...]:
        """Ids of all attempts without an END, sorted."""
        return tuple(
            sorted(
                AttemptId(self.id, task.spec.name, attempt.number)
                for task in self.tasks.in_order()
                if (attempt := task.open_attempt) is not None
            )
        )
