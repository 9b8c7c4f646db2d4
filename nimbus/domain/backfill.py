"""A backfill: runs for the dates of a range, started by the leader a few at a time. Pure.

Its record has a position, never a list, so it is as small with 100,000 dates as with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from nimbus.domain.growth import brief
from nimbus.domain.ids import BackfillId, PipelineName, ReleaseDigest, RunId
from nimbus.domain.interval_index import Ended
from nimbus.domain.pipeline import Schedule
from nimbus.domain.run import RunState

MOST_PARALLEL = 100
MOST_DATES = 100_000


class BackfillState(StrEnum):
    """Where a backfill stands."""

    ACTIVE = "active"
    PAUSED = "paused"
    """By an operator, or since a run did not succeed. Runs under way go on."""
    FINISHED = "finished"
    """All dates are dealt with, and all runs have ended."""
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """It starts no run any more, and cannot be resumed."""
        return self in (BackfillState.FINISHED, BackfillState.CANCELLED)


class Reprocess(StrEnum):
    """Which dates get a run, by how the last run of their interval ended."""

    MISSING = "missing"
    """Those that are not known to have had any, or whose only one was stopped while it was queued."""
    FAILED = "failed"
    """Those, and those whose last run did not succeed."""
    ALL = "all"


class Order(StrEnum):
    """Which dates go first."""

    OLDEST = "oldest"
    NEWEST = "newest"


class OnFailure(StrEnum):
    """What a run that does not succeed means for the dates after it."""

    PAUSE = "pause"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """What is asked for."""

    first: datetime
    last: datetime
    """Both belong to the range."""
    every: timedelta | None = None
    """Between the dates of a pipeline without a schedule."""
    max_parallel: int = 1
    """Runs that have not ended, queued ones too."""
    reprocess: Reprocess = Reprocess.MISSING
    order: Order = Order.OLDEST
    on_failure: OnFailure = OnFailure.PAUSE
    as_one_run: bool = False
    """One run, whose interval is the whole range. It is made whatever became of the dates."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    total: int | None = None
    """Dates of the range, as the client counted them; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A backfill and how far it is."""

    id: BackfillId
    pipeline: PipelineName
    release: ReleaseDigest
    """Of all its runs; chosen when it was created."""
    schedule: Schedule | None
    """Of that release: it says the dates. None: `request.every` does."""
    request: BackfillRequest
    state: BackfillState = BackfillState.ACTIVE
    reason: str = ""
    """Why it is paused or cancelled."""
    position: datetime | None = None
    """Dates up to here, in its order, are dealt with; moved in the transaction that creates the run."""
    skipped: int = 0
    """Dates that needed no run."""
    started: int = 0
    """Runs."""
    succeeded: int = 0
    failed: int = 0
    stopped: int = 0
    created_at: datetime
    created_by: str = ""
    finished_at: datetime | None = None

    @property
    def under_way(self) -> int:
        """Runs that have not ended."""
        return self.started - self.succeeded - self.failed - self.stopped

    def run_id(self, date: datetime) -> RunId:
        """Of the run of a date: made of it, so that no two leaders can start it twice."""
        return RunId(f"{self.id}-{date:%Y%m%dt%H%M%Sz}")

    def scheduled_run_id(self, date: datetime) -> RunId:
        """Of the run that the schedule starts for a date."""
        return RunId(f"{self.pipeline}-{date:%Y%m%dt%H%M%Sz}")

    def needs(self, last: Ended | None) -> bool:
        """Whether a date gets a run. `last`: how its last run ended; None: not known to have had any."""
        match self.request.reprocess:
            case Reprocess.ALL:
                return True
            case Reprocess.FAILED:
                return last is None or last.outcome is not RunState.SUCCEEDED
            case Reprocess.MISSING:
                return last is None or not last.started

    def after_end(self, run: RunId, state: RunState) -> Backfill:
        """What it is after one of its runs has ended."""
        counts = {name: getattr(self, name) for name in ("succeeded", "failed", "stopped")}
        counts[state.value] += 1
        after = replace(self, **counts)
        pauses = self.request.on_failure is OnFailure.PAUSE and self.state is BackfillState.ACTIVE
        if pauses and state is not RunState.SUCCEEDED:
            return replace(after, state=BackfillState.PAUSED, reason=f"run {run} {state}")
        return after

    def paused(self, reason: str) -> Backfill:
        """It starts nothing until it is resumed."""
        return replace(self, state=BackfillState.PAUSED, reason=brief(reason))

    def over(self, state: BackfillState, reason: str, now: datetime) -> Backfill:
        """It starts nothing any more."""
        return replace(self, state=state, reason=brief(reason), finished_at=now)
