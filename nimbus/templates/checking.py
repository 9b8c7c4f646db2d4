"""Checks templates without rendering them, so that typing errors are found when a pipeline is written.

It only parses: Jinja's compiler would compute constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard, TypeVar

from jinja2 import TemplateSyntaxError, nodes
from jinja2.sandbox import SandboxedEnvironment

from nimbus.domain.wording import closest
from nimbus.templates.evaluation import STATEMENTS
from nimbus.templates.names import (
    ANY_FIELD,
    DATES,
    TemplateError,
    TemplateFault,
    is_plain,
    tasks_read,
    variables_in,
)
from nimbus.templates.rendering import BROKEN
from nimbus.templates.sandbox import Sandbox

LONGEST_TEMPLATE = 4096
"""Limit of a written argument, in characters."""
MAX_TEXT = 512 << 10
"""Limit of all templates that are rendered or checked at once, in characters, without texts that have no `{{`
or `{%`. To parse so many takes a second."""
_FIELDS: dict[str, tuple[str, ...]] = {
    "run": ("id", "logical_date"),
    "pipeline": ("name",),
    "task": ("name",),
}
MAX_SHOWN = 50
"""Limit of the suggestions of one definition: no message shows more problems."""
NAMES = ("params", "vars", "range", *_FIELDS, *DATES)
"""Names that templates can use. `nimbus.templates.rendering.render_context` provides them."""
_RELEASE_ROOT = "release_root"

_Parts = Sequence[nodes.Node]
"""All nodes of a template. They are collected once, because each walk over the tree takes time."""
_Node = TypeVar("_Node", bound=nodes.Node)
_sandbox = Sandbox()
_sql = SandboxedEnvironment()
"""For files, with Jinja's usual checks. The driver renders them, where they affect only their task."""


class Names:
    """What the templates of one definition can use, and suggestions for the first wrong names among them."""

    def __init__(self, parameters: Collection[str]) -> None:
        self.parameters = parameters
        self._suggestions = MAX_SHOWN

    def near(self, word: str, known: Collection[str]) -> str | None:
        """The known name that is probably meant; None for all after the first ones, because it takes long."""
        self._suggestions -= 1
        return closest(word, known) if self._suggestions >= 0 else None


def check_size(texts: Iterable[str]) -> None:
    """Raise TemplateError if texts that are checked or rendered at once are too long."""
    size = sum(len(text) for text in texts if not is_plain(text))
    if size > MAX_TEXT:
        raise TemplateError(f"the templates have {size} characters, {MAX_TEXT} is the most")


def argument_faults(
    texts: Sequence[str],
    parameters: Collection[str],
    items: Sequence[Collection[str] | None] | None = None,
) -> list[list[TemplateFault]]:
    """Faults of each argument: syntax, unknown names, statements, unknown filters.

    `items`: names that `item` has in each text; None: there is no `item`.
    """
    try:
        check_size(texts)
    except TemplateError as exc:
        return [[TemplateFault(str(exc))] if number == 0 else [] for number in range(len(texts))]
    names = Names(parameters)
    fields = [None] * len(texts) if items is None else items
    return [_argument_faults(text, names, item) for text, item in zip(texts, fields, strict=True)]


def _argument_faults(text: str, names: Names, item: Collection[str] | None) -> list[TemplateFault]:
    if len(text) > LONGEST_TEMPLATE:
        return [TemplateFault(f"is longer than {LONGEST_TEMPLATE} characters; put it into a file")]
    if is_plain(text):
        return []
    parsed = _parsed(_sandbox, text, names)
    if isinstance(parsed, TemplateFault):
        return [parsed]
    parts = list(parsed.find_all(nodes.Node))
    for statement in _all(parts, nodes.Stmt):
        if not isinstance(statement, nodes.Output | nodes.If):
            return [TemplateFault(STATEMENTS)]
    more: dict[str, tuple[str, ...] | None] = {"tasks": None}
    if item is not None:
        more["item"] = None if ANY_FIELD in item else tuple(item)
    unknown = _unknown_names(parts, names, more)
    results = _result_faults(parts, tasks_read(text))
    return [*unknown, *results, *_variable_faults(parts, variables_in(text))]


def file_faults(text: str, parameters: Collection[str]) -> list[TemplateFault]:
    """Faults of the template in a SQL file, with lines: syntax, unknown names."""
    names = Names(parameters)
    parsed = _parsed(_sql, text, names)
    if isinstance(parsed, TemplateFault):
        return [parsed]
    parts = list(parsed.find_all(nodes.Node))
    unknown = _unknown_names(parts, names, {_RELEASE_ROOT: None})
    return [*unknown, *_variable_faults(parts, variables_in(text))]


def _all(parts: _Parts, kind: type[_Node]) -> Iterator[_Node]:
    return (part for part in parts if isinstance(part, kind))


def _parsed(environment: SandboxedEnvironment, text: str, names: Names) -> nodes.Template | TemplateFault:
    """Parse a text, and look for unknown filters and tests."""
    try:
        tree = environment.parse(text)
        for used in tree.find_all((nodes.Filter, nodes.Test)):
            kind, known = (
                ("filter", environment.filters)
                if isinstance(used, nodes.Filter)
                else ("test", environment.tests)
            )
            if used.name not in known:
                near = names.near(used.name, known)
                return TemplateFault(f"there is no {kind} {used.name!r}", near, used.lineno)
    except TemplateSyntaxError as exc:
        return TemplateFault(f"is not a template: {exc.message}", None, exc.lineno)
    except BROKEN as exc:
        return TemplateFault(f"is not a template: {type(exc).__name__}; is it nested too deep?")
    return tree


