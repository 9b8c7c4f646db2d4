"""What a driver says of its Spark application. It is only shown: no code finds or ends anything by it."""

from __future__ import annotations

import re

LONGEST = 64
"""Limit in characters. Spark's own ids are shorter: `application_1410901177871_0001`, `spark-<32 hex>`."""
_FORM = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}")

_PAGE = re.compile(
    r"https?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]{0,200})?"
)


def application_id(told: object) -> str | None:
    """The id that a driver reported; None: it is not valid. User code may have written it."""
    return told if isinstance(told, str) and _FORM.fullmatch(told) else None


def page_address(told: object) -> str | None:
    """The address of Spark's own pages that a driver reported; None: it is no plain address of a host."""
    return told if isinstance(told, str) and _PAGE.fullmatch(told) else None
