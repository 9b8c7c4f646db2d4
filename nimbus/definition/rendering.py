"""Templates in tasks' arguments and SQL, rendered once per run and then kept. Pure.

Jinja2's sandbox with strict undefined: a name that is not there is an error, not an empty text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from jinja2 import StrictUndefined, TemplateError as JinjaError
from jinja2.sandbox import SandboxedEnvironment

from nimbus.domain.errors import NimbusError
from nimbus.domain.pipeline import PipelineSpec, TaskSpec

LONGEST = 1 << 20
"""Characters that a rendered text may have."""

_environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)


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


def render_text(text: str, context: Mapping[str, Any]) -> str:
    """Render one text.

    Raises:
        TemplateError: bad syntax, an unknown name, something the sandbox forbids, or a result too long.
    """
    try:
        rendered = _environment.from_string(text).render(context)
    except (JinjaError, TypeError, ValueError, ArithmeticError, OverflowError) as exc:
        raise TemplateError(f"template {text[:80]!r} cannot be rendered: {exc}") from exc
    if len(rendered) > LONGEST:
        raise TemplateError(f"template {text[:80]!r} renders to {len(rendered)} characters; {LONGEST} is the limit")
    return rendered


def render_tasks(
    spec: PipelineSpec, *, run_id: str, logical_date: datetime, parameters: Mapping[str, Any]
) -> tuple[TaskSpec, ...]:
    """All tasks with their arguments rendered.

    Raises:
        TemplateError: names the task and the argument.
    """
    return tuple(_rendered(spec, task, run_id, logical_date, parameters) for task in spec.tasks)


def _rendered(
    spec: PipelineSpec, task: TaskSpec, run_id: str, logical_date: datetime, parameters: Mapping[str, Any]
) -> TaskSpec:
    context = render_context(
        pipeline=spec.name, task=task.name, run_id=run_id, logical_date=logical_date, parameters=parameters
    )
    args = []
    for number, argument in enumerate(task.args, start=1):
        try:
            args.append(render_text(argument, context))
        except TemplateError as exc:
            raise TemplateError(f"task {task.name}, argument {number}: {exc}") from exc
    return replace(task, args=tuple(args))