def _result_faults(parts: _Parts, names: Collection[str]) -> Iterator[TemplateFault]:
    """Every use of `tasks` that is not `tasks.NAME.result` or `tasks['NAME'].result`.

    `names`: the result of `tasks_read`. A use that it misses, such as after a quoted `}}`, is a fault, too.
    """
    plain = {
        id(named.node)
        for result in _all(parts, nodes.Getattr)
        if result.attr == "result"
        and (named := result.node)
        and _is_lookup(named)
        and _name_in(named) in names
    }
    for name in _all(parts, nodes.Name):
        if name.name == "tasks" and id(name) not in plain:
            yield TemplateFault(
                "`tasks` gives results of other tasks: write tasks.NAME.result.KEY, or "
                "tasks['NAME'].result.KEY for a name with '-'",
                None,
                name.lineno,
            )


def _variable_faults(parts: _Parts, names: Collection[str]) -> Iterator[TemplateFault]:
    """Every use of `vars` without a constant name: a run keeps the variables that it names.

    `names`: the result of `variables_in`.
    """
    plain = {
        id(used.node)
        for kind in (nodes.Getattr, nodes.Getitem)
        for used in _all(parts, kind)
        if _is_lookup(used) and _name_in(used) in names
    }
    for name in _all(parts, nodes.Name):
        if name.name == "vars" and id(name) not in plain:
            yield TemplateFault("`vars` has the cluster's variables: write vars.NAME", None, name.lineno)


def _is_lookup(node: nodes.Node) -> TypeGuard[nodes.Getattr | nodes.Getitem]:
    """True when a node looks up a constant name."""
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str)
    return isinstance(node, nodes.Getattr)


def _name_in(lookup: nodes.Getattr | nodes.Getitem) -> str:
    if isinstance(lookup, nodes.Getattr):
        return lookup.attr
    return str(lookup.arg.value) if isinstance(lookup.arg, nodes.Const) else ""


def _unknown_names(
    parts: _Parts, names: Names, more: Mapping[str, tuple[str, ...] | None]
) -> Iterator[TemplateFault]:
    """`more`: names besides `NAMES`, with their fields; None: their fields are checked elsewhere."""
    said = {name: its_fields for name, its_fields in more.items() if its_fields is not None}
    fields: dict[str, Collection[str]] = {**_FIELDS, **said, "params": names.parameters}
    known = (*NAMES, *more)
    used = {name.name for name in _all(parts, nodes.Name)}
    unknown = sorted(used - {*known, *_declared(parts)})
    lines = _lines(parts) if unknown else {}
    for name in unknown:
        if name in names.parameters:
            yield TemplateFault(
                f"there is no {name!r}; parameters are in `params`", f"params.{name}", lines.get(name)
            )
        elif name == _RELEASE_ROOT:  # elsewhere the text was protected by `nimbus.templates.names.kept`
            yield TemplateFault(
                "only the host of a task knows this path: write {{ release_root }}, without more, in args, "
                "command, spark.conf or a SQL file",
                None,
                lines.get(name),
            )
        else:
            yield TemplateFault(f"there is no {name!r}", names.near(name, known), lines.get(name))
    for owner, name, line in _lookups(parts):
        if name not in fields.get(owner, (name,)):
            near = names.near(name, fields[owner])
            kind = f"no parameter {name!r}" if owner == "params" else f"no {owner}.{name}"
            yield TemplateFault(f"there is {kind}", None if near is None else f"{owner}.{near}", line)


def _declared(parts: _Parts) -> Iterator[str]:
    """Names that statements of a SQL file declare somewhere, and those that Jinja has in its blocks."""
    yield from (name.name for name in _all(parts, nodes.Name) if name.ctx != "load")
    yield from (macro.name for macro in _all(parts, nodes.Macro))
    if any(isinstance(part, nodes.For | nodes.Macro | nodes.CallBlock) for part in parts):
        yield from ("loop", "caller", "varargs", "kwargs")


def _lookups(parts: _Parts) -> Iterator[tuple[str, str, int]]:
    """Each `params.x`, `params["x"]`, `run.x`, ...: the object, the name, and the line."""
    guarded = _asked_whether_defined(parts)
    for dotted in _all(parts, nodes.Getattr):
        if isinstance(dotted.node, nodes.Name) and id(dotted) not in guarded:
            yield dotted.node.name, dotted.attr, dotted.lineno
    for indexed in _all(parts, nodes.Getitem):
        if isinstance(indexed.node, nodes.Name) and isinstance(indexed.arg, nodes.Const):
            yield indexed.node.name, str(indexed.arg.value), indexed.lineno


def _asked_whether_defined(parts: _Parts) -> frozenset[int]:
    """Ids of guarded lookups, as in `params.x is defined`: they may use unknown names."""
    tests = _all(parts, nodes.Test)
    return frozenset(id(test.node) for test in tests if test.name in {"defined", "undefined"})


def _lines(parts: _Parts) -> dict[str, int]:
    """The first line of each name."""
    lines: dict[str, int] = {}
    for name in _all(parts, nodes.Name):
        lines.setdefault(name.name, name.lineno)
    return lines
