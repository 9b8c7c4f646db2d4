"""Names of dates and of functions on dates that templates may use. Imports no Jinja."""

from __future__ import annotations

import re

INTERVAL = ("data_interval_start", "data_interval_end")
FUNCTIONS = ("days", "months", "month_start", "month_end", "week_start", "fmt")
ADDED = ("logical_date", *INTERVAL, "tz", *FUNCTIONS)
"""Names that release 0.1 does not know."""
DATES = ("ds", "ds_nodash", *ADDED)

_CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAME = re.compile(r"(?<![\w.])[a-z_]+\b(?!\s*=[^=])")

_LOOKUP = r"""(?<![\w.])%s\s*(?:\.\s*(?P<name>\w+)|\[\s*(?P<quote>["'])(?P<quoted>[^"']*)(?P=quote)\s*\])"""
_RESULT, _VARIABLE = re.compile(_LOOKUP % "tasks"), re.compile(_LOOKUP % "vars")

_ASKED = frozenset({"defined", "undefined", "default", "d"})
"""Tests and filters for values that may be missing."""


def needs_interval(text: str) -> bool:
    """True when a template uses the data interval without a test whether there is one."""
    names = names_in(text)
    return not names.isdisjoint(INTERVAL) and names.isdisjoint(_ASKED)


def variables_in(text: str) -> frozenset[str]:
    """Names of the cluster's variables that a template uses; found in the same way as in `tasks_read`."""
    codes = _CODE.findall(text) if "vars" in text else ()
    return frozenset(found["name"] or found["quoted"] for code in codes for found in _VARIABLE.finditer(code))


def tasks_read(text: str) -> frozenset[str]:
    """Names of the tasks whose results a template reads.

    It may find too many, for example in quotes. It never finds too few, because `nimbus.templates.checking`
    accepts only the forms that this function finds.
    """
    codes = _CODE.findall(text) if "tasks" in text else ()
    return frozenset(found["name"] or found["quoted"] for code in codes for found in _RESULT.finditer(code))


def names_in(text: str) -> frozenset[str]:
    """Words in a template's code that may be names, without attributes and quoted text."""
    codes = (_QUOTED.sub("''", code) for code in _CODE.findall(text))
    return frozenset(name for code in codes for name in _NAME.findall(code))
