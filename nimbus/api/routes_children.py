"""Routes about child runs."""

from __future__ import annotations

from fastapi import APIRouter

from nimbus.api.children import children_list
from nimbus.api.finding import find_run
from nimbus.api.models_runs import ChildrenListModel
from nimbus.api.paging import Paging
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import RunIdText
from nimbus.api.routes_runs import unknown_task
from nimbus.api.services import ApiServices
from nimbus.domain.ids import TaskName


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

    return routes
