"""Models of answers about runs. See `nimbus.api.models` for the rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from nimbus.api.models import CommandModel, Model, PageModel, PriorityName, of
from nimbus.api.models_datasets import VersionModel
from nimbus.domain.cost import Cost
from nimbus.domain.pipeline import FailureClass, FailureStrategy, TaskKind
from nimbus.domain.purge import Said
from nimbus.domain.run import Part, RunCause, RunState
from nimbus.domain.task_run import Outcome, TaskState


class PurgedPartModel(Model):
    """A part of a run that is purged, or is being purged."""

    part: Part
    at: datetime
    by: str
    """`retention`, or the name of the requester."""
    why: str


class PlannedPurgeModel(Model):
    """The plan of a purge for one run."""

    run_id: str
    pipeline: str
    state: RunState
    finished_at: datetime | None
    parts: list[Part]
    """Parts that would be deleted, without those that are deleted already."""
    kept: str | None
    """Why its outputs and history are kept; null: they are not."""


class PurgePlanModel(Model):
    """The plan of a purge."""

    runs: list[PlannedPurgeModel]
    """Runs, newest first."""
    complete: bool
    """False: there may be more. For a pipeline, the newest 200 runs before the date are checked."""


def purged_part(part: Part, said: Said) -> PurgedPartModel:
    """A purged part, with its record."""
    return PurgedPartModel(part=part, at=said.at, by=said.by, why=said.why)


@of(Cost)
class CostModel(Model):
    """What an attempt used. Null: not known, or it had no Spark of its own."""


class AttemptModel(Model):
    """One try at a task. Open while `outcome` is null."""

    number: int
    worker: str
    opened_at: datetime
    opened_by_epoch: int
    started_at: datetime | None
    ended_at: datetime | None
    outcome: Outcome | None
    reason: str
    exit_code: int | None
    failure: FailureClass | None
    """Class of failure, where `outcome` is `failed` or `timed_out`; null: not known."""
    output: str | None
    host: str | None = None
    pid: int | None = None
    progress: Mapping[str, Any] | None = None
    """Last report of the driver, while the attempt is open."""
    checkpoint: Any = None
    """Last checkpoint of the task, from which the next attempt starts, while this one is open; null: none."""
    has_result: bool = False
    """True: it has a result: see `/runs/{run_id}/results`."""
    application: str | None = None
    """Id of its Spark application, reported by its driver; null: not known."""
    jvm: str = ""
    """Which JVM its Spark had: kept, new, or its own and why; empty: no JVM, or not known."""
    cost: CostModel | None = None
    """What it used, after it has ended; null: not known."""
    history_url: str | None = None
    """Page of that application in Spark's history server, after the attempt has ended."""


class ParentModel(Model):
    """The task that started a run."""

    run: str
    task: str
    attempt: int
    index: int
    """Index of its item, from 0."""
    depth: int
    """Depth of the run; 1: the parent has no parent."""


class ChildrenModel(Model):
    """A task's progress with its child runs."""

    pipeline: str
    release: str | None
    attempt: int
    """Number of the attempt; 0: the task has not begun."""
    max_parallel: int | None
    total: int
    waiting: int
    open: int
    succeeded: int
    failed: int
    stopped: int
    refused: int
    """Number of items whose child run could not be created."""


class ChildModel(Model):
    """One item of a task that starts child runs."""

    index: int
    item: Any
    """A mapping of names to values; a single value if `for_each` is one list; null without `for_each`."""
    state: str
    """`waiting`, `open`, `succeeded`, `failed`, `stopped` or `refused`."""
    run: str | None
    """Its last child run; null: there was none."""
    attempt: int | None
    """Attempt of the task that created that run."""
    reused_from: str | None
    """The repeated run whose child run succeeded; null: none is reused."""


class ChildrenListModel(PageModel):
    """Items of one task, in order."""

    run_id: str
    task: str
    children: list[ChildModel]


class SettlementModel(Model):
    """How a task ended that no worker runs."""

    at: datetime
    by: str
    """The person who approved or rejected it; empty: no person did."""
    reason: str


class TaskModel(Model):
    """One task within a run."""

    name: str
    kind: TaskKind
    state: TaskState
    needs: list[str]
    retry_at: datetime | None
    why: str | None
    """Why it is not computing; null when there is nothing to explain."""
    kept: str | None = None
    """For a task that is kept running: how often it was started again, and what ended it last."""
    attempts: list[AttemptModel]
    """Oldest first; in a run with many tasks, only the last ones. `number` counts left-out ones, too."""
    children: ChildrenModel | None = None
    """Set for a task of kind `pipeline`."""
    settled: SettlementModel | None = None
    """What ended it, if no worker ran it: an approval, a timeout, a mark."""
    reused_from: str | None = None
    """The earlier run in which it succeeded; this run reuses that and did not run it."""


