"""Checks of tasks that no worker runs."""

from __future__ import annotations

from collections.abc import Iterator

from nimbus.config.problems import KeyPath
from nimbus.definition.faults import Fault
from nimbus.definition.models import TaskModel, WaitForModel
from nimbus.domain.waits import SELF, DataSource, address_fault
from nimbus.templates.names import tasks_read

_OF_WORKERS = (
    "args", "dependencies", "environment", "isolation", "jars", "limits", "pool", "priority", "queue_timeout",
    "retries", "runs_on", "spark", "start_after",
)  # fmt: skip
"""Keys that only a task run by workers may have."""
_BESIDE = {"status": "http", "covers": "pipeline", "last": "pipeline", "on_failed": "pipeline"}
"""Additional keys of a condition, with the key that they require."""
_SOURCES = tuple(source.value for source in DataSource)


def wait_faults(task: TaskModel, pipeline: str) -> Iterator[Fault]:
    """Faults of a task that no worker runs: keys for workers, results of tasks, and wrong conditions.

    Args:
        task: A task that no worker runs.
        pipeline: The name of its pipeline.
    """
    for key in _OF_WORKERS:
        if key in task.model_fields_set:
            yield Fault((key,), f"no worker runs a task of type {task.type}: it has no {key}; remove it")
    texts = [*wait_texts(task), *([] if task.when is None else [(("when",), task.when)])]
    for path, text in texts:
        if tasks_read(text):
            yield Fault(path, f"a task of type {task.type} cannot use results of other tasks")
    for number, model in enumerate(task.waits_for or ()):
        for fault in _entry_faults(model, pipeline):
            yield fault._replace(path=("waits_for", number, *fault.path))


def wait_texts(task: TaskModel) -> Iterator[tuple[KeyPath, str]]:
    """Templates of a task that no worker runs, each with its place."""
    if task.prompt is not None:
        yield ("prompt",), task.prompt
    for number, model in enumerate(task.waits_for or ()):
        for key in _SOURCES:
            if (text := getattr(model, key)) is not None:
                yield ("waits_for", number, key), text


def _entry_faults(model: WaitForModel, pipeline: str) -> Iterator[Fault]:
    kinds = (*_SOURCES, "pipeline")
    said = [kind for kind in kinds if getattr(model, kind) is not None]
    if len(said) != 1:
        yield Fault((), f"must have one of {', '.join(kinds)}")
        return
    (kind,) = said
    for key, of_kind in _BESIDE.items():
        if getattr(model, key) is not None and kind != of_kind:
            yield Fault((key,), f"has no meaning with {kind}; remove it")
    if kind == "pipeline":
        yield from _pipeline_faults(model, pipeline)
        return
    text = getattr(model, kind)
    if "{{" not in text and (fault := address_fault(DataSource(kind), text)) is not None:
        yield Fault((kind,), fault)


def _pipeline_faults(model: WaitForModel, pipeline: str) -> Iterator[Fault]:
    if model.pipeline == pipeline:
        yield Fault(("pipeline",), "would wait for itself; the interval before is `pipeline: self`")
    if model.covers is not None and model.last is not None:
        yield Fault(("last",), "sets the interval, as covers does; remove one of them")
    for key in ("covers", "last"):
        if model.pipeline == SELF and getattr(model, key) is not None:
            yield Fault((key,), "self is the interval before; remove it")
