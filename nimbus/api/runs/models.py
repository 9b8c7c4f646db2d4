"""Models of runs, and how they are made of records. See `nimbus.api.models` for the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal

from pydantic import Field

from nimbus.api.explain.task import ClusterFacts, how_kept, why, why_run
from nimbus.api.models import CommandModel, Model, PageModel, PriorityName, of
from nimbus.api.services import HistoryServers
from nimbus.domain.attempts.cost import Cost
from nimbus.domain.attempts.slots import Slots, application_id
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import FailureClass, FailureStrategy, TaskKind
from nimbus.domain.runs.child_runs import spec_of
from nimbus.domain.runs.children import ItemState
from nimbus.domain.runs.run import Paused, Run, RunCause, RunPart, RunState
from nimbus.domain.runs.task_run import Attempt, Outcome, Settlement, TaskRun, TaskState


class PurgedPartModel(Model):
    """A part of a run that is purged, or is being purged."""

    part: RunPart
    at: datetime
    by: str
    """`retention`, or the name of the requester."""
    why: str


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


@of(Settlement, leave_out=("timed_out",))
class SettlementModel(Model):
    """How a task ended that no worker runs."""


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


@of(Paused)
class PausedModel(Model):
    """Who paused a run, and when."""


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


def children_model(task: TaskRun) -> ChildrenModel | None:
    """A task's progress with its child runs; None: it starts none."""
    spec, children = spec_of(task), task.children
    if spec is None:
        return None
    counts = {state: 0 if children is None else children.count(state) for state in ItemState}
    if children is None:
        counts[ItemState.WAITING] = spec.count
    return ChildrenModel(
        pipeline=spec.pipeline,
        release=spec.release,
        attempt=0 if children is None else children.attempt,
        max_parallel=spec.max_parallel,
        total=spec.count,
        **{state.name.lower(): count for state, count in counts.items()},
    )


def run_summary(run: Run, *, archived: bool = False) -> RunSummaryModel:
    """One line of the list of runs."""
    return RunSummaryModel.from_records(run, **_counts(run), archived=archived)


def run_model(
    run: Run,
    slots: Mapping[AttemptId, Slots],
    facts: ClusterFacts,
    servers: HistoryServers,
    *,
    archived: bool = False,
    only: Iterable[TaskRun] | None = None,
) -> RunModel:
    """One run, with an explanation of every wait. `only`: the tasks that it shows; None: all."""
    pinned = {name: len(versions) for name, versions in run.pins.items()}
    return RunModel.from_records(
        run,
        **_counts(run),
        archived=archived,
        reads=[RunReadModel.from_records(read, pinned=pinned.get(read.name)) for read in run.reads],
        why=why_run(run, facts),
        tasks=[
            _task(run, task, slots, facts, servers)
            for task in (run.tasks.by_depth() if only is None else only)
        ],
    )


def _counts(run: Run) -> dict[str, object]:
    total, left = len(run.tasks), (TaskState.WAITING, TaskState.RUNNING, TaskState.NOT_RUN)
    return {"tasks_total": total, "tasks_done": total - run.tasks.count(*left)}


def _task(
    run: Run,
    task: TaskRun,
    slots: Mapping[AttemptId, Slots],
    facts: ClusterFacts,
    servers: HistoryServers,
) -> TaskModel:
    current, place = task.open_attempt, task.spec.spark_place
    page = partial(servers.page, None if place is None else place.target)
    seen = slots.get(AttemptId(run.id, task.spec.name, current.number)) if current else None
    return TaskModel.from_records(
        task.spec,
        task,
        why=why(run, task, seen, facts),
        kept=how_kept(task, facts.now),
        attempts=[_attempt(attempt, seen if attempt is current else None, page) for attempt in task.attempts],
        children=children_model(task),
        reused_from=None if task.reused is None else task.reused.run,
    )


def _attempt(attempt: Attempt, slots: Slots | None, page: Callable[[str], str | None]) -> AttemptModel:
    """`page`: returns the page of an application in the history server."""
    model = AttemptModel.model_validate(attempt)
    if attempt.application is not None:
        model = model.model_copy(update={"history_url": page(attempt.application)})
    if slots is None:
        return model
    claim, told = slots.claim, slots.progress.get("application")
    update: dict[str, object] = {
        "progress": dict(slots.progress) or None,
        "application": application_id(told),
        "checkpoint": None if slots.checkpoint is None else json.loads(slots.checkpoint),
    }
    if claim is not None and not claim.is_fenced:
        update |= {"host": claim.host, "pid": claim.pid, "started_at": attempt.started_at or claim.claimed_at}
    return model.model_copy(update=update)
