"""Models of answers about backfills."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from nimbus.api.models import Model, PageModel, of
from nimbus.domain.backfill import BackfillRequest, BackfillState


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


@of(BackfillRequest)
class BackfillRequestModel(Model):
    """The request of a backfill."""


class BackfillModel(Model):
    """A backfill and its progress."""

    id: str
    pipeline: str
    release: str
    request: BackfillRequestModel
    state: BackfillState
    reason: str
    position: datetime | None
    """All dates up to here, in its order, are done."""
    skipped: int
    started: int
    succeeded: int
    failed: int
    stopped: int
    under_way: int
    created_at: datetime
    created_by: str
    finished_at: datetime | None
    progress: str
    why: str | None = None
    """What it waits for; null in lists, and when it has ended."""
    runs: list[str] = Field(default_factory=list)
    """Its runs that have not ended; empty in lists."""


class BackfillsModel(PageModel):
    """Backfills, newest first."""

    backfills: list[BackfillModel]


class DownstreamBackfillModel(Model):
    """A backfill of a pipeline that waits for runs of another, or reads their data. It needs a request."""

    pipeline: str
    upstream: list[str]
    """The backfilled pipelines that it waits for, or reads data of."""
    first: datetime | None = None
    """`from` of its request. Null: it gets no backfill, for the reason in `why`."""
    last: datetime | None = None
    """`to` of its request."""
    total: int = 0
    """Number of dates in its range."""
    runs: int = 0
    """How many of the first 1,000 dates get a run, by the current state."""
    why: str | None = None


class BackfillPlanModel(Model):
    """The plan of a backfill."""

    pipeline: str
    total: int
    """Number of dates in the range; at most 100,000 are counted."""
    runs: int
    """How many of the listed dates get a run."""
    dates: list[IntervalModel]
    """The first 1,000 dates, in its order, with their current state."""
    downstream: list[DownstreamBackfillModel] = Field(default_factory=list)
    """On request: pipelines that wait for its runs or data, directly or not; each after its upstream."""
