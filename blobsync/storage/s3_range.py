"""Ranges of objects, as asked for and as given. Pure.

Servers differ: some answer a range with status 200 and the range (rclone), some with 200 and everything. So
not the status counts but what the answer says of itself.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NO_SUCH_RANGE = 416
"""Status of an answer to a range that begins at or beyond the end of its object."""

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


class Wanted(NamedTuple):
    """What is asked for.

    Attributes:
        full: The whole key, prefix included.
        start: First byte.
        size_bytes: How many; None: all from there on.
    """

    full: str
    start: int
    size_bytes: int | None

    @property
    def header(self) -> str | None:
        """Value of the header Range; None: everything is wanted, so none is sent."""
        if self.start == 0 and self.size_bytes is None:
            return None
        return f"bytes={self.start}-{'' if self.size_bytes is None else self.start + self.size_bytes - 1}"


class Given(NamedTuple):
    """What of an answer's body to use: so many bytes, after leaving out so many."""

    skip_bytes: int
    size_bytes: int


def given(content_range: str | None, body_bytes: int, wanted: Wanted) -> Given | None:
    """Compare what came with what was asked for.

    Args:
        content_range: The header of the answer; None: it has none, so its body is the whole object.
        body_bytes: Length of the body.
        wanted: What was asked for.

    Returns:
        What to use of the body, which may be less than wanted where the object ends. None: the answer is not
        that to the question.
    """
    start, size_bytes = wanted.start, wanted.size_bytes
    if content_range is None:
        skip = min(start, body_bytes)
        there = body_bytes - skip
        return Given(skip, there if size_bytes is None else min(there, size_bytes))
    found = _CONTENT_RANGE.fullmatch(content_range.strip())
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    if first != start or last - first + 1 != body_bytes:
        return None
    if size_bytes is not None and body_bytes >= size_bytes:
        return Given(0, size_bytes)
    at_end = found[3] == "*" or last + 1 == int(found[3])
    return Given(0, body_bytes) if at_end else None
