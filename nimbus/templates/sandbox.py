"""What templates may do: a closed list of filters and methods, and the limits of what each may make.

`nimbus.templates.evaluation` evaluates templates with it, in a scheduler, so no operation may take long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

from jinja2 import StrictUndefined, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.sandbox import SandboxedEnvironment

LONGEST = 1 << 17
"""Limit of what one operation takes, and of what it makes, in characters and items."""
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
    """abs capitalize count d default first float int last length list lower max min reverse sort
    title trim unique upper"""
)


class Sandbox(SandboxedEnvironment):
    """Jinja's parser, and the closed list. It never compiles."""

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, keep_trailing_newline=True)
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


def shown(value: Any) -> Any:
    """A value as templates write it: booleans and lists as in JSON, and as in the environment of tasks."""
    return _tojson(value) if isinstance(value, (bool, list)) else value


def check_format(text: str) -> None:
    """Raise SecurityError for a pattern whose result could have megabytes."""
    if len(text) > _LONGEST_FORMAT:
        raise SecurityError(f"a format may have {_LONGEST_FORMAT} characters at most")
    if _WIDE.search(text):
        raise SecurityError("a width in a format may have three digits at most")


def check_filled(text: str, values: Any) -> None:
    """Raise SecurityError for a pattern whose result could be long with these values."""
    check_format(text)
    if text.count("%") * weight(values) > LONGEST:
        raise SecurityError("the formatted text is too long")


def weight(value: Any) -> int:
    """The characters and items of a value. What is in it twice counts twice."""
    if isinstance(value, (str, range)):
        return 1 + len(value)
    if isinstance(value, int):
        return 1 + value.bit_length() // 32
    if isinstance(value, dict):
        return 1 + sum(weight(key) + weight(of) for key, of in value.items())
    if isinstance(value, Iterable) and not isinstance(value, StrictUndefined):
        return 1 + sum(map(weight, value))
    return 1


def _format(text: str, *values: Any, **names: Any) -> str:
    check_format(str(text))
    return str(text) % (names or values)


def _join(values: Iterable[Any], separator: str = "") -> str:
    return separator.join(str(shown(value)) for value in values)


def _replace(text: str, old: str, new: str) -> str:
    return str(text).replace(str(old), str(new))


def _round(value: float, precision: int = 0) -> float:
    if abs(precision) > _LARGEST_PRECISION:
        raise SecurityError(f"a precision of {precision} digits is too large")
    return round(value, precision)


@pass_environment
def _sum(environment: Any, values: Any, attribute: Any = None, start: Any = 0) -> Any:
    if not isinstance(start, (int, float)):  # lists are copied for each that is added
        raise SecurityError("a sum starts with a number")
    return FILTERS["sum"](environment, values, attribute, start)


def _tojson(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


_BOUNDED_FILTERS: dict[str, Callable[..., Any]] = {
    "format": _format,
    "join": _join,
    "replace": _replace,
    "string": lambda value: str(shown(value)),
    "round": _round,
    "sum": _sum,
    "tojson": _tojson,
}
