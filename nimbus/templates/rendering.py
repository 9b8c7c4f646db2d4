"""Renders templates. Strict: a name that is not there is an error, not an empty text.

Runs in the template helper only: see `nimbus.templates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from jinja2 import Template
from jinja2 import TemplateError as JinjaError

from nimbus.templates.answers import TemplateError, short
from nimbus.templates.dates import date_values
from nimbus.templates.sandbox import Sandbox

LONGEST_ARGUMENT = 64 * 1024
"""Characters of one rendered argument. Linux gives one argument 128 KiB."""
LONGEST_ARGUMENTS = 4 << 20
"""Characters of all arguments of a run. The plan that holds them is bounded when it is compressed."""
MOST_KEPT = 1 << 20
"""Characters of templates that are kept compiled; a compiled one takes about a hundred times its length."""

BROKEN = (
    JinjaError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,  # also of Python's parser, which reports its own limit so
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a template can end in, all of it the fault of its text or its values."""


_NONE: Mapping[str, str] = MappingProxyType({})


class Renderer:
    """Renders texts, and keeps them compiled: compiling takes 0.5 ms, rendering a fortieth of that."""

    def __init__(self) -> None:
        self._environment = Sandbox()
        self._compiled: dict[str, Template] = {}
        self._kept = 0

    def render(self, text: str, context: Mapping[str, Any], longest: int = LONGEST_ARGUMENT) -> str:
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
            for part in self._template(text).generate(context):
                size += len(part)
                if size > longest:
                    raise TemplateError(f"template {short(text)} renders to more than {longest} characters")
                parts.append(part)
        except BROKEN as exc:
            reason = str(exc) or type(exc).__name__
            raise TemplateError(f"template {short(text)} cannot be rendered: {reason}") from exc
        return "".join(parts)

    def _template(self, text: str) -> Template:
        template = self._compiled.get(text)
        if template is None:
            template = self._environment.from_string(text)
            if self._kept + len(text) > MOST_KEPT:
                self._compiled.clear()
                self._kept = 0
            self._compiled[text] = template
            self._kept += len(text)
        return template


def render_context(
    *,
    pipeline: str,
    task: str,
    run_id: str,
    logical_date: datetime,
    parameters: Mapping[str, Any],
    dates: Mapping[str, Any],
    variables: Mapping[str, str] = _NONE,
    results: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The names that a template may use.

    `dates`: as `nimbus.templates.dates.date_values` makes them. `results`: of tasks that this one reads.
    """
    return {
        "params": dict(parameters),
        "vars": dict(variables),
        "run": {"id": run_id, "logical_date": logical_date},
        **dates,
        "pipeline": {"name": pipeline},
        "task": {"name": task},
        **({} if results is None else {"tasks": results}),
    }


def render_arguments(
    renderer: Renderer, texts: Sequence[str], run: Mapping[str, Any], at: Callable[[int], object]
) -> list[str]:
    """Render all arguments of a run.

    Args:
        renderer: Keeps them compiled.
        texts: The arguments of all tasks.
        run: `pipeline`, `run_id`, `logical_date` (ISO), `data_interval` (two ISO dates, or None), `timezone`,
            `parameters`, `variables`; `tasks`: the task's name for each text; `results`: by task, if any
            gave one; `item`: of the parameters of a child run.
        at: Called with the number of each text before it is rendered.

    Raises:
        TemplateError: of one text, or of all together.
    """
    logical_date, interval = datetime.fromisoformat(run["logical_date"]), run["data_interval"]
    whole = {
        "pipeline": run["pipeline"],
        "run_id": run["run_id"],
        "logical_date": logical_date,
        "parameters": run["parameters"],
        "variables": run["variables"],
        "dates": date_values(logical_date, interval and _times(interval), run["timezone"]),
        "results": run.get("results"),
    }
    item = {"item": run["item"]} if "item" in run else {}
    rendered = []
    size = 0
    for number, (text, task) in enumerate(zip(texts, run["tasks"], strict=True)):
        at(number)
        try:
            rendered.append(renderer.render(text, {**render_context(task=task, **whole), **item}))
        except TemplateError as exc:
            raise TemplateError(str(exc), number) from exc
        size += len(rendered[-1])
        if size > LONGEST_ARGUMENTS:
            raise TemplateError(
                f"the arguments of all tasks render to more than {LONGEST_ARGUMENTS} characters; "
                f"put what is long into a file"
            )
    return rendered


def _times(interval: Sequence[str]) -> tuple[datetime, datetime]:
    start, end = interval
    return datetime.fromisoformat(start), datetime.fromisoformat(end)
