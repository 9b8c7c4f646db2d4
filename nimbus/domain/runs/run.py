"""A run, its tasks and their attempts. The record has all that a new leader needs to continue the run.

A run contains the rendered specs of its tasks and the digest of its release. So a later release of the
pipeline changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from nimbus.domain.cluster.alerts import Lateness, NotifyRule
from nimbus.domain.data.publications import Read, Version
from nimbus.domain.ids import AttemptId, BackfillId, DatasetName, PipelineName, ReleaseDigest, RunId
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority
from nimbus.domain.runs.children import Parent
from nimbus.domain.runs.tasks import Tasks


class RunState(StrEnum):
    """The state of a run."""

    QUEUED = "queued"
    """Created; it starts when its pipeline and the cluster have room for one more run."""
    RUNNING = "running"
    STOPPING = "stopping"
    """No new task starts; open attempts are being stopped; `verdict` is the final state."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        """True when no event changes the run any more."""
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED)

    @property
    def is_ending(self) -> bool:
        """True when no task of the run starts any more."""
        return self not in (RunState.QUEUED, RunState.RUNNING)


class Places(StrEnum):
    """The limits that a run counts for: see `nimbus.domain.starts.places`."""

    NONE = "none"
    PIPELINE = "pipeline"
    """`concurrency.limit` of its pipeline."""
    ALL = "all"
    """`concurrency.limit`, and `runs.max_running`, in which the runs of a tree share one place."""


class RunCause(StrEnum):
    """Why a run exists."""

    MANUAL = "manual"
    SCHEDULE = "schedule"
    PARENT = "parent"
    """A task of another run started it."""
    BACKFILL = "backfill"
    DATA = "data"
    """Datasets that it reads have changed."""
    ACTIVATION = "activation"
    """A release was activated that has a task which is kept running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCause:
    """A change of a dataset: a partition points to another version."""

    dataset: DatasetName
    partition: str
    number: int
    """Of the version, as its run."""
    run: RunId
    at: datetime
    """When the partition changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Who paused a run, and when."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """The fields by which lists of runs are sorted, filtered and counted, and queued runs are ordered."""

    id: RunId
    pipeline: PipelineName
    created_at: datetime
    state: RunState
    cause: RunCause
    priority: Priority
    parent: Parent | None = None
    paused: Paused | None = None
    backfill: BackfillId | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    selected: str = ""
    """Not empty: the run executes only some tasks, and may reuse others of an earlier run."""
    holds: Places = Places.ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """The fields of a run, without its tasks."""

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
    """Limit of attempts that are open at once; None: only slots limit it."""
    timeout: timedelta | None = None
    """Time from the start to the deadline."""
    started_at: datetime | None = None
    """None: the run is or was only queued."""
    deadline: datetime | None = None
    """None: the run has no timeout, or has not started."""
    state: RunState = RunState.RUNNING
    verdict: RunState | None = None
    """The coming final state: set while STOPPING, and while RUNNING if only the clean-up goes on."""
    reason: str = ""
    stopping_at: datetime | None = None
    """When `verdict` was set."""
    finished_at: datetime | None = None
    data_interval: DataInterval | None = None
    """With offsets as in `logical_date`. None: a run by hand without one."""
    timezone: str = "UTC"
    """IANA name of the schedule's time zone, or UTC."""
    notify: tuple[NotifyRule, ...] | None = None
    warn_after: timedelta | None = None
    expect: timedelta | None = None
    late: tuple[Lateness, ...] = ()
    """Kinds of lateness that were raised."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Cluster variables that the release names, with their values at creation."""
    parent: Parent | None = None
    """The task that started the run; None: no task did."""
    submitted_by: str = ""
    """The requester: a person, or `schedule`. Empty: not known."""
    rerun_of: RunId | None = None
    """The run that this one repeats, in part or completely."""
    selected: str = ""
    """The requested tasks, such as `from load`; empty: all."""
    note: str = ""
    """The reason that the requester gave."""
    paused: Paused | None = None
    """Set: a queued run does not start, and no task begins, until it is resumed."""
    backfill: BackfillId | None = None
    """The backfill that the run belongs to."""
    holds: Places = Places.ALL
    """The limits that it counts for now. Of no meaning for a final run."""
    reads: tuple[Read, ...] = ()
    """What it reads of datasets."""
    pins: Mapping[str, tuple[Version, ...]] = field(default_factory=dict)
    """The versions that it reads, by read. A read that is not here is not pinned yet."""
    causes: tuple[DataCause, ...] = ()
    """Of a run that data have started: the last changes that made it due, oldest first."""
    number: int = 0
    """Above that of every run created before, under whichever leader: see `nimbus.domain.runs.run_number`."""

    @property
    def opens_tasks(self) -> bool:
        """True when its tasks may begin."""
        return self.state is RunState.RUNNING and self.paused is None

    @property
    def is_cleaning_up(self) -> bool:
        """True when the run has failed and only clean-up tasks still begin."""
        return self.state is RunState.RUNNING and self.verdict is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(RunHeader):
    """One execution of one release of a pipeline."""

    tasks: Tasks = field(default_factory=Tasks)

    @classmethod
    def of(cls, header: RunHeader, tasks: Tasks) -> Run:
        """A run from the fields of a header or a run. Twice as fast as a call with so many arguments."""
        run = object.__new__(cls)
        for put, value in zip(_put_header, _header_of(header), strict=True):
            put(run, value)
        object.__setattr__(run, "tasks", tasks)
        return run

    @property
    def keeps_running(self) -> bool:
        """True when it does not end by itself, because one of its tasks is started again and again."""
        return any(task.spec.keeps_running and not task.state.is_final for task in self.tasks.in_order())

    def with_tasks(self, tasks: Tasks) -> Run:
        """As `dataclasses.replace`, but twice as fast for so many fields."""
        return Run.of(self, tasks)

    def listed(self) -> ListedRun:
        """The run as an entry of lists."""
        return ListedRun(**dict(zip(_LISTED_FIELDS, _listed_of(self), strict=True)))

    def open_attempts(self) -> tuple[AttemptId, ...]:
        """Ids of all attempts without an END, sorted."""
        return tuple(
            sorted(
                AttemptId(self.id, task.spec.name, attempt.number)
                for task in self.tasks.in_order()
                if (attempt := task.open_attempt) is not None
            )
        )


