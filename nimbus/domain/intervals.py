"""Data intervals: the time span of the data that a run processes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

NO_INTERVAL = (
    "this run has no data interval; a scheduled run has one, a run that is started by hand takes "
    "`--data-interval FROM TO`"
)


@dataclass(frozen=True)
class DataInterval:
    """The data from `start` to `end`, which is excluded. Both are aware."""

    start: datetime
    end: datetime
