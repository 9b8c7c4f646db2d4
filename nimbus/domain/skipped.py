"""Fire times of a schedule that started no run: a bounded list, and the total. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nimbus.domain.growth import brief

MOST_LISTED = 20
"""Limit of entries. Each has at most about 0.5 KiB, so the position node of a schedule stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFires:
    """Consecutive fire times that were skipped for one reason."""

    first: datetime
    last: datetime
    count: int
    reason: str
    at: datetime
    """When the last one was skipped."""
    schedule: str = ""
    """Name of their schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skips:
    """Skipped fire times of one pipeline since it was published."""

    total: int = 0
    listed: tuple[SkippedFires, ...] = ()
    """The last entries, oldest first."""

    def with_fires(
        self,
        fires: Sequence[datetime],
        reason: str,
        *,
        after: datetime | None,
        now: datetime,
        schedule: str = "",
    ) -> Skips:
        """The skips with more fire times added.

        Args:
            fires: Consecutive fire times, oldest first.
            reason: Why they start no run.
            after: Position of the schedule so far. If the last entry ends there and has the same reason,
                the entry grows.
            now: The time.
            schedule: Its name.
        """
        if not fires:
            return self
        more = SkippedFires(
            first=fires[0],
            last=fires[-1],
            count=len(fires),
            reason=brief(reason),
            at=now,
            schedule=schedule,
        )
        listed = self.listed
        same = bool(listed) and (listed[-1].reason, listed[-1].schedule) == (more.reason, schedule)
        if same and listed[-1].last == after:
            more = replace(more, first=listed[-1].first, count=listed[-1].count + more.count)
            listed = listed[:-1]
        return Skips(total=self.total + len(fires), listed=(*listed, more)[-MOST_LISTED:])
