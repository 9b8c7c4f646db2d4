"""Checks templates without rendering them, so that typing errors are found when a pipeline is written.

It runs in the template helper only, because compiling a template computes its constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TypeGuard

from jinja2 import TemplateSyntaxError, meta, nodes
from jinja2.sandbox import SandboxedEnvironment

from nimbus.domain.spelling import closest
from nimbus.templates.answers import Fault
from nimbus.templates.names import DATES, tasks_read, variables_in
from nimbus.templates.rendering import BROKEN
from nimbus.templates.sandbox import Sandbox

LONGEST_TEMPLATE = 4096
"""Limit of a written argument, in characters."""
_FIELDS: dict[str, tuple[str, ...]] = {
    "run": ("id", "logical_date"),
    "pipeline": ("name",),
    "task": ("name",),
}
NAMES = ("params", "vars", *_FIELDS, *DATES)
"""Names that templates can use. `nimbus.templates.rendering.render_context` provides them."""

_NO_MORE: Mapping[str, tuple[str, ...] | None] = MappingProxyType({})
_sandbox = Sandbox()
_sql = SandboxedEnvironment()
"""For files, with Jinja's usual checks. The driver renders them, where they affect only their task."""


def argument_faults(
    text: str, parameters: Collection[str], item: Collection[str] | None = None
) -> list[Fault]:
    """Faults of a task's argument: syntax, unknown names, statements, unknown filters."""
    if len(text) > LONGEST_TEMPLATE:
        return [Fault(f"is longer than {LONGEST_TEMPLATE} characters; put it into a file")]
    parsed = _parsed(_sandbox, text)
    if isinstance(parsed, Fault):
        return [parsed]
    for statement in parsed.find_all(nodes.Stmt):
        if not isinstance(statement, nodes.Output | nodes.If):
            return [Fault("may use {{ ... }} and {% if %} only; compute anything else in the task")]
    more: dict[str, tuple[str, ...] | None] = {"tasks": None}
    if item is not None:
        more["item"] = tuple(item)
    names = _unknown_names(parsed, parameters, more)
    return [*names, *_result_faults(parsed, tasks_read(text)), *_variable_faults(parsed, variables_in(text))]


def file_faults(text: str, parameters: Collection[str]) -> list[Fault]:
    """Faults of the template in a SQL file, with lines: syntax, unknown names."""
    parsed = _parsed(_sql, text)
    if isinstance(parsed, Fault):
        return [parsed]
    return [*_unknown_names(parsed, parameters), *_variable_faults(parsed, variables_in(text))]


def _parsed(environment: SandboxedEnvironment, text: str) -> nodes.Template | Fault:
    """Parse and compile a text. Compiling finds more faults, such as an unknown filter."""
    try:
        tree = environment.parse(text)
        for used in tree.find_all(nodes.Filter):
            if used.name not in environment.filters:
                near = closest(used.name, environment.filters)
                return Fault(f"there is no filter {used.name!r}", near, used.lineno)
        environment.compile(text)
    except TemplateSyntaxError as exc:
        return Fault(f"is not a template: {exc.message}", None, exc.lineno)
    except BROKEN as exc:
        return Fault(f"is not a template: {type(exc).__name__}; is it nested too deep?")
    return tree


def _result_faults(tree: nodes.Template, found: Collection[str]) -> Iterator[Fault]:
    """Every use of `tasks` that is not `tasks.NAME.result` or `tasks['NAME'].result`.

    `found`: the result of `tasks_read`. A use that it misses, such as after a quoted `}}`, is a fault, too.
    """
    plain = {
        id(named.node)
        for result in tree.find_all(nodes.Getattr)
        if result.attr == "result"
        and (named := result.node)
        and _is_lookup(named)
        and _name_in(named) in found
    }
    for name in tree.find_all(nodes.Name):
        if name.name == "tasks" and id(name) not in plain:
            yield Fault(
                "`tasks` gives results of other tasks: write tasks.NAME.result.KEY, or "
                "tasks['NAME'].result.KEY for a name with '-'",
                None,
                name.lineno,
            )


def _variable_faults(tree: nodes.Template, found: Collection[str]) -> Iterator[Fault]:
    """Every use of `vars` without a constant name: a run keeps the variables that it names.

    `found`: the result of `variables_in`.
    """
    plain = {
        id(used.node)
        for kind in (nodes.Getattr, nodes.Getitem)
        for used in tree.find_all(kind)
        if _is_lookup(used) and _name_in(used) in found
    }
    for name in tree.find_all(nodes.Name):
        if name.name == "vars" and id(name) not in plain:
            yield Fault("`vars` has the cluster's variables: write vars.NAME", None, name.lineno)


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
    tree: nodes.Template,
    parameters: Collection[str],
    more: Mapping[str, tuple[str, ...] | None] = _NO_MORE,
) -> Iterator[Fault]:
    """`more`: names besides `NAMES`, with their fields; None: their fields are checked elsewhere."""
    said = {name: names for name, names in more.items() if names is not None}
    fields = {**_FIELDS, **said, "params": tuple(parameters)}
    known = (*NAMES, *more)
    for name in sorted(meta.find_undeclared_variables(tree) - {*known, "range"}):
        if name in parameters:
            yield Fault(
                f"there is no {name!r}; parameters are in `params`", f"params.{name}", _line(tree, name)
            )
        else:
            yield Fault(f"there is no {name!r}", closest(name, known), _line(tree, name))
    for owner, name, line in _lookups(tree):
        if name not in fields.get(owner, (name,)):
            near = closest(name, fields[owner])
            kind = f"no parameter {name!r}" if owner == "params" else f"no {owner}.{name}"
            yield Fault(f"there is {kind}", None if near is None else f"{owner}.{near}", line)


def _lookups(tree: nodes.Template) -> Iterator[tuple[str, str, int]]:
    """Each `params.x`, `params["x"]`, `run.x`, ...: the object, the name, and the line."""
    guarded = _asked_whether_defined(tree)
    for dotted in tree.find_all(nodes.Getattr):
        if isinstance(dotted.node, nodes.Name) and id(dotted) not in guarded:
            yield dotted.node.name, dotted.attr, dotted.lineno
    for indexed in tree.find_all(nodes.Getitem):
        if isinstance(indexed.node, nodes.Name) and isinstance(indexed.arg, nodes.Const):
            yield indexed.node.name, str(indexed.arg.value), indexed.lineno


def _asked_whether_defined(tree: nodes.Template) -> frozenset[int]:
    """Ids of guarded lookups, as in `params.x is defined`: they may use unknown names."""
    tests = tree.find_all(nodes.Test)
    return frozenset(id(test.node) for test in tests if test.name in {"defined", "undefined"})


def _line(tree: nodes.Template, name: str) -> int | None:
    return next((found.lineno for found in tree.find_all(nodes.Name) if found.name == name), None)
