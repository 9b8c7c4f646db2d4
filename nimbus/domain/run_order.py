"""The order of runs in lists: the newest second first; within one, by id.

History lists its keys in this order, so a place in it means the same for a run that is live and later is not.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from nimbus.domain.run import ListedRun, Run

LATEST_S = 9_999_999_999
"""Seconds since 1970 of a time that never comes."""


class RunPlace(NamedTuple):
    """A place in the order."""

    before_latest_s: int
    """Seconds from the creation to a time that never comes, so that the newest sort first."""
    id: str

    def __str__(self) -> str:
        return f"{self.before_latest_s:010d}~{self.id}"

    @classmethod
    def parse(cls, text: str) -> RunPlace:
        """Read what `str` writes. ValueError: it is something else."""
        seconds, _, name = text.partition("~")
        if not (seconds.isdecimal() and len(seconds) == 10 and name):
            raise ValueError(f"{text!r} is no place in a list of runs")
        return cls(int(seconds), name)


def place(run: ListedRun | Run) -> RunPlace:
    """Where a run is in lists."""
    return place_at(run.created_at, run.id)


def place_at(created_at: datetime, run: str) -> RunPlace:
    """Where a run that was created then is in lists."""
    return RunPlace(LATEST_S - int(created_at.timestamp()), run)
