"""Checks of tasks that are kept running, that no worker runs, or that start child runs.

The leader refuses cycles of pipelines: see `rules.release_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from nimbus.config.problems import KeyPath
from nimbus.definition.build import build_spark
from nimbus.definition.faults import KeyFault
from nimbus.definition.models import PipelineKeys, SparkKeys, TaskKeys, WaitForKeys
from nimbus.domain.pipelines.pipeline import KEPT_KINDS, Isolation, SparkMode, TaskKind
from nimbus.domain.runs.children import DEFAULT_MAX_ITEMS, MAX_AT_A_DEPTH, MAX_PARALLEL, SCALAR, parameter_in
from nimbus.domain.starts.waits import SELF, DataSource, address_fault
from nimbus.domain.wording import closest
from nimbus.templates.checking import argument_faults
from nimbus.templates.lists import file_in
from nimbus.templates.names import ANY_FIELD, tasks_read

_ENDS_TASK = ("allow_failure", "publishes", "timeout", "queue_timeout", "warn_after")
"""Keys about the end of a task, or about the length of its attempts."""
_ENDS_RUN = ("schedule", "schedules", "timeout", "concurrency", "warn_after", "expect", "deadline")
"""Keys about runs that end."""


def kept_faults(model: PipelineKeys) -> Iterator[KeyFault]:
    """Faults of all tasks with `keep`, and of their pipeline."""
    kept = [name for name, task in model.tasks.items() if task.keep]
    if not kept:
        return
    for key in _ENDS_RUN:
        if getattr(model, key) is not None:
            yield KeyFault(
                (key,), f"task {kept[0]} is kept running, so a run of the pipeline does not end; remove this"
            )
    needed = sorted(name for name, parameter in model.parameters.items() if parameter.required)
    if needed:
        why = "the activation of a release starts its run, which gets no values of parameters: give a default"
        yield KeyFault(("parameters", needed[0], "required"), why)
    for name in kept:
        for fault in _task_faults(model.tasks[name], model.defaults.spark):
            yield fault._replace(path=("tasks", name, *fault.path))
    for name, task in model.tasks.items():
        for number, need in enumerate(task.needs):
            if need in kept:
                path = ("tasks", name, "needs", need if task.requirements else number)
                yield KeyFault(
                    path, f"{need!r} is kept running and does not end, so this task would never start"
                )


def _task_faults(task: TaskKeys, defaults: SparkKeys) -> Iterator[KeyFault]:
    if task.type not in KEPT_KINDS:
        kinds = " and ".join(sorted(KEPT_KINDS))
        yield KeyFault(
            ("keep",), f"only tasks of type {kinds} can be kept running, not {task.type}; remove this"
        )
    if task.isolation is Isolation.POOLED:
        yield KeyFault(("isolation",), "a task that is kept running runs isolated, not pooled; remove this")
    if task.type.uses_spark and build_spark(task.type, task.spark, defaults).mode is SparkMode.CONNECT:
        why = "a query on a Spark Connect server could outlive the driver of a task that is kept running"
        yield KeyFault(("spark", "mode"), f"{why}; use mode: classic")
    for key in _ENDS_TASK:
        if key in task.model_fields_set:
            yield KeyFault((key,), "a task that is kept running does not end by itself; remove this")
    for key in ("limit", "on"):
        if key in task.retries.model_fields_set:
            why = (
                "a task that is kept running is started again whatever ends it, without a limit; remove this"
            )
            yield KeyFault(("retries", key), why)


_OF_WORKERS = (
    "args", "dependencies", "environment", "isolation", "jars", "limits", "pool", "priority", "queue_timeout",
    "retries", "runs_on", "spark", "start_after",
)  # fmt: skip
"""Keys that only a task run by workers may have."""
_BESIDE = {"status": "http", "covers": "pipeline", "last": "pipeline", "on_failed": "pipeline"}
"""Additional keys of a condition, with the key that they require."""
_SOURCES = tuple(source.value for source in DataSource)


def wait_faults(task: TaskKeys, pipeline: str) -> Iterator[KeyFault]:
    """Faults of a task that no worker runs: keys for workers, results of tasks, and wrong conditions."""
    for key in _OF_WORKERS:
        if key in task.model_fields_set:
            yield KeyFault((key,), f"no worker runs a task of type {task.type}: it has no {key}; remove it")
    texts = [*wait_texts(task), *([] if task.when is None else [(("when",), task.when)])]
    for path, text in texts:
        if tasks_read(text):
            yield KeyFault(path, f"a task of type {task.type} cannot use results of other tasks")
    for number, model in enumerate(task.waits_for or ()):
        for fault in _entry_faults(model, pipeline):
            yield fault._replace(path=("waits_for", number, *fault.path))


def wait_texts(task: TaskKeys) -> Iterator[tuple[KeyPath, str]]:
    """Templates of a task that no worker runs, each with its place."""
    if task.prompt is not None:
        yield ("prompt",), task.prompt
    for number, model in enumerate(task.waits_for or ()):
        for key in _SOURCES:
            if (text := getattr(model, key)) is not None:
                yield ("waits_for", number, key), text


def _entry_faults(model: WaitForKeys, pipeline: str) -> Iterator[KeyFault]:
    kinds = (*_SOURCES, "pipeline")
    said = [kind for kind in kinds if getattr(model, kind) is not None]
    if len(said) != 1:
        yield KeyFault((), f"must have one of {', '.join(kinds)}")
        return
    (kind,) = said
    for key, of_kind in _BESIDE.items():
        if getattr(model, key) is not None and kind != of_kind:
            yield KeyFault((key,), f"has no meaning with {kind}; remove it")
    if kind == "pipeline":
        yield from _pipeline_faults(model, pipeline)
        return
    text = getattr(model, kind)
    if "{{" not in text and (fault := address_fault(DataSource(kind), text)) is not None:
        yield KeyFault((kind,), fault)


def _pipeline_faults(model: WaitForKeys, pipeline: str) -> Iterator[KeyFault]:
    if model.pipeline == pipeline:
        yield KeyFault(("pipeline",), "would wait for itself; the interval before is `pipeline: self`")
    if model.covers is not None and model.last is not None:
        yield KeyFault(("last",), "sets the interval, as covers does; remove one of them")
    for key in ("covers", "last"):
        if model.pipeline == SELF and getattr(model, key) is not None:
            yield KeyFault((key,), "self is the interval before; remove it")


MAX_ITEMS_OF_PIPELINE = MAX_AT_A_DEPTH
"""Limit of all tasks' `max_items` together: the states of items are kept in one node of 128 KiB."""
MAX_GIVEN_LISTS = 8
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


