"""Jinja2 with an allowlist of calls, and limits on the result of each operation.

These limits stop most costly templates at once, and name the operation. They do not limit a whole template,
because a list can produce far more text than it contains. The limits of the process do that, see
`nimbus.templates.helper`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

from jinja2 import StrictUndefined
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

LONGEST = 1 << 20
"""Limit of the result of one operation, in characters or items."""
_LARGEST_EXPONENT = 64
_LARGEST_BASE = 10**9
_LARGEST_PRECISION = 20
_LONGEST_FORMAT = 1024


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_METHODS = {
    str: _words(
        """capitalize endswith isalnum isalpha isdigit islower isupper lower lstrip partition removeprefix
        removesuffix rpartition rsplit rstrip split splitlines startswith strip title upper"""
    ),
    date: _words(  # datetime too
        """date day hour isocalendar isoformat isoweekday minute month second strftime timestamp
        weekday year"""
    ),
    dict: _words("get items keys values"),
}
_WIDE = re.compile(r"%[^a-zA-Z%]*(?:\d{4}|\*)")
_PLAIN_FILTERS = _words(
    """abs capitalize count d default first float int last length list lower max min reverse sort sum
    title trim unique upper"""
)


class Sandbox(SandboxedEnvironment):
    """A template environment that limits the cost of each operation."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, keep_trailing_newline=True, finalize=shown)
        ranges = self.globals["range"]
        self.globals.clear()
        self.globals["range"] = ranges
        self.filters = {name: FILTERS[name] for name in _PLAIN_FILTERS} | _BOUNDED_FILTERS

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up a key first, then a method: `result.items` is the key `items` of a result that has it."""
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow only cheap methods, such as `strftime` and `split`, but not `ljust` and `format`."""
        allowed = any(isinstance(obj, kind) and attr in names for kind, names in _METHODS.items())
        return allowed and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Disable Jinja's special case for `str.format`, whose widths have no limit."""

    def call(self, context: Context, function: Any, /, *args: Any, **names: Any) -> Any:
        """Prevent `strftime` results of megabytes; see the base class."""
        if getattr(function, "__name__", "") == "strftime":
            check_format(str(args[0]) if args else "")
        return super().call(context, function, *args, **names)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse products, powers and formats with huge results, before they are computed."""
        if operator == "**":
            if abs(right) > _LARGEST_EXPONENT or abs(left) > _LARGEST_BASE:
                raise SecurityError(f"the power {left} ** {right} is too large")
        elif operator == "*":
            _check_product(left, right)
            _check_product(right, left)
        elif isinstance(left, str):
            check_format(left)
        return super().call_binop(context, operator, left, right)


def shown(value: Any) -> Any:
    """A value as templates write it: booleans and lists as in JSON, and as in the environment of tasks."""
    return _tojson(value) if isinstance(value, (bool, list)) else value


def _check_product(sequence: Any, times: Any) -> None:
    if (
        isinstance(sequence, (str, list, tuple))
        and isinstance(times, int)
        and len(sequence) * times > LONGEST
    ):
        raise SecurityError(f"a text or list repeated {times} times is too long")


def check_format(text: str) -> None:
    """Raise SecurityError for a pattern whose result could have megabytes."""
    if len(text) > _LONGEST_FORMAT:
        raise SecurityError(f"a format may have {_LONGEST_FORMAT} characters at most")
    if _WIDE.search(text):
        raise SecurityError("a width in a format may have three digits at most")


def _format(text: str, *values: Any, **names: Any) -> str:
    check_format(str(text))
    return str(text) % (names or values)


def _join(values: Iterable[Any], separator: str = "") -> str:
    parts = [str(shown(value)) for value in values]
    if sum(map(len, parts)) + len(separator) * len(parts) > LONGEST:
        raise SecurityError("the joined text is too long")
    return separator.join(parts)


def _replace(text: str, old: str, new: str) -> str:
    text, old, new = str(text), str(old), str(new)
    if len(text) + text.count(old) * len(new) > LONGEST:
        raise SecurityError("the text is too long after the replacement")
    return text.replace(old, new)


def _round(value: float, precision: int = 0) -> float:
    if abs(precision) > _LARGEST_PRECISION:
        raise SecurityError(f"a precision of {precision} digits is too large")
    return round(value, precision)


def _tojson(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


_BOUNDED_FILTERS: dict[str, Callable[..., Any]] = {
    "format": _format,
    "join": _join,
    "replace": _replace,
    "string": lambda value: str(shown(value)),
    "round": _round,
    "tojson": _tojson,
}
