"""Checks of tasks that start child runs. The leader refuses cycles of pipelines: `rules.release_checks`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from nimbus.config.problems import KeyPath
from nimbus.definition.faults import Fault
from nimbus.definition.models import DefinitionModel, TaskModel
from nimbus.domain.children import DEFAULT_MOST_ITEMS, MOST_AT_A_DEPTH, MOST_PARALLEL, SCALAR, parameter_in
from nimbus.domain.pipeline import TaskKind
from nimbus.domain.spelling import closest
from nimbus.templates.checking import argument_faults
from nimbus.templates.lists import file_in
from nimbus.templates.names import ANY_FIELD

MOST_ITEMS_OF_PIPELINE = MOST_AT_A_DEPTH
"""Limit of all tasks' `max_items` together: the states of items are kept in one node of 128 KiB."""
MOST_GIVEN_LISTS = 8
"""Limit of tasks whose lists come from results: these lists are kept in the same node."""
_OF_FAN_OUT = ("params", "for_each", "max_parallel", "max_items")
_OF_DRIVERS = (
    "args",
    "timeout",
    "isolation",
    "limits",
    "runs_on",
    "pool",
    "priority",
    "secrets",
    "env",
    "environment",
    "warn_after",
)
"""Keys about a driver, or about its slot."""


def child_faults(task: TaskModel, pipeline: str) -> Iterator[Fault]:
    """Faults of one task, without its templates. `pipeline`: the task's pipeline."""
    if task.type is not TaskKind.PIPELINE:
        for key in _OF_FAN_OUT:
            if getattr(task, key) is not None:
                yield Fault((key,), f"a {task.type} task starts no child runs; remove this")
        return
    for key in _OF_DRIVERS:
        if key in task.model_fields_set:
            yield Fault((key,), f"a pipeline task has no driver and no slot, so no {key}; remove this")
    if task.pipeline == pipeline:
        yield Fault(("pipeline",), f"{pipeline} would start itself endlessly")
    for name, value in (task.params or {}).items():
        if not isinstance(value, str | int | float | bool):
            yield Fault(("params", name), "must be a text, a number or a boolean")
    yield from _item_faults(task)


def all_items_faults(tasks: Mapping[str, TaskModel]) -> Iterator[Fault]:
    """Faults of a pipeline whose tasks have too many items together."""
    total = sum(task.max_items or DEFAULT_MOST_ITEMS for task in tasks.values() if task.for_each is not None)
    if total > MOST_ITEMS_OF_PIPELINE:
        yield Fault(
            ("tasks",),
            f"max_items of all tasks add up to {total}; {MOST_ITEMS_OF_PIPELINE} is the most: lower some",
        )
    given = [
        name
        for name, task in tasks.items()
        if any(isinstance(v, str) and not parameter_in(v) for v in (task.for_each or {}).values())
    ]
    if len(given) > MOST_GIVEN_LISTS:
        yield Fault(
            ("tasks", given[-1], "for_each"),
            f"{len(given)} tasks take lists from results; {MOST_GIVEN_LISTS} is the most: split the pipeline",
        )


def _item_faults(task: TaskModel) -> Iterator[Fault]:
    if task.for_each is None:
        for key in ("max_parallel", "max_items"):
            if getattr(task, key) is not None:
                yield Fault((key,), "without for_each there is only one child run; remove this")
        return
    known = [values for values in task.for_each.values() if isinstance(values, list)]
    most, count = task.max_items or DEFAULT_MOST_ITEMS, prod(map(len, known))
    if count > most:
        yield Fault(("for_each",), f"has {count} items, and max_items is {most}")
    elif most > MOST_PARALLEL and task.max_parallel is None:
        yield Fault(("max_items",), f"above {MOST_PARALLEL} items need max_parallel: add it")


def list_faults(model: DefinitionModel) -> Iterator[Fault]:
    """Faults of parameters in `for_each`."""
    for name, task in model.tasks.items():
        for text in (task.for_each or {}).values():
            read = parameter_in(text) if isinstance(text, str) else None
            path = ("tasks", name, "for_each")
            if read is None:
                continue
            if read not in model.parameters:
                yield Fault(path, f"there is no parameter {read!r}", closest(read, model.parameters))
            elif (kind := model.parameters[read].type) != "list":
                yield Fault(path, f"parameter {read!r} must be of type list, not {kind}")


def given_texts(tasks: Mapping[str, TaskModel]) -> Iterator[tuple[KeyPath, str]]:
    """Templates for child runs, with their places."""
    for name, task in tasks.items():
        for key, text in (task.params or {}).items():
            if isinstance(text, str):
                yield ("tasks", name, "params", key), text
        for text in (task.for_each or {}).values():
            if isinstance(text, str):
                yield ("tasks", name, "for_each"), text


def _fields(values: list[Any] | str) -> str:
    """The fields of the items of a single list: those in a file may be objects."""
    return ANY_FIELD if isinstance(values, str) and file_in(values) else SCALAR


def child_template_faults(model: DefinitionModel) -> Iterator[Fault]:
    """Faults of the templates of `params`. Those of one task can use its `item`."""
    texts: dict[KeyPath, str] = {}
    items: list[list[str] | None] = []
    for name, task in model.tasks.items():
        if task.type is not TaskKind.PIPELINE:
            continue
        item = (
            None
            if task.for_each is None
            else [key or _fields(values) for key, values in task.for_each.items()]
        )
        for key, text in (task.params or {}).items():
            if isinstance(text, str):
                texts["tasks", name, "params", key] = text
                items.append(item)
    found = argument_faults(list(texts.values()), model.parameters, items)
    for path, faults_of_one in zip(texts, found, strict=True):
        for message, suggestion, _ in faults_of_one:
            yield Fault(path, message, suggestion)
