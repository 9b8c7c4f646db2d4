"""What must hold in a task that no worker runs."""

from __future__ import annotations

from collections.abc import Iterator

from nimbus.config.problems import KeyPath
from nimbus.definition.faults import Fault
from nimbus.definition.models import TaskModel, WaitForModel
from nimbus.domain.waits import DataSource, address_fault
from nimbus.templates.names import tasks_read

_OF_WORKERS = (
    "args", "isolation", "limits", "pool", "priority", "retries", "runs_on", "spark", "start_after",
)  # fmt: skip
"""What only a task that workers run may say."""
_SOURCES = tuple(source.value for source in DataSource)


def wait_faults(task: TaskModel) -> Iterator[Fault]:
    """Keys that only workers could use, results of tasks, and what is wrong with each thing waited for."""
    for key in _OF_WORKERS:
        if key in task.model_fields_set:
            yield Fault((key,), f"no worker runs a task of type {task.type}: it has no {key}; remove it")
    texts = [*wait_texts(task), *([] if task.when is None else [(("when",), task.when)])]
    for path, text in texts:
        if tasks_read(text):
            yield Fault(path, f"a task of type {task.type} cannot use results of other tasks")
    for number, model in enumerate(task.waits_for or ()):
        for fault in _entry_faults(model):
            yield fault._replace(path=("waits_for", number, *fault.path))


def wait_texts(task: TaskModel) -> Iterator[tuple[KeyPath, str]]:
    """Templates of a task that no worker runs, each with its place."""
    if task.prompt is not None:
        yield ("prompt",), task.prompt
    for number, model in enumerate(task.waits_for or ()):
        for key in _SOURCES:
            if (text := getattr(model, key)) is not None:
                yield ("waits_for", number, key), text


def _entry_faults(model: WaitForModel) -> Iterator[Fault]:
    said = [source for source in DataSource if getattr(model, source.value) is not None]
    if len(said) != 1:
        yield Fault((), f"must have one of {', '.join(_SOURCES)}")
        return
    (source,) = said
    text = getattr(model, source.value)
    if "{{" not in text and (fault := address_fault(source, text)) is not None:
        yield Fault((source.value,), fault)
    if model.status is not None and source is not DataSource.HTTP:
        yield Fault(("status",), "is of an HTTP answer; remove it")
