"""The timeline of a run, its state at a past moment, and its child runs, derived from its record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AfterValidator

from nimbus.api.explain.task import how_settled
from nimbus.api.models import Model, PageModel
from nimbus.api.paging import Paging
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import RunIdText, in_utc
from nimbus.api.runs.lookup import find_run, unknown_task
from nimbus.api.runs.models import AttemptModel, PausedModel
from nimbus.api.services import ApiServices
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import TaskName
from nimbus.domain.runs.child_runs import child_of, spec_of
from nimbus.domain.runs.children import ItemState
from nimbus.domain.runs.replay import as_at
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Attempt, TaskRun, TaskState


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


def child_models(run: Run, task: TaskRun) -> list[ChildModel]:
    """Every item of a task, with its last child run."""
    spec, children = spec_of(task), task.children
    rows = []
    for index in range(0 if spec is None else spec.count):
        state = ItemState.WAITING if children is None else ItemState(children.states[index])
        tried = 0 if children is None else children.tried[index]
        rows.append(
            ChildModel(
                index=index,
                item=spec.item(index) if spec is not None and spec.for_each else None,
                state=state.name.lower(),
                run=child_of(run, task.spec.name, index) if tried else None,
                attempt=tried or None,
                reused_from=run.rerun_of if state is ItemState.SUCCEEDED and not tried else None,
            )
        )
    return rows


_ORDER = (
    "run_created",
    "run_started",
    "attempt_opened",
    "attempt_started",
    "attempt_ended",
    "retry_due",
    "task_settled",
    "run_finished",
)
"""The order of events with the same time."""


def timeline(run: Run) -> list[TimelineEventModel]:
    """Every event of a run, oldest first."""
    return sorted(_events(run), key=key_of)


def key_of(event: TimelineEventModel) -> tuple[str | int, ...]:
    """Sort key of an event, which is unique in a run."""
    return event.at.isoformat(), _ORDER.index(event.kind), event.task or "", event.attempt or 0


def _events(run: Run) -> Iterator[TimelineEventModel]:
    by = f", by {run.submitted_by}" if run.submitted_by else ""
    detail = f"{run.cause.value}{by}, release {run.release[:12]}"
    yield TimelineEventModel(at=run.created_at, kind="run_created", detail=detail)
    if run.started_at is not None and run.started_at != run.created_at:
        yield TimelineEventModel(at=run.started_at, kind="run_started", detail="it was queued")
    for task in run.tasks.values():
        for attempt in task.attempts:
            yield from _attempt_events(task, attempt)
        if task.settled is not None:
            detail = f"{task.state.value}: {how_settled(task, task.settled)}"
            yield TimelineEventModel(
                at=task.settled.at, kind="task_settled", task=task.spec.name, detail=detail
            )
        if task.retry_at is not None:
            yield TimelineEventModel(at=task.retry_at, kind="retry_due", task=task.spec.name)
    if run.finished_at is not None:
        detail = run.state.value + (f": {run.reason}" if run.reason else "")
        yield TimelineEventModel(at=run.finished_at, kind="run_finished", detail=detail)


def _attempt_events(task: TaskRun, attempt: Attempt) -> Iterator[TimelineEventModel]:
    base = TimelineEventModel(
        at=attempt.opened_at,
        kind="attempt_opened",
        task=task.spec.name,
        attempt=attempt.number,
        worker=attempt.worker or None,
        epoch=attempt.opened_by_epoch,
    )
    yield base
    if attempt.started_at is not None:
        yield base.model_copy(update={"at": attempt.started_at, "kind": "attempt_started", "epoch": None})
    if attempt.ended_at is not None and attempt.outcome is not None:
        detail = attempt.ending + (f": {attempt.reason}" if attempt.reason else "")
        yield base.model_copy(
            update={"at": attempt.ended_at, "kind": "attempt_ended", "epoch": None, "detail": detail}
        )


class ReplayedTaskModel(Model):
    """One task at that moment."""

    name: str
    state: TaskState
    attempts: list[AttemptModel]
    attempts_left_out: int
    """Number of early attempts that the record only counts, so that their times are not known."""


class ReplayModel(Model):
    """A run at a moment, derived from its record."""

    run_id: str
    at: datetime
    state: RunState
    verdict: RunState | None
    reason: str
    paused: PausedModel | None
    """The last pause only; null: it was not paused, or that pause is over now."""
    tasks: list[ReplayedTaskModel]
    events: list[TimelineEventModel]
    """Events up to that moment, oldest first."""


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["runs"], prefix=f"{prefix}/runs")

    @routes.get("/{run_id}/timeline")
    def events(run_id: RunIdText, paging: Paging) -> TimelineModel:
        """What happened in a run, oldest first."""
        page = paging.page(timeline(find_run(services, run_id)), key_of)
        return TimelineModel(run_id=run_id, events=page.rows, **page.rest)

    @routes.get("/{run_id}/tasks/{task}/children")
    def children(run_id: RunIdText, task: str, paging: Paging) -> ChildrenListModel:
        """The items of a task of type `pipeline`, each with its last child run."""
        run = find_run(services, run_id)
        if (known := run.tasks.get(TaskName(task))) is None:
            raise unknown_task(run, task)
        if known.spec.children is None:
            raise ObjectNotFoundError(
                "no_children", f"task {task} of run {run_id} is of type {known.spec.kind}."
            )
        page = paging.page(child_models(run, known), lambda child: (child.index,))
        return ChildrenListModel(run_id=run_id, task=task, children=page.rows, **page.rest)

    @routes.get("/{run_id}/replay")
    def replay(
        run_id: RunIdText,
        at: Annotated[datetime, AfterValidator(in_utc), Query(description="With offset.")],
    ) -> ReplayModel:
        """The state of a run at a moment, derived from its record. The same record gives the same answer."""
        run = find_run(services, run_id)
        if at < run.created_at:
            raise RefusedError(
                "before_creation", f"run {run_id} was created at {run.created_at.isoformat()}."
            )
        if at > services.clock.now() and not run.state.is_final:
            raise RefusedError("in_future", f"run {run_id} still lives, and that moment has not come yet.")
        then = as_at(run, at)
        events = [event for event in timeline(then) if event.at <= at]
        tasks = [_replayed_task(task) for task in then.tasks.by_depth()]
        return ReplayModel.from_records(then, run_id=run_id, at=at, tasks=tasks, events=events)

    return routes


def _replayed_task(task: TaskRun) -> ReplayedTaskModel:
    left_out = task.attempts[0].number - 1 if task.attempts else 0
    return ReplayedTaskModel.from_records(task, name=task.spec.name, attempts_left_out=left_out)
