"""What the API answers about backfills."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from nimbus.api.models import Model, PageModel, Seconds
from nimbus.api.models_intervals import IntervalModel
from nimbus.domain.backfill import BackfillState, OnFailure, Order, Reprocess


class BackfillRequestModel(Model):
    """What was asked for."""

    first: datetime
    last: datetime
    every_s: Seconds | None = Field(None, validation_alias="every")
    max_parallel: int
    reprocess: Reprocess
    order: Order
    on_failure: OnFailure
    as_one_run: bool
    parameters: Mapping[str, Any]
    total: int | None
    """Dates of the range."""


class BackfillModel(Model):
    """A backfill and how far it is."""

    id: str
    pipeline: str
    release: str
    request: BackfillRequestModel
    state: BackfillState
    reason: str
    position: datetime | None
    """Dates up to here, in its order, are dealt with."""
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
    """What it waits for; null in lists, and when it is over."""
    runs: list[str] = Field(default_factory=list)
    """Its runs that have not ended; empty in lists."""


class BackfillsModel(PageModel):
    """Backfills, newest first."""

    backfills: list[BackfillModel]


class DownstreamBackfillModel(Model):
    """A backfill of a pipeline that waits for runs of another backfill; created by a request of its own."""

    pipeline: str
    upstream: list[str]
    """The backfilled pipelines that it waits for."""
    first: datetime | None = None
    """Its dates: `from` of its request. Null: it gets no backfill, and `why` says why."""
    last: datetime | None = None
    """The same, for `to`."""
    total: int = 0
    """Dates of its range."""
    runs: int = 0
    """Of the first 1,000 of these, those that get a run as things are now."""
    why: str | None = None


class BackfillPlanModel(Model):
    """What a backfill would do."""

    pipeline: str
    total: int
    """Dates of the range; 100,000 at most are counted."""
    runs: int
    """Of the dates that are listed, those that get one."""
    dates: list[IntervalModel]
    """The first 1,000, in its order, as they are now."""
    downstream: list[DownstreamBackfillModel] = Field(default_factory=list)
    """If asked for: of the pipelines that wait for its runs, directly or not; each after its upstream."""
