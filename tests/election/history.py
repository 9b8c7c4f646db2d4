"""What happened in an election, moment by moment, and whether it was allowed to.

The simulator records such a history, and so may a test with real processes. A moment of a real process is
known only to lie between two readings of a clock, so a moment may be an interval, and `laws.check` reports
what is certain: two leaders, for instance, only if no choice of instants in the intervals keeps them apart.

All times of one history are of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class Kind(Enum):
    """What happened."""

    CONFIRMED = "confirmed"
    """Leadership was granted: `elected`."""
    REVOKED = "revoked"
    """It was taken back: `revoked`."""
    OBSERVED = "observed"
    """`is_leader()` was True."""
    DENIED = "denied"
    """`is_leader()` was False."""
    WROTE = "wrote"
    """A fenced write was accepted. `order` is its transaction id, if known."""
    FENCED = "fenced"
    """A fenced write was refused."""
    TAKEN = "taken"
    """The epoch was raised. `order` is the transaction id, if known."""
    PUBLISHED = "published"
    """The leader node was written."""
    APPROVED = "approved"
    """The guard said yes, in this epoch."""
    REFUSED = "refused"
    """The guard said no, or failed, in this epoch."""
    DEPOSED = "deposed"
    """Somebody took away, behind the leader's back, what it stands on: its latch node, or all data. It
    cannot know before `until`, so leaders that overlap up to then are no fault of the election."""
    REBORN = "reborn"
    """ZooKeeper's data began anew: epochs may begin anew too, for who has seen none."""
    ORPHAN = "orphan"
    """A latch node of a living session that no participant knows of."""
    ABSENT = "absent"
    """A participant that wants in the queue has no latch node there, though all is well."""
    MISLED = "misled"
    """The leader node does not name who leads, though all is well."""
    OUTLIVED = "outlived"
    """`is_leader()` was True, and the session had expired already, or a pause had lasted longer than it."""
    CRASHED = "crashed"
    """The election's own code raised what nobody caught."""
    FAULT = "fault"
    """Somebody began to disturb."""
    HEALED = "healed"
    """Nothing disturbs any more, until the next FAULT."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened.

    Args:
        at: When; or not before.
        participant: To whom; the victim of a fault.
        kind: What.
        epoch: In which epoch, where that means anything.
        until: Not after; `at` itself if not given.
        boot: Which start of the participant's process, where several share a name.
        order: Transaction id: says which of two came first better than the time does.
        note: For people.
    """

    at: timedelta
    participant: str
    kind: Kind
    epoch: int | None = None
    until: timedelta | None = None
    boot: str = ""
    order: int | None = None
    note: str = ""

    @property
    def end(self) -> timedelta:
        """The latest that it can have happened."""
        return self.at if self.until is None else self.until

    def __str__(self) -> str:
        epoch = "" if self.epoch is None else f" in epoch {self.epoch}"
        note = f" ({self.note})" if self.note else ""
        return f"{self.at.total_seconds():.6f} {self.participant} {self.kind.value}{epoch}{note}"


class Law(Enum):
    """What a history must obey."""

    ONE_LEADER = "no two leaders at one time"
    EPOCHS_RISE = "each leadership has a higher epoch than all before it"
    TOLD_IN_TURN = "each elected is followed by exactly one revoked before the next"
    REVOKED_IS_OVER = "nobody says it leads after it was revoked"
    GUARDED = "nobody leads, or is published, before its guard said yes in that epoch"
    FENCED = "no write is accepted in an epoch after a newer one was taken"
    SOMEBODY_LEADS = "somebody leads soon after all is well"
    NO_ORPHANS = "no latch node is left behind by a living session"
    NOBODY_GIVES_UP = "whoever wants in the queue comes back to it"
    PUBLISHED_TRULY = "the leader node names who leads"
    ENDS_WITH_SESSION = "nobody says it leads once its session can have expired"
    NEVER_RAISES = "the election answers for every error"


@dataclass(frozen=True, slots=True)
class Violation:
    """A law that was broken, by which moments."""

    law: Law
    moments: tuple[Moment, ...]
    note: str = ""

    def __str__(self) -> str:
        note = f" - {self.note}" if self.note else ""
        return f"{self.law.value}{note}: " + "; ".join(str(moment) for moment in self.moments)
