"""The life of a task of kind `pipeline`: it begins, its child runs start and end, it ends. Pure.

Also fan-in: a read with `of` pins exactly the versions that the child runs have published, item by item,
whatever others have published meanwhile. They come from the records of the child runs, not from the dataset,
which only has the newest version of each partition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nimbus.domain.data.datasets import versions_of
from nimbus.domain.data.outputs import Results
from nimbus.domain.data.publications import Read, Version
from nimbus.domain.data.reads import MAX_PINNED, ReadError
from nimbus.domain.errors import InvalidTransitionError
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.children import (
    Children,
    ChildSpec,
    ItemState,
    begun,
    child_id,
    repeats,
    succeeded_alone,
)
from nimbus.domain.runs.growth import with_attempt
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.wording import shortened

Lists = Mapping[str, tuple[Any, ...]]
NO_WORKER = WorkerId("")
"""The worker of an attempt whose work child runs do."""

_ITEM_AFTER = {
    RunState.SUCCEEDED: ItemState.SUCCEEDED,
    RunState.FAILED: ItemState.FAILED,
    RunState.STOPPED: ItemState.STOPPED,
}


def is_under_way(task: TaskRun) -> bool:
    """True when a task has begun its child runs and waits for them."""
    return task.children is not None and task.state is TaskState.RUNNING


def with_releases(run: Run, active: dict[PipelineName, ReleaseDigest]) -> Run:
    """A new run with its unpinned child runs pinned to the releases that are active now."""

    def pinned(task: TaskRun) -> TaskRun:
        spec = task.spec.children
        if spec is None:
            return task
        return _pinned(task, spec.release or active.get(spec.pipeline))

    return replace(run, tasks=Tasks(pinned(task) for task in run.tasks.in_order()))


def repeated(task: TaskRun, was: TaskRun | None, *, keeps_release: bool, keeps_items: bool) -> TaskRun:
    """A task of a rerun, with the releases and succeeded items that it takes over from the earlier run.

    Args:
        task: A task that has not begun.
        was: The same task in the earlier run; None: that run did not have it.
        keeps_release: Its child runs use the same release as in the earlier run.
        keeps_items: Items that succeeded there are not repeated, unless the task starts other runs now.
    """
    spec, before = task.spec.children, None if was is None else was.spec.children
    if was is None or spec is None or before is None:
        return task
    if keeps_items and was.children is not None and repeats(spec, before):
        task = replace(task, children=succeeded_alone(was.children))
    return _pinned(task, before.release) if keeps_release and spec.pipeline == before.pipeline else task


def _pinned(task: TaskRun, release: ReleaseDigest | None) -> TaskRun:
    spec = task.spec.children
    if spec is None:
        return task
    return replace(task, spec=replace(task.spec, children=replace(spec, release=release)))


def child_of(run: Run, name: TaskName, index: int) -> RunId | None:
    """The id of the last child run of an item; None: there was none."""
    spec, children = parts(run, name)
    number = children.tried[index]
    return child_id(run.id, name, spec, number, index) if number else None


def spec_of(task: TaskRun) -> ChildSpec | None:
    """The child runs that a task starts, with the lists known so far; None: it starts none."""
    spec, children = task.spec.children, task.children
    return spec if spec is None or children is None else spec.with_lists(children.lists)


def width_of(run: Run, name: TaskName, count: int) -> int:
    """The width of the child runs of a task, see `Parent`. `count`: number of its items."""
    others = (spec for other in run.tasks.in_order() if other.spec.name != name and (spec := spec_of(other)))
    all_tasks = count + sum(spec.max_items if spec.templates else spec.count for spec in others)
    return (1 if run.parent is None else run.parent.width) * all_tasks


def begin(run: Run, name: TaskName, lists: Lists, *, epoch: int, now: datetime) -> Run:
    """Begin the next attempt of a task. Items that have succeeded are not repeated.

    `lists`: lists that came from results. Those of an earlier attempt are kept. Raises
    InvalidTransitionError: the task is not waiting, or the run does not start tasks any more.
    """
    task, spec = run.tasks[name], run.tasks[name].spec.children
    if spec is None or not lifecycle.is_ready(run, task):
        raise InvalidTransitionError(f"run {run.id} ({run.state}): task {name} ({task.state}) cannot begin")
    lists = lists if task.children is None else task.children.lists
    whole = spec.with_lists(lists)
    children = begun(
        task.children,
        whole,
        lists=lists,
        width=width_of(run, name, whole.count),
        attempt=task.tried + 1,
        epoch=epoch,
        now=now,
    )
    return _with_task(run, replace(task, state=TaskState.RUNNING, retry_at=None, children=children))


def item_moved(run: Run, name: TaskName, index: int, state: ItemState, reason: str = "") -> Run:
    """The run with one item moved to another state."""
    _, children = parts(run, name)
    return _with_task(run, replace(run.tasks[name], children=children.moved(index, state, shortened(reason))))


def item_state(child: RunState) -> ItemState:
    """The state of an item after the end of its child run."""
    return _ITEM_AFTER[child]


def close(run: Run, name: TaskName, *, max_infrastructure_failures: int, now: datetime) -> Run:
    """End the attempt of a task whose child runs have all ended, and move its run on."""
    _, children = parts(run, name)
    outcome, reason = _verdict(children)
    closed = Attempt(
        number=children.attempt,
        worker=NO_WORKER,
        opened_at=children.began_at,
        opened_by_epoch=children.epoch,
        started_at=children.began_at,
        ended_at=now,
        outcome=outcome,
        reason=shortened(reason),
    )
    return lifecycle.after_attempt(
        run, with_attempt(run, run.tasks[name], closed), max_infrastructure_failures, now
    )


def _verdict(children: Children) -> tuple[Outcome, str]:
    total, good = len(children.states), children.count(ItemState.SUCCEEDED)
    if good == total:
        return Outcome.SUCCEEDED, ""
    words = {
        "failed": children.count(ItemState.FAILED, ItemState.REFUSED),
        "stopped": children.count(ItemState.STOPPED),
        "not started": children.count(ItemState.WAITING),
    }
    counts = ", ".join(f"{count} {word}" for word, count in words.items() if count)
    reason = f"of {total} child runs {counts}" + (f": {children.reason}" if children.reason else "")
    if words["failed"]:
        return Outcome.FAILED, reason
    return Outcome.STOPPED, reason


def parts(run: Run, name: TaskName) -> tuple[ChildSpec, Children]:
    """The child runs that a task starts, and its progress.

    Raises InvalidTransitionError: the task has not begun.
    """
    task = run.tasks[name]
    spec = spec_of(task)
    if spec is None or task.children is None:
        raise InvalidTransitionError(f"run {run.id}: task {name} has no child runs")
    return spec, task.children


def _with_task(run: Run, task: TaskRun) -> Run:
    return replace(run, tasks=run.tasks.replaced((task,)))


LARGEST_VALUES = 64 * 1024
"""Limit of the results of one read, in bytes of JSON. Larger ones are left out: pins are one node."""


@dataclass(frozen=True, slots=True)
class Child:
    """The last child run of an item."""

    item: Any
    """None: the task has no `for_each`."""
    pipeline: PipelineName
    run: RunId


@dataclass(frozen=True, slots=True)
class EndedChild:
    """The record of a child run, and the results of its tasks."""

    item: Any
    run: Run
    results: Results


def children_of(run: Run, read: Read, load: Callable[[RunId], Run]) -> tuple[Child, ...]:
    """The last child run of each item that had one, in the order of the items.

    `load`: reads an earlier run of the same pipeline, whose successful items this one keeps.

    Raises ReadError: the task has started none, or there are too many.
    """
    children = tuple(_by_item(run, read, load).values())
    if len(children) > MAX_PINNED:
        raise ReadError(f"{read.name}: {len(children)} child runs are too many, {MAX_PINNED} are the most")
    return children


def _by_item(run: Run, read: Read, load: Callable[[RunId], Run]) -> dict[int, Child]:
    task = None if read.of is None else run.tasks.get(read.of)
    if task is not None and task.reused is not None:
        return _by_item(load(task.reused.run), read, load)
    spec, children = (None, None) if task is None else (spec_of(task), task.children)
    if task is None or spec is None or children is None:
        if read.optional:
            return {}
        raise ReadError(f"{read.name}: task {read.of} of run {run.id} has started no child runs")
    kept: dict[int, Child] = {}
    if run.rerun_of is not None and any(not children.tried[n] for n in children.having(ItemState.SUCCEEDED)):
        kept = _by_item(load(run.rerun_of), read, load)
    by_item: dict[int, Child] = {}
    for index, (state, number) in enumerate(zip(children.states, children.tried, strict=True)):
        if number:
            child = child_id(run.id, task.spec.name, spec, number, index)
            by_item[index] = Child(spec.item(index) if spec.for_each else None, spec.pipeline, child)
        elif state == ItemState.SUCCEEDED and index in kept:
            by_item[index] = kept[index]
    return by_item


def published_by_children(read: Read, children: Iterable[EndedChild]) -> tuple[Version, ...]:
    """The versions that child runs have published: in the order of the items, then of the partitions.

    Raises ReadError: child runs have published none, or too many.
    """
    ended = tuple(children)
    parts = tuple(part for child in ended for part in _parts_of(read, child))
    if ended and not parts and not read.optional:
        raise ReadError(f"{read.name}: no child run of {read.of} has published dataset {read.dataset}")
    if len(parts) > MAX_PINNED:
        raise ReadError(f"{read.name}: {len(parts)} versions are too many, {MAX_PINNED} are the most")
    if sum(len(json.dumps(part.value)) for part in parts) > LARGEST_VALUES:
        return tuple(replace(part, value=None) for part in parts)
    return parts


def _parts_of(read: Read, child: EndedChild) -> list[Version]:
    own = [version for publication, version in versions_of(child.run) if publication.dataset == read.dataset]
    return [
        replace(version, item=child.item, value=child.results.get(version.task, {}))
        for version in sorted(own, key=lambda version: version.partition)
    ]
