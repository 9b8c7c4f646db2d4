"""What must hold between the parts of a definition. Each rule finds all of its faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from nimbus.config.problems import KeyPath
from nimbus.config.values import format_duration
from nimbus.definition.build import build_parameter, build_retries, build_spark
from nimbus.definition.models import DefinitionModel, ParameterModel, TaskModel
from nimbus.domain.parameters import has_type, value_fault
from nimbus.domain.pipeline import SparkMode, TaskKind
from nimbus.domain.spelling import closest
from nimbus.templates.client import Templates

SUFFIX = {TaskKind.PYSPARK: ".py", TaskKind.PYTHON: ".py", TaskKind.SQL: ".sql"}

SESSION_PROPERTIES = "spark.sql."
"""How properties of a Connect session begin. Of these the server refuses the static ones."""


class Fault(NamedTuple):
    """Something that is wrong at a key."""

    path: KeyPath
    message: str
    suggestion: str | None = None


def faults(model: DefinitionModel, templates: Templates | None) -> Iterator[Fault]:
    """Everything that is wrong between the parts of a definition, and in its templates.

    Args:
        model: The definition.
        templates: Checks templates; None: they are not checked.
    """
    for name, parameter in model.parameters.items():
        for fault in _parameter_faults(parameter):
            yield fault._replace(path=("parameters", name, *fault.path))
    for name, task in model.tasks.items():
        for fault in (*_needs_faults(name, task, model.tasks), *_task_faults(task, model)):
            yield fault._replace(path=("tasks", name, *fault.path))
    if templates is not None:
        yield from _argument_faults(model, templates)
    yield from _cycles(model.tasks)
    yield from _schedule_faults(model)


def _schedule_faults(model: DefinitionModel) -> Iterator[Fault]:
    needed = sorted(name for name, parameter in model.parameters.items() if parameter.required)
    if model.schedule is not None and needed:
        yield Fault(
            ("schedule",),
            "nobody gives parameters to a scheduled run, and "
            f"{', '.join(needed)} has no default; give it one",
        )


def _parameter_faults(parameter: ParameterModel) -> Iterator[Fault]:
    for bound in ("minimum", "maximum"):
        if getattr(parameter, bound) is not None and parameter.type not in ("integer", "number"):
            yield Fault((bound,), f"a {parameter.type} has no {bound}; remove it")
            return
    if None not in (low := parameter.minimum, high := parameter.maximum) and low > high:  # type: ignore[operator]  # neither is None
        yield Fault(("minimum",), f"minimum ({low:g}) must not be above maximum ({high:g})")
        return
    for number, choice in enumerate(parameter.choices or ()):
        if not has_type(parameter.type, choice):
            yield Fault(("choices", number), f"must be of type {parameter.type}, not {choice!r}")
            return
    if parameter.required and parameter.default is not None:
        yield Fault(("required",), "a required parameter has no default; remove the one or the other")
    elif parameter.default is not None:
        fault = value_fault(build_parameter(parameter), parameter.default)
        if fault is not None:
            yield Fault(("default",), fault)
    elif not parameter.required:
        yield Fault((), "needs a default; or say `required: true`")


def _needs_faults(name: str, task: TaskModel, tasks: Mapping[str, TaskModel]) -> Iterator[Fault]:
    seen = set()
    for number, need in enumerate(task.needs):
        path = ("needs", number)
        if need == name:
            yield Fault(path, "a task cannot need itself; remove it")
        elif need not in tasks:
            yield Fault(path, f"there is no task {need!r}", closest(need, set(tasks) - {name}))
        elif need in seen:
            yield Fault(path, f"{need!r} is here twice; keep one")
        seen.add(need)


def _task_faults(task: TaskModel, model: DefinitionModel) -> Iterator[Fault]:
    suffix = SUFFIX[task.type]
    if not task.script.endswith(suffix):
        yield Fault(
            ("script",), f"{task.script!r} must end with {suffix}, as the task is of type {task.type}"
        )
    if task.type is TaskKind.SQL and task.args:
        yield Fault(("args",), "a sql task takes no args; its file can use {{ params.name }}")
    if task.type is not TaskKind.PYTHON:
        yield from _connect_faults(task, model)
    elif task.spark.conf or task.spark.mode:
        yield Fault(("spark",), "a python task has no Spark; make it a pyspark task, or remove this")
    retries = build_retries(task.retries, model.defaults.retries)
    if retries.max_delay < retries.delay:
        message = (
            f"max_delay ({format_duration(retries.max_delay)}) must not be below delay "
            f"({format_duration(retries.delay)}); raise the one or lower the other"
        )
        yield Fault(("retries",), message)


def _connect_faults(task: TaskModel, model: DefinitionModel) -> Iterator[Fault]:
    mode, conf = build_spark(task.spark, model.defaults.spark)
    if mode is not SparkMode.CONNECT:
        return
    for name in conf:
        if not name.startswith(SESSION_PROPERTIES):
            yield Fault(
                ("spark",),
                f"{name} is set when Spark starts, but mode: connect takes a Spark that runs already; "
                f"there only {SESSION_PROPERTIES}* can be set. Remove it, or use mode: classic",
            )


def _argument_faults(model: DefinitionModel, templates: Templates) -> Iterator[Fault]:
    """Of all tasks at once: each question costs a way to another process."""
    places = [(name, number) for name, task in model.tasks.items() for number in range(len(task.args))]
    texts = [model.tasks[name].args[number] for name, number in places]
    found = templates.argument_faults(texts, model.parameters)
    for (name, number), faults_of_one in zip(places, found, strict=True):
        for message, suggestion, _ in faults_of_one:
            yield Fault(("tasks", name, "args", number), message, suggestion)


def _cycles(tasks: Mapping[str, TaskModel]) -> Iterator[Fault]:
    """Each circle once. Names that are wrong in themselves are left to the rule about those."""
    graph = {
        name: [need for need in task.needs if need in tasks and need != name] for name, task in tasks.items()
    }
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as exc:
            circle = list(reversed(exc.args[1]))  # each needs the next
            start = min(circle)
            turn = circle.index(start)
            ordered = [*circle[turn:-1], *circle[: turn + 1]] if turn else circle
            way = " needs ".join(ordered)
            yield Fault(("tasks", start, "needs"), f"tasks need one another in a circle: {way}")
            graph[ordered[0]] = [need for need in graph[ordered[0]] if need != ordered[1]]
        else:
            return
