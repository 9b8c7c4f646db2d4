"""Fan-in: what the child runs of one task have published, item by item. Pure.

A read with `of` pins exactly these versions, whatever others have published meanwhile. They come from the
records of the child runs, not from the dataset, which only has the newest version of each partition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from nimbus.domain.child_runs import spec_of
from nimbus.domain.children import ItemState, child_id
from nimbus.domain.datasets import versions_of
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.publications import Read, Version
from nimbus.domain.reads import MOST_PINNED, ReadError
from nimbus.domain.results import Results
from nimbus.domain.run import Run

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

    Raises:
        ReadError: the task has started none, or there are too many.
    """
    found = tuple(_by_item(run, read, load).values())
    if len(found) > MOST_PINNED:
        raise ReadError(f"{read.name}: {len(found)} child runs are too many, {MOST_PINNED} are the most")
    return found


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
    found: dict[int, Child] = {}
    for index, (state, number) in enumerate(zip(children.states, children.tried, strict=True)):
        if number:
            child = child_id(run.id, task.spec.name, spec, number, index)
            found[index] = Child(spec.item(index) if spec.for_each else None, spec.pipeline, child)
        elif state == ItemState.SUCCEEDED and index in kept:
            found[index] = kept[index]
    return found


def parts(read: Read, children: Iterable[EndedChild]) -> tuple[Version, ...]:
    """The versions that child runs have published: in the order of the items, then of the partitions.

    Raises:
        ReadError: child runs have published none, or too many.
    """
    ended = tuple(children)
    found = tuple(part for child in ended for part in _parts_of(read, child))
    if ended and not found and not read.optional:
        raise ReadError(f"{read.name}: no child run of {read.of} has published dataset {read.dataset}")
    if len(found) > MOST_PINNED:
        raise ReadError(f"{read.name}: {len(found)} versions are too many, {MOST_PINNED} are the most")
    if sum(len(json.dumps(part.value)) for part in found) > LARGEST_VALUES:
        return tuple(replace(part, value=None) for part in found)
    return found


def _parts_of(read: Read, child: EndedChild) -> list[Version]:
    own = [version for one, version in versions_of(child.run) if one.dataset == read.dataset]
    return [
        replace(version, item=child.item, value=child.results.get(version.task, {}))
        for version in sorted(own, key=lambda version: version.partition)
    ]
