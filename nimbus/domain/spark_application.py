"""The id of an attempt's Spark application, for people: nothing is looked for, or ended, by it."""

from __future__ import annotations

import re

LONGEST = 64
"""Characters. Spark's own are shorter: `application_1410901177871_0001`, `spark-` and 32 hex digits."""
_FORM = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}")


def application_id(told: object) -> str | None:
    """What a driver tells as the id of its application; None: it is none. User code may have written it."""
    return told if isinstance(told, str) and _FORM.fullmatch(told) else None
