"""Models of answers about data intervals."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from nimbus.api.models import Model


class IntervalState(StrEnum):
    """The state of a data interval: how its last run ended, or that a run is under way or missing."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    RUNNING = "running"
    """A run of it has not ended, whatever the results of earlier ones."""
    MISSING = "missing"
    UNKNOWN = "unknown"
    """It is before the beginning of the index."""


class IntervalModel(Model):
    """One data interval."""

    start: datetime
    end: datetime
    """For a scheduled run, its logical date."""
    state: IntervalState
    run: str | None = None
    """Null without a run, and of an old interval that the index has joined with those around it."""
    ended_at: datetime | None = None
    """Of joined intervals, the last end of a run of any of them."""


class IntervalsModel(Model):
    """Data intervals of a pipeline, oldest first."""

    pipeline: str
    timezone: str
    begins: datetime | None
    """An interval that ends up to here and is not in the index is unknown; null: there is no index yet."""
    intervals: list[IntervalModel]
    """Intervals of the schedule's fire times, and other intervals with runs."""
    next_from: datetime | None
    """Where the next page begins; null: this is the last one."""