class DataIntervalModel(Model):
    """The data that a run processes: from `start` to `end`, which is excluded."""

    start: datetime
    end: datetime


class PausedModel(Model):
    """Who paused a run, and when."""

    by: str
    at: datetime


class RunSummaryModel(Model):
    """One line of the list of runs."""

    id: str
    pipeline: str
    release: str
    state: RunState
    reason: str
    cause: RunCause
    priority: PriorityName
    logical_date: datetime
    data_interval: DataIntervalModel | None
    """Null: the run was started by hand without one."""
    timezone: str
    """IANA name of the zone of its dates."""
    created_at: datetime
    started_at: datetime | None
    """Null if it is or was only queued."""
    finished_at: datetime | None
    parent: ParentModel | None = None
    """The task that started it; null: no task did."""
    submitted_by: str
    """The requester: a person, or `schedule`; empty: not known."""
    rerun_of: str | None
    """The run that it repeats."""
    selected: str
    """The requested tasks, such as `from load`; empty: all."""
    note: str
    """The reason that the requester gave."""
    paused: PausedModel | None
    """Null: it is not paused."""
    keeps_running: bool = False
    """True: it does not end by itself, because one of its tasks is kept running."""
    tasks_total: int
    tasks_done: int
    """Number of tasks that have ended, without those that did not run."""
    archived: bool = False
    """True: it has moved to history."""


class RunReadModel(Model):
    """A dataset that a run reads."""

    name: str
    dataset: str
    pinned: int | None
    """Number of versions that it reads; null: they are not pinned yet."""


class DataCauseModel(Model):
    """A change of a dataset that started a run."""

    dataset: str
    partition: str
    run: str
    """The run that published the version; empty: it came from outside."""
    at: datetime


class RunReadsModel(Model):
    """The versions of datasets that a run reads, by read; one that is not pinned yet is missing."""

    run_id: str
    reads: dict[str, list[VersionModel]]


class RunNoteModel(Model):
    """A note about an ended run."""

    text: str
    task: str | None
    """The task that it is about; null: the run."""
    by: str
    at: datetime


class RunModel(RunSummaryModel):
    """One run in full; tasks in the order of their needs."""

    parameters: Mapping[str, Any]
    reads: list[RunReadModel]
    """What it reads of datasets."""
    causes: list[DataCauseModel] = Field(default_factory=list)
    """Of a run that data have started: the last changes that made it due, oldest first; at most 20."""
    variables: Mapping[str, str]
    """Cluster variables that its release names, with their values at the run's creation."""
    verdict: RunState | None
    deadline: datetime | None
    """Null: there is none, or the run is queued."""
    why: str | None = None
    """Why it is queued or paused; null when it is neither."""
    failure_strategy: FailureStrategy
    purged: list[PurgedPartModel] = Field(default_factory=list)
    """Parts that are purged, or are being purged."""
    noted: RunNoteModel | None = None
    """What was noted about it after its end; null also while storage does not answer."""
    tasks: list[TaskModel]


class RequestedRunModel(Model):
    """A requested run that no leader has started."""

    id: str
    pipeline: str | None
    """Known while the command waits."""
    state: Literal["pending", "refused"]
    reason: str
    """Why it was refused, or what it waits for."""
    tasks: list[TaskModel] = Field(default_factory=list, max_length=0)
    command: CommandModel


class RunsModel(PageModel):
    """Runs, newest first."""

    runs: list[RunSummaryModel]
    history_complete: bool = True
    """False: history did not answer, and finished runs may be missing."""


class ResultsModel(Model):
    """Results of a run's successful tasks."""

    run_id: str
    results: Mapping[str, Mapping[str, Any]]
    """Results by task."""
    complete: bool
    """False: there are more; request them by task."""


class TimelineEventModel(Model):
    """Something that happened in a run."""

    at: datetime
    kind: str
    task: str | None = None
    attempt: int | None = None
    worker: str | None = None
    epoch: int | None = None
    detail: str = ""


class TimelineModel(PageModel):
    """What happened in a run, oldest first."""

    run_id: str
    events: list[TimelineEventModel]
