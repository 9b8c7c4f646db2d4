"""What the API answers about runs. See `nimbus.api.models` for the rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from nimbus.api.models import CommandModel, Model, PageModel, PriorityName
from nimbus.api.models_purges import PurgedPartModel
from nimbus.domain.failures import FailureClass
from nimbus.domain.pipeline import FailureStrategy, TaskKind
from nimbus.domain.run import RunCause, RunState
from nimbus.domain.task_run import Outcome, TaskState


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
    """As the driver last told it, while the attempt is open."""
    checkpoint: Any = None
    """With which the next attempt begins, as the task last gave it, while the attempt is open; null: none."""
    has_result: bool = False
    """It gave a result: see `/runs/{run_id}/results`."""
    application: str | None = None
    """Id of its Spark application, as its driver told it; null: not known."""
    history_url: str | None = None
    """Page of that application in Spark's history server, once the attempt has ended."""


class ParentModel(Model):
    """The task that started a run."""

    run: str
    task: str
    attempt: int
    index: int
    """Of its item, from 0."""
    depth: int
    """1: the parent has no parent."""


class ChildrenModel(Model):
    """How far a task has come with its child runs."""

    pipeline: str
    release: str | None
    attempt: int
    """0: it has not begun."""
    max_parallel: int | None
    total: int
    waiting: int
    open: int
    succeeded: int
    failed: int
    stopped: int
    refused: int
    """Items whose child run could not be created."""


class ChildModel(Model):
    """One item of a task that starts child runs."""

    index: int
    item: Any
    """A mapping of names to values; a value, if `for_each` is one list; null without `for_each`."""
    state: str
    """`waiting`, `open`, `succeeded`, `failed`, `stopped` or `refused`."""
    run: str | None
    """Its last child run; null: there was none."""
    attempt: int | None
    """Of the task, in which that run was created."""
    reused_from: str | None
    """The run whose child run succeeded, which this one repeats; null: none is reused."""


class ChildrenListModel(PageModel):
    """Items of one task, in order."""

    run_id: str
    task: str
    children: list[ChildModel]


class SettlementModel(Model):
    """How a task ended that no worker runs."""

    at: datetime
    by: str
    """Who approved or rejected it; empty: nobody did."""
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
    attempts: list[AttemptModel]
    """Oldest first; of a run with many tasks only the last ones. `number` counts those left out, too."""
    children: ChildrenModel | None = None
    """Of a task of kind `pipeline`."""
    settled: SettlementModel | None = None
    """Who or what ended it, if no worker ran it: an approval, a timeout, a mark."""
    reused_from: str | None = None
    """The run in which it succeeded; this run did not run it."""


class DataIntervalModel(Model):
    """The data that a run stands for: from `start` up to, and without, `end`."""

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
    """Null: of a run that was started by hand without one, or by an earlier release."""
    timezone: str | None
    """IANA name of the zone of its dates; null: an earlier release made the run."""
    created_at: datetime
    started_at: datetime | None
    """Null while it is queued, if it ended so, or in history of release 0.1, where runs start at once."""
    finished_at: datetime | None
    parent: ParentModel | None = None
    """The task that started it; null: no task did."""
    submitted_by: str
    """Who asked for it: a person, or `schedule`; empty: an earlier release made the run."""
    rerun_of: str | None
    """The run that it repeats."""
    selected: str
    """Which tasks it was asked to run, such as `from load`; empty: all."""
    note: str
    """Why, in the words of who asked."""
    paused: PausedModel | None
    """Null: it is not paused."""
    tasks_total: int
    tasks_done: int
    archived: bool = False
    """It has moved to history."""


class RunModel(RunSummaryModel):
    """One run in full; tasks in the order of their needs."""

    parameters: Mapping[str, Any]
    variables: Mapping[str, str]
    """Of the cluster: those that its release names, as they were when it was made."""
    verdict: RunState | None
    deadline: datetime | None
    """Null: there is none, or the run is queued."""
    why: str | None = None
    """Why it is queued or paused; null when it is neither."""
    failure_strategy: FailureStrategy
    purged: list[PurgedPartModel] = Field(default_factory=list)
    """What is gone of it, or is about to go."""
    tasks: list[TaskModel]


class RequestedRunModel(Model):
    """A run that was asked for and that no leader has started."""

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
    """What tasks of a run gave with their success."""

    run_id: str
    results: Mapping[str, Mapping[str, Any]]
    """By task."""
    complete: bool
    """False: there are more; ask for them by task."""


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
