"""What the API answers about data intervals."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from nimbus.api.models import Model


class IntervalState(StrEnum):
    """How the last run of a data interval ended, or that one is under way, or that there is none."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    RUNNING = "running"
    """A run of it has not ended, whatever earlier ones did."""
    MISSING = "missing"
    UNKNOWN = "unknown"
    """It lies before the beginning of the index."""


class IntervalModel(Model):
    """One data interval."""

    start: datetime
    end: datetime
    """Of a scheduled run, its logical date."""
    state: IntervalState
    run: str | None = None
    ended_at: datetime | None = None


class IntervalsModel(Model):
    """Data intervals of a pipeline, oldest first."""

    pipeline: str
    timezone: str
    begins: datetime | None
    """What ends up to here and is not in the index is unknown; null: there is no index yet."""
    intervals: list[IntervalModel]
    """Those of the schedule's fire times, and others that runs had."""
    next_from: datetime | None
    """Where the next page begins; null: this is the last one."""
