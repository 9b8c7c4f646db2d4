"""Checks of tasks with `keep: running`, and of pipelines with such a task, whose runs do not end."""

from __future__ import annotations

from collections.abc import Iterator

from nimbus.definition.build import build_spark
from nimbus.definition.faults import Fault
from nimbus.definition.models import DefinitionModel, SparkModel, TaskModel
from nimbus.domain.pipeline import KEPT_KINDS, Isolation, SparkMode

_ENDS_TASK = ("allow_failure", "publishes", "timeout", "queue_timeout", "warn_after")
"""Keys about the end of a task, or about the length of its attempts."""
_ENDS_RUN = ("schedule", "schedules", "timeout", "concurrency", "warn_after", "expect", "deadline")
"""Keys about runs that end."""


def kept_faults(model: DefinitionModel) -> Iterator[Fault]:
    """Faults of all tasks with `keep`, and of their pipeline."""
    kept = [name for name, task in model.tasks.items() if task.keep]
    if not kept:
        return
    for key in _ENDS_RUN:
        if getattr(model, key) is not None:
            yield Fault(
                (key,), f"task {kept[0]} is kept running, so a run of the pipeline does not end; remove this"
            )
    needed = sorted(name for name, parameter in model.parameters.items() if parameter.required)
    if needed:
        why = "the activation of a release starts its run, which gets no values of parameters: give a default"
        yield Fault(("parameters", needed[0], "required"), why)
    for name in kept:
        for fault in _task_faults(model.tasks[name], model.defaults.spark):
            yield fault._replace(path=("tasks", name, *fault.path))
    for name, task in model.tasks.items():
        for number, need in enumerate(task.needs):
            if need in kept:
                path = ("tasks", name, "needs", need if task.requirements else number)
                yield Fault(
                    path, f"{need!r} is kept running and does not end, so this task would never start"
                )


def _task_faults(task: TaskModel, defaults: SparkModel) -> Iterator[Fault]:
    if task.type not in KEPT_KINDS:
        kinds = " and ".join(sorted(KEPT_KINDS))
        yield Fault(
            ("keep",), f"only tasks of type {kinds} can be kept running, not {task.type}; remove this"
        )
    if task.isolation is Isolation.POOLED:
        yield Fault(("isolation",), "a task that is kept running runs isolated, not pooled; remove this")
    if task.type.uses_spark and build_spark(task.type, task.spark, defaults).mode is SparkMode.CONNECT:
        why = "a query on a Spark Connect server could outlive the driver of a task that is kept running"
        yield Fault(("spark", "mode"), f"{why}; use mode: classic")
    for key in _ENDS_TASK:
        if key in task.model_fields_set:
            yield Fault((key,), "a task that is kept running does not end by itself; remove this")
    for key in ("limit", "on"):
        if key in task.retries.model_fields_set:
            why = (
                "a task that is kept running is started again whatever ends it, without a limit; remove this"
            )
            yield Fault(("retries", key), why)
