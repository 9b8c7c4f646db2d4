"""Names of dates and of functions on dates that templates may use. Imports no Jinja."""

from __future__ import annotations

import re

INTERVAL = ("data_interval_start", "data_interval_end")
FUNCTIONS = ("days", "months", "month_start", "month_end", "week_start", "fmt")
ADDED = ("logical_date", *INTERVAL, "tz", *FUNCTIONS)
"""Those that release 0.1 does not know."""
DATES = ("ds", "ds_nodash", *ADDED)

_CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_NAME = re.compile(r"(?<![\w.])[a-z_]+\b(?!\s*=[^=])")


def names_in(text: str) -> frozenset[str]:
    """Words of a template that may be names. Those in quotes are among them; attributes are not."""
    return frozenset(name for code in _CODE.findall(text) for name in _NAME.findall(code))
