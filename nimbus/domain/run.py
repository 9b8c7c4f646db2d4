"""A run, its tasks and their attempts: records that hold all that a leader needs to go on with them.

A run carries its tasks' rendered specs and the digest of its release, so a successor needs nothing else, and
a later release of the pipeline changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any

from nimbus.domain.children import Parent
from nimbus.domain.ids import AttemptId, BackfillId, PipelineName, ReleaseDigest, RunId
from nimbus.domain.intervals import DataInterval
from nimbus.domain.notify import Lateness, NotifyRule
from nimbus.domain.pipeline import FailureStrategy, Priority
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


class RunCause(StrEnum):
    """Why a run exists."""

    MANUAL = "manual"
    SCHEDULE = "schedule"
    PARENT = "parent"
    """A task of another run started it."""
    BACKFILL = "backfill"


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
    started_at: datetime | None = None
    finished_at: datetime | None = None
    selected: str = ""
    """Not empty: it runs some tasks alone, and may reuse what an earlier run did."""


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

    @classmethod
    def of(cls, header: RunHeader, tasks: Tasks) -> Run:
        """A run with all fields of a header, or of a run. A call with so many takes twice as long."""
        run = object.__new__(cls)
        for name, value in zip(_HEADER_FIELDS, _header_of(header), strict=True):
            object.__setattr__(run, name, value)
        object.__setattr__(run, "tasks", tasks)
        return run

    def with_tasks(self, tasks: Tasks) -> Run:
        """As `dataclasses.replace`, which takes twice as long for so many fields."""
        return Run.of(self, tasks)

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
            started_at=self.started_at,
            finished_at=self.finished_at,
            selected=self.selected,
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


_HEADER_FIELDS = tuple(field.name for field in fields(RunHeader))
_header_of = attrgetter(*_HEADER_FIELDS)
