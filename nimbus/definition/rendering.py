"""Templates in tasks' arguments and SQL, rendered once per run and then kept. Pure.

Strict: a name that is not there is an error, not an empty text. Bounded: see `nimbus.definition.sandbox`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from jinja2 import TemplateError as JinjaError

from nimbus.definition.sandbox import LONGEST, Sandbox
from nimbus.domain.errors import NimbusError
from nimbus.domain.pipeline import PipelineSpec, TaskSpec

LONGEST_ARGUMENT = 64 * 1024
"""Characters of one rendered argument. Linux gives one argument 128 KiB."""
LONGEST_ARGUMENTS = 256 * 1024
"""Characters of all arguments of a run: they are part of its record, which must stay well below 1 MiB."""

BROKEN = (
    JinjaError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,  # of Python's parser, which reports its own limit so
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a template can end in, all of it the fault of its text or its values."""

_environment = Sandbox()


class TemplateError(NimbusError):
    """A template cannot be rendered."""

    code = "template"
    exit_code = 2


def render_context(
    *, pipeline: str, task: str, run_id: str, logical_date: datetime, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """The names that a template may use."""
    return {
        "params": dict(parameters),
        "run": {"id": run_id, "logical_date": logical_date},
        "ds": f"{logical_date:%Y-%m-%d}",
        "ds_nodash": f"{logical_date:%Y%m%d}",
        "pipeline": {"name": pipeline},
        "task": {"name": task},
    }


def render_text(text: str, context: Mapping[str, Any], *, longest: int = LONGEST) -> str:
    """Render one text.

    Args:
        text: The template.
        context: As `render_context` makes it.
        longest: Characters that the result may have; what is longer is not even finished.

    Raises:
        TemplateError: bad syntax, an unknown name, something the sandbox forbids, or a result too long.
    """
    parts: list[str] = []
    size = 0
    try:
        for part in _environment.from_string(text).generate(context):
            size += len(part)
            if size > longest:
                raise TemplateError(f"template {_short(text)} renders to more than {longest} characters")
            parts.append(part)
    except BROKEN as exc:
        reason = str(exc) or type(exc).__name__
        raise TemplateError(f"template {_short(text)} cannot be rendered: {reason}") from exc
    return "".join(parts)


def render_tasks(
    spec: PipelineSpec, *, run_id: str, logical_date: datetime, parameters: Mapping[str, Any]
) -> tuple[TaskSpec, ...]:
    """All tasks with their arguments rendered.

    Raises:
        TemplateError: names the task and the argument.
    """
    rendered = tuple(_rendered(spec, task, run_id, logical_date, parameters) for task in spec.tasks)
    size = sum(len(argument) for task in rendered for argument in task.args)
    if size > LONGEST_ARGUMENTS:
        raise TemplateError(
            f"the arguments of all tasks render to {size} characters, {LONGEST_ARGUMENTS} is the most; "
            f"put what is long into a file"
        )
    return rendered


def _rendered(
    spec: PipelineSpec, task: TaskSpec, run_id: str, logical_date: datetime, parameters: Mapping[str, Any]
) -> TaskSpec:
    context = render_context(
        pipeline=spec.name, task=task.name, run_id=run_id, logical_date=logical_date, parameters=parameters
    )
    args = []
    for number, argument in enumerate(task.args, start=1):
        try:
            args.append(render_text(argument, context, longest=LONGEST_ARGUMENT))
        except TemplateError as exc:
            raise TemplateError(f"task {task.name}, argument {number}: {exc}") from exc
    return replace(task, args=tuple(args))


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
