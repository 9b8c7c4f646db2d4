"""Renders templates. Strict: an unknown name is an error, not an empty text.

It runs in the template helper only: see `nimbus.templates`.
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
from nimbus.templates.names import is_plain
from nimbus.templates.sandbox import Sandbox

LONGEST_ARGUMENT = 64 * 1024
"""Limit of one rendered argument, in characters. Linux allows 128 KiB for one argument."""
LONGEST_ARGUMENTS = 4 << 20
"""Limit of all arguments of a run, in characters. The compressed plan has its own limit."""
MOST_KEPT = 1 << 20
"""Limit of templates kept compiled, in characters. A compiled one takes about 100 times its length."""

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
"""Errors that a template's text or values can cause."""


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
            context: The result of `render_context`.
            longest: Limit of the result, in characters. Rendering stops there.

        Raises:
            TemplateError: bad syntax, an unknown name, a forbidden operation, or a result that is too long.
        """
        if is_plain(text) and len(text) <= longest:
            return text
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

    `dates`: from `nimbus.templates.dates.date_values`. `results`: results of tasks that this one reads.
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
        renderer: Keeps compiled templates.
        texts: The arguments of all tasks.
        run: `pipeline`, `run_id`, `logical_date` (ISO), `data_interval` (two ISO dates, or None), `timezone`,
            `parameters`, `variables`; `tasks`: the task's name for each text; `results`: by task, if any
            gave one; `item`: of the parameters of a child run.
        at: Called with the number of each text before it is rendered.

    Raises:
        TemplateError: one text is at fault, or all together are too long.
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
                f"put a long text into a file"
            )
    return rendered


def _times(interval: Sequence[str]) -> tuple[datetime, datetime]:
    start, end = interval
    return datetime.fromisoformat(start), datetime.fromisoformat(end)
