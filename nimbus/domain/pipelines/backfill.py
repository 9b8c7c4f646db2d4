"""A backfill: runs for the dates of a range, started by the leader a few at a time. Pure.

Its record has a position, not a list, so its size does not depend on the number of dates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from nimbus.domain.ids import BackfillId, PipelineName, ReleaseDigest, RunId
from nimbus.domain.pipelines.interval_index import Ended
from nimbus.domain.pipelines.pipeline import Schedule
from nimbus.domain.runs.run import RunState
from nimbus.domain.wording import shortened

MAX_PARALLEL = 100
MAX_DATES = 100_000


class BackfillState(StrEnum):
    """The state of a backfill."""

    ACTIVE = "active"
    PAUSED = "paused"
    """Paused by an operator, or because a run did not succeed. Runs under way go on."""
    FINISHED = "finished"
    """All dates are dealt with, and all runs have ended."""
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """True when it starts no more runs and cannot be resumed."""
        return self in (BackfillState.FINISHED, BackfillState.CANCELLED)


class Reprocess(StrEnum):
    """Which dates get a run, by how the last run of their interval ended."""

    MISSING = "missing"
    """Dates without a known run, or whose only run was stopped while it was queued."""
    FAILED = "failed"
    """Dates of `missing`, and dates whose last run did not succeed."""
    ALL = "all"


class Order(StrEnum):
    """Which dates go first."""

    OLDEST = "oldest"
    NEWEST = "newest"


class OnFailure(StrEnum):
    """What happens to later dates when a run does not succeed."""

    PAUSE = "pause"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """What the client requested."""

    first: datetime
    last: datetime
    """The first and last date are both in the range."""
    every: timedelta | None = None
    """Time between the dates of a pipeline without a schedule."""
    max_parallel: int = 1
    """Limit of runs that have not ended, including queued ones."""
    reprocess: Reprocess = Reprocess.MISSING
    order: Order = Order.OLDEST
    on_failure: OnFailure = OnFailure.PAUSE
    as_one_run: bool = False
    """One run, whose interval is the whole range. It is created whether or not the dates had runs."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    total: int | None = None
    """Number of dates in the range, as the client counted them; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A backfill and its progress."""

    id: BackfillId
    pipeline: PipelineName
    release: ReleaseDigest
    """Release of all its runs; chosen when the backfill was created."""
    schedule: Schedule | None
    """Schedule of that release, which gives the dates. None: `request.every` gives them."""
    request: BackfillRequest
    state: BackfillState = BackfillState.ACTIVE
    reason: str = ""
    """Why the backfill is paused or cancelled."""
    position: datetime | None = None
    """All dates up to here, in its order, are done. The transaction that creates a run moves it."""
    skipped: int = 0
    """Number of dates that needed no run."""
    started: int = 0
    """Number of started runs."""
    succeeded: int = 0
    failed: int = 0
    refused: int = 0
    """How many of `failed` are dates whose run could not be made."""
    stopped: int = 0
    created_at: datetime
    created_by: str = ""
    finished_at: datetime | None = None

    @property
    def under_way(self) -> int:
        """Number of runs that have not ended."""
        return self.started - self.succeeded - self.failed - self.stopped

    def run_id(self, date: datetime) -> RunId:
        """Id of the run of a date. It is derived from the date, so that two leaders cannot start it twice."""
        return RunId(f"{self.id}-{date:%Y%m%dt%H%M%Sz}")

    def scheduled_run_id(self, date: datetime) -> RunId:
        """Id of the run that the schedule starts for a date."""
        schedule = self.schedule
        return RunId("") if schedule is None else schedule.run_id(self.pipeline, date)

    def needs(self, last: Ended | None) -> bool:
        """True when a date needs a run. `last`: how its last run ended; None: no run is known."""
        match self.request.reprocess:
            case Reprocess.ALL:
                return True
            case Reprocess.FAILED:
                return last is None or last.outcome is not RunState.SUCCEEDED
            case Reprocess.MISSING:
                return last is None or not last.started

    def after_end(self, run: RunId, state: RunState) -> Backfill:
        """The backfill after one of its runs has ended."""
        counts = {name: getattr(self, name) for name in ("succeeded", "failed", "stopped")}
        counts[state.value] += 1
        after = replace(self, **counts)
        pauses = self.request.on_failure is OnFailure.PAUSE and self.state is BackfillState.ACTIVE
        if pauses and state is not RunState.SUCCEEDED:
            return replace(after, state=BackfillState.PAUSED, reason=f"run {run} {state}")
        return after

    def paused(self, reason: str) -> Backfill:
        """The backfill, paused: it starts no runs until it is resumed."""
        return replace(self, state=BackfillState.PAUSED, reason=shortened(reason))

    def over(self, state: BackfillState, reason: str, now: datetime) -> Backfill:
        """The backfill, ended: it starts no more runs."""
        return replace(self, state=state, reason=shortened(reason), finished_at=now)