_LISTED_FIELDS = tuple(field.name for field in fields(ListedRun))
_listed_of = attrgetter(*_LISTED_FIELDS)
_HEADER_FIELDS = tuple(field.name for field in fields(RunHeader))
_header_of = attrgetter(*_HEADER_FIELDS)
_put_header = tuple(getattr(Run, name).__set__ for name in _HEADER_FIELDS)


LATEST_S = 9_999_999_999
"""A time in the far future, in seconds since 1970."""


class RunPlace(NamedTuple):
    """A place in the order of lists, newest first. Keys in history have the same order."""

    before_latest_s: int
    """Seconds from the creation to `LATEST_S`, so that the newest runs sort first."""
    id: str

    def __str__(self) -> str:
        return f"{self.before_latest_s:010d}~{self.id}"

    @classmethod
    def parse(cls, text: str) -> RunPlace:
        """Read what `str` writes. Raises ValueError for any other text."""
        seconds, _, name = text.partition("~")
        if not (seconds.isdecimal() and len(seconds) == 10 and name):
            raise ValueError(f"{text!r} is no place in a list of runs")
        return cls(int(seconds), name)


def place(run: ListedRun | Run) -> RunPlace:
    """The place of a run in lists."""
    return place_at(run.created_at, run.id)


def place_at(created_at: datetime, run: str) -> RunPlace:
    """The place in lists of a run created at `created_at`."""
    return RunPlace(LATEST_S - int(created_at.timestamp()), run)


class RunPart(StrEnum):
    """Parts, in the order in which they are deleted."""

    LOGS = "logs"
    """Logs of its attempts, with Spark's event logs."""
    OUTPUTS = "outputs"
    """Outputs of its tasks in `worker.data`."""
    HISTORY = "history"
    """Its record, its results, and its entries in lists."""
