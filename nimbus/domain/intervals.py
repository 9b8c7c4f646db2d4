"""Data intervals: which data a run stands for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

NO_INTERVAL = (
    "this run has no data interval; a scheduled run has one, a run that is started by hand takes "
    "`--data-interval FROM TO`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInterval:
    """The data from `start` up to, and without, `end`. Both aware."""

    start: datetime
    end: datetime
