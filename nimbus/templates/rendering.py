"""Renders templates. Strict: an unknown name is an error, not an empty text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError as JinjaError
from jinja2 import nodes
from jinja2.sandbox import safe_range

from nimbus.domain.runs.run import RunHeader
from nimbus.templates.dates import date_values
from nimbus.templates.evaluation import Budget, Evaluation
from nimbus.templates.names import TemplateError, is_plain, short
from nimbus.templates.sandbox import Sandbox

LONGEST_ARGUMENT = 64 * 1024
"""Limit of one rendered argument, in characters. Linux allows 128 KiB for one argument."""
LONGEST_ARGUMENTS = 4 << 20
"""Limit of all arguments of a run, in characters. The compressed plan has its own limit."""
MAX_KEPT = 128 << 10
"""Limit of templates kept parsed, in characters. A parsed one takes about 100 times its length."""

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


class Renderer:
    """Renders texts, and keeps them parsed. Any thread."""

    def __init__(self) -> None:
        self._sandbox = Sandbox()
        self._parsed: dict[str, nodes.Template] = {}
        self._kept = 0

    def render(self, text: str, context: Mapping[str, Any], budget: Budget) -> str:
        """Render one text.

        Args:
            text: The template.
            context: The result of `render_context`.
            budget: Pays for its operations.

        Raises:
            TemplateError: bad syntax, an unknown name, a forbidden operation, or a result that is too long.
        """
        if is_plain(text) and len(text) <= LONGEST_ARGUMENT:
            return text
        parts: list[str] = []
        size = 0
        try:
            for part in Evaluation(self._sandbox, context, budget).texts(self._tree(text).body):
                size += len(part)
                if size > LONGEST_ARGUMENT:
                    raise TemplateError(
                        f"template {short(text)} renders to more than {LONGEST_ARGUMENT} characters"
                    )
                parts.append(part)
        except BROKEN as exc:
            reason = str(exc) or type(exc).__name__
            raise TemplateError(f"template {short(text)} cannot be rendered: {reason}") from exc
        return "".join(parts)

    def _tree(self, text: str) -> nodes.Template:
        tree = self._parsed.get(text)
        if tree is None:
            tree = self._sandbox.parse(text)
            if self._kept + len(text) > MAX_KEPT:
                self._parsed.clear()
                self._kept = 0
            self._parsed[text] = tree
            self._kept += len(text)
        return tree


def render_context(run: RunHeader, **more: Any) -> dict[str, Any]:
    """The names that the templates of a run may use, besides `task`, which differs for each.

    Dates have offsets without names, as in the run's record. `more`: `tasks`, the results of tasks; `item`,
    for the parameters of a child run.
    """
    interval, logical_date = run.data_interval, _with_offset(run.logical_date)
    ends = None if interval is None else (_with_offset(interval.start), _with_offset(interval.end))
    return {
        "range": safe_range,
        "params": dict(run.parameters),
        "vars": dict(run.variables),
        "run": {"id": run.id, "logical_date": logical_date},
        **date_values(logical_date, ends, run.timezone),
        "pipeline": {"name": run.pipeline},
        **more,
    }


def _with_offset(moment: datetime) -> datetime:
    return datetime.fromisoformat(moment.isoformat())


def render_arguments(
    renderer: Renderer, texts: Sequence[str], tasks: Sequence[str], context: Mapping[str, Any]
) -> list[str]:
    """Render all arguments of a run. `tasks`: the task's name for each text.

    Raises TemplateError: one text is at fault, or all together are too long.
    """
    budget = Budget(sum(map(len, texts)))
    rendered = []
    size = 0
    for number, (text, task) in enumerate(zip(texts, tasks, strict=True)):
        try:
            rendered.append(renderer.render(text, {**context, "task": {"name": task}}, budget))
        except TemplateError as exc:
            raise TemplateError(str(exc), number) from exc
        size += len(rendered[-1])
        if size > LONGEST_ARGUMENTS:
            raise TemplateError(
                f"the arguments of all tasks render to more than {LONGEST_ARGUMENTS} characters; "
                f"put a long text into a file"
            )
    return rendered
