"""The order of runs in lists: the newest second first; within one, by id.

History lists its keys in this order, so a place in it means the same for a run that is live and later is not.
"""

from __future__ import annotations

from typing import NamedTuple

from nimbus.domain.run import ListedRun, Run

_LATEST = 9_999_999_999


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
    return RunPlace(_LATEST - int(run.created_at.timestamp()), run.id)
