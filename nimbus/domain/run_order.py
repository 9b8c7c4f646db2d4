"""The order of runs in lists: newest first, by second; within a second, by id.

Keys in history have this order, so the place of a run stays the same when it moves to history.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from nimbus.domain.run import ListedRun, Run

LATEST_S = 9_999_999_999
"""A time in the far future, in seconds since 1970."""


class RunPlace(NamedTuple):
    """A place in the order."""

    before_latest_s: int
    """Seconds from the creation to `LATEST_S`, so that the newest runs sort first."""
    id: str

    def __str__(self) -> str:
        return f"{self.before_latest_s:010d}~{self.id}"

    @classmethod
    def parse(cls, text: str) -> RunPlace:
        """Read what `str` writes. Raises ValueError for any other text."""
        seconds, _, name = text.partition("~")
        if not (seconds.isdecimal() and len(seconds) == 10 and name):
            raise ValueError(f"{text!r} is no place in a list of runs")
        return cls(int(seconds), name)


def place(run: ListedRun | Run) -> RunPlace:
    """The place of a run in lists."""
    return place_at(run.created_at, run.id)


def place_at(created_at: datetime, run: str) -> RunPlace:
    """The place in lists of a run created at `created_at`."""
    return RunPlace(LATEST_S - int(created_at.timestamp()), run)
