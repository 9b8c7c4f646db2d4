"""Builds the API's answers about child runs. Pure."""

from __future__ import annotations

from nimbus.api.models_runs import ChildModel, ChildrenListModel, ChildrenModel
from nimbus.domain.child_runs import child_of, spec_of
from nimbus.domain.children import ItemState
from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun


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


def children_list(run: Run, task: TaskRun) -> ChildrenListModel:
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
    return ChildrenListModel(run_id=run.id, task=task.spec.name, children=rows)