def child_faults(task: TaskKeys, pipeline: str) -> Iterator[KeyFault]:
    """Faults of one task, without its templates. `pipeline`: the task's pipeline."""
    if task.type is not TaskKind.PIPELINE:
        for key in _OF_FAN_OUT:
            if getattr(task, key) is not None:
                yield KeyFault((key,), f"a {task.type} task starts no child runs; remove this")
        return
    for key in _OF_DRIVERS:
        if key in task.model_fields_set:
            yield KeyFault((key,), f"a pipeline task has no driver and no slot, so no {key}; remove this")
    if task.pipeline == pipeline:
        yield KeyFault(("pipeline",), f"{pipeline} would start itself endlessly")
    for name, value in (task.params or {}).items():
        if not isinstance(value, str | int | float | bool):
            yield KeyFault(("params", name), "must be a text, a number or a boolean")
    yield from _item_faults(task)


def all_items_faults(tasks: Mapping[str, TaskKeys]) -> Iterator[KeyFault]:
    """Faults of a pipeline whose tasks have too many items together."""
    total = sum(task.max_items or DEFAULT_MAX_ITEMS for task in tasks.values() if task.for_each is not None)
    if total > MAX_ITEMS_OF_PIPELINE:
        yield KeyFault(
            ("tasks",),
            f"max_items of all tasks add up to {total}; {MAX_ITEMS_OF_PIPELINE} is the most: lower some",
        )
    given = [
        name
        for name, task in tasks.items()
        if any(isinstance(v, str) and not parameter_in(v) for v in (task.for_each or {}).values())
    ]
    if len(given) > MAX_GIVEN_LISTS:
        yield KeyFault(
            ("tasks", given[-1], "for_each"),
            f"{len(given)} tasks take lists from results; {MAX_GIVEN_LISTS} is the most: split the pipeline",
        )


def _item_faults(task: TaskKeys) -> Iterator[KeyFault]:
    if task.for_each is None:
        for key in ("max_parallel", "max_items"):
            if getattr(task, key) is not None:
                yield KeyFault((key,), "without for_each there is only one child run; remove this")
        return
    known = [values for values in task.for_each.values() if isinstance(values, list)]
    most, count = task.max_items or DEFAULT_MAX_ITEMS, prod(map(len, known))
    if count > most:
        yield KeyFault(("for_each",), f"has {count} items, and max_items is {most}")
    elif most > MAX_PARALLEL and task.max_parallel is None:
        yield KeyFault(("max_items",), f"above {MAX_PARALLEL} items need max_parallel: add it")


def list_faults(model: PipelineKeys) -> Iterator[KeyFault]:
    """Faults of parameters in `for_each`."""
    for name, task in model.tasks.items():
        for text in (task.for_each or {}).values():
            read = parameter_in(text) if isinstance(text, str) else None
            path = ("tasks", name, "for_each")
            if read is None:
                continue
            if read not in model.parameters:
                yield KeyFault(path, f"there is no parameter {read!r}", closest(read, model.parameters))
            elif (kind := model.parameters[read].type) != "list":
                yield KeyFault(path, f"parameter {read!r} must be of type list, not {kind}")


def given_texts(tasks: Mapping[str, TaskKeys]) -> Iterator[tuple[KeyPath, str]]:
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


def child_template_faults(model: PipelineKeys) -> Iterator[KeyFault]:
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
    faults = argument_faults(list(texts.values()), model.parameters, items)
    for path, faults_of_one in zip(texts, faults, strict=True):
        for message, suggestion, _ in faults_of_one:
            yield KeyFault(path, message, suggestion)
