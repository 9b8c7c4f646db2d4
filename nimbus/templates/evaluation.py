"""Evaluates templates over Jinja's syntax tree, without its compiler and without loops, at a bounded cost.

A template may come from anybody, and is evaluated in the process that leads. So each operation first pays for
what it takes, by `nimbus.templates.sandbox.weight`, and is refused if it takes more than `LONGEST`; what
`*`, `**` and `%` would make is calculated before it is made. No call takes longer than a tenth of a second,
and all templates of a run together are bounded by their budget
(docs/adr/0054-templates-are-evaluated-at-a-bounded-cost.md).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError

from nimbus.templates.sandbox import LONGEST, Sandbox, check_filled, check_format, shown, weight

BUDGET = 32 * LONGEST
"""What all operations for one run may take together, in characters and items."""
BUDGET_PER_CHARACTER = 16
"""More for each character of its templates."""
_LARGEST_EXPONENT = 64
_LARGEST_BASE = 10**9
_LARGEST_INTEGER_BITS = 4096
_RETURN_AN_ARGUMENT = frozenset({"d", "default", "get"})
"""Filters and methods that do not read their arguments."""
_SLOW, _SLOWER = frozenset({"max", "min", "sort", "unique"}), 8
"""Filters that call Python for each item, and how much more they pay."""
STATEMENTS = "may use {{ ... }} and {% if %} only; compute anything else in the task"

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = Sandbox.default_binop_table
_UNARY: Mapping[str, Callable[[Any], Any]] = Sandbox.default_unop_table | {"not": operator.not_}
_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


class Budget:
    """What is left for the operations of one run."""

    def __init__(self, characters: int) -> None:
        self._left = BUDGET + BUDGET_PER_CHARACTER * characters

    def take(self, *values: Any, times: int = 1) -> None:
        """Pay for an operation, before it is done. Raises SecurityError if it takes too much."""
        size = sum(map(weight, values))
        if size > LONGEST:
            raise SecurityError(f"an operation takes more than {LONGEST} characters and items")
        self._left -= size * times
        if self._left < 0:
            raise SecurityError("the operations of all templates together take too much")


class Evaluation:
    """The values of one template.

    Args:
        sandbox: What templates may do.
        names: The names that it may use.
        budget: Pays for its operations.

    All methods raise `nimbus.templates.rendering.BROKEN`.
    """

    def __init__(self, sandbox: Sandbox, names: Mapping[str, Any], budget: Budget) -> None:
        self._sandbox, self._names, self._budget = sandbox, names, budget

    def texts(self, body: Iterable[nodes.Node]) -> Iterator[str]:
        """The parts of the rendered text."""
        for node in body:
            match node:
                case nodes.Output():
                    for part in node.nodes:
                        yield (
                            part.data
                            if isinstance(part, nodes.TemplateData)
                            else str(shown(self.value(part)))
                        )
                case nodes.If():
                    ways = ((way.test, way.body) for way in (node, *node.elif_))
                    yield from self.texts(next((of for test, of in ways if self.value(test)), node.else_))
                case _:
                    raise SecurityError(STATEMENTS)

    def value(self, node: nodes.Node) -> Any:
        """The value of an expression."""
        match node:
            case nodes.Const():
                return node.value
            case nodes.Name():
                return self._names.get(node.name, self._sandbox.undefined(name=node.name))
            case nodes.Getattr():
                return self._sandbox.getattr(self.value(node.node), node.attr)
            case nodes.Getitem():
                return self._item(self.value(node.node), node.arg)
            case nodes.Filter() | nodes.Test() | nodes.Call():
                return self._called(node)
            case nodes.And() | nodes.Or() | nodes.CondExpr():
                return self._chosen(node)
            case nodes.Compare():
                return self._compared(node)
            case nodes.BinExpr():
                return self._binary(node.operator, self.value(node.left), self.value(node.right))
            case _:
                return self._made(node)

    def _chosen(self, node: nodes.And | nodes.Or | nodes.CondExpr) -> Any:
        match node:
            case nodes.And():
                return self.value(node.left) and self.value(node.right)
            case nodes.Or():
                return self.value(node.left) or self.value(node.right)
            case nodes.CondExpr() if self.value(node.test):
                return self.value(node.expr1)
            case nodes.CondExpr():
                missing = self._sandbox.undefined("an `if` without `else` has no value where it is false")
                return missing if node.expr2 is None else self.value(node.expr2)

    def _made(self, node: nodes.Node) -> Any:
        match node:
            case nodes.UnaryExpr():
                return _UNARY[node.operator](self.value(node.node))
            case nodes.Concat():
                return "".join(map(str, self._taken(node.nodes)))
            case nodes.List():
                return self._taken(node.items)
            case nodes.Tuple():
                return tuple(self._taken(node.items))
            case nodes.Dict():
                keys = self._taken(pair.key for pair in node.items)
                return dict(zip(keys, self._taken(pair.value for pair in node.items), strict=True))
            case _:
                raise SecurityError(STATEMENTS)

    def _taken(self, parts: Iterable[nodes.Node]) -> list[Any]:
        values = [self.value(part) for part in parts]
        self._budget.take(*values)
        return values

    def _item(self, owner: Any, arg: nodes.Node) -> Any:
        if not isinstance(arg, nodes.Slice):
            return self._sandbox.getitem(owner, self.value(arg))
        self._budget.take(owner)
        bounds = (arg.start, arg.stop, arg.step)
        return owner[slice(*(None if bound is None else self.value(bound) for bound in bounds))]

    def _compared(self, node: nodes.Compare) -> Any:
        left = result = self.value(node.expr)
        for operand in node.ops:
            right = self.value(operand.expr)
            self._budget.take(left, right)
            result = _COMPARED[operand.op](left, right)
            if not result:
                break
            left = right
        return result

    def _called(self, node: nodes.Filter | nodes.Test | nodes.Call) -> Any:
        if node.dyn_args is not None or node.dyn_kwargs is not None or node.node is None:
            raise SecurityError("* and ** are not available")
        value = self.value(node.node)
        args = [self.value(arg) for arg in node.args]
        named = {str(keyword.key): self.value(keyword.value) for keyword in node.kwargs}
        name = getattr(value, "__name__", "") if isinstance(node, nodes.Call) else node.name
        owner = getattr(value, "__self__", None) if isinstance(node, nodes.Call) else value
        given = (*args, *named.values())
        # `strip` compares each character with each, `join` and `replace` repeat their arguments.
        times = 1 if name in _RETURN_AN_ARGUMENT else weight(given)
        self._budget.take(owner, times=times * _SLOWER if name in _SLOW else times)
        match node:
            case nodes.Filter():
                result = self._sandbox.call_filter(name, value, args, named)
            case nodes.Test():
                result = self._sandbox.call_test(name, value, args, named)
            case nodes.Call():
                if name == "strftime":
                    check_format("".join(map(str, given)))
                result = value(*args, **named)
        return list(result) if isinstance(result, Iterator) else result

    def _binary(self, symbol: str, left: Any, right: Any) -> Any:
        self._budget.take(left, right)
        numbers = [number for number in (left, right) if isinstance(number, int)]
        if any(number.bit_length() > _LARGEST_INTEGER_BITS for number in numbers):
            raise SecurityError("a number is too large")
        if symbol == "**" and (abs(right) > _LARGEST_EXPONENT or abs(left) > _LARGEST_BASE):
            raise SecurityError(f"the power {left} ** {right} is too large")
        if symbol == "*" and len(numbers) == 1:
            sequence, times = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(sequence, Sized) and weight(sequence) * times > LONGEST:
                raise SecurityError(f"a text or list repeated {times} times is too long")
        if symbol == "%" and isinstance(left, str):
            check_filled(left, right)
        return _BINARY[symbol](left, right)
