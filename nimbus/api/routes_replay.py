"""Routes for the state of a run at a past moment, and for its child runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator

from nimbus.api.children import children_list
from nimbus.api.models import Model
from nimbus.api.models_runs import AttemptModel, ChildrenListModel, PausedModel, TimelineEventModel
from nimbus.api.paging import Paging
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import RunIdText, in_utc
from nimbus.api.routes_runs import unknown_task
from nimbus.api.run_lookup import find_run
from nimbus.api.services import ApiServices
from nimbus.api.timeline import timeline
from nimbus.api.views import in_order
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import TaskName
from nimbus.domain.replay import as_at
from nimbus.domain.run import Run, RunState
from nimbus.domain.task_run import TaskRun, TaskState


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

    @routes.get("/{run_id}/tasks/{task}/children")
    def children(run_id: RunIdText, task: str, paging: Paging) -> ChildrenListModel:
        """The items of a task of type `pipeline`, each with its last child run."""
        found = find_run(services, run_id)
        if (known := found.tasks.get(TaskName(task))) is None:
            raise unknown_task(found, task)
        if known.spec.children is None:
            raise NotFoundError("no_children", f"task {task} of run {run_id} is of type {known.spec.kind}.")
        listed = children_list(found, known)
        page = paging.page(listed.children, lambda one: (one.index,))
        update = {"children": page.rows, "next_cursor": page.next_cursor, "at_least": page.at_least}
        return listed.model_copy(update=update)

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
        return _replayed(as_at(run, at), at)

    return routes


def _replayed(run: Run, at: datetime) -> ReplayModel:
    return ReplayModel(
        run_id=run.id,
        at=at,
        state=run.state,
        verdict=run.verdict,
        reason=run.reason,
        paused=None if run.paused is None else PausedModel.model_validate(run.paused),
        tasks=[_task(task) for task in in_order(run)],
        events=[event for event in timeline(run).events if event.at <= at],
    )


def _task(task: TaskRun) -> ReplayedTaskModel:
    return ReplayedTaskModel(
        name=task.spec.name,
        state=task.state,
        attempts=[AttemptModel.model_validate(attempt) for attempt in task.attempts],
        attempts_left_out=task.attempts[0].number - 1 if task.attempts else 0,
    )
