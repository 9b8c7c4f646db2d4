"""Data intervals: which data a run stands for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInterval:
    """The data from `start` up to, and without, `end`. Both aware."""

    start: datetime
    end: datetime
