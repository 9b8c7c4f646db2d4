"""The history of an election, and the laws that it must obey.

The simulator records such a history, and so do tests with real processes. The time of an event in a real
process is known only to be between two readings of a clock. So a moment may be an interval, and `laws.check`
reports only certain violations: for example two leaders only if they overlap for every choice of times in the
intervals.

All times of one history are of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class Kind(Enum):
    """Kinds of events."""

    CONFIRMED = "confirmed"
    """Leadership was granted: `elected`."""
    REVOKED = "revoked"
    """Leadership was revoked: `revoked`."""
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
    """The guard agreed, in this epoch."""
    REFUSED = "refused"
    """The guard refused, or failed, in this epoch."""
    DEPOSED = "deposed"
    """The leader's latch node, its session or all data were deleted from outside. The leader may not know it
    before `until`, so leaders that overlap before that time do not break a law."""
    REBORN = "reborn"
    """ZooKeeper's data were deleted: epochs may start again for participants that have seen none."""
    ORPHAN = "orphan"
    """There is a latch node of a live session that no participant knows of."""
    ABSENT = "absent"
    """A participant that should queue has no latch node, although there is no fault."""
    MISLED = "misled"
    """The leader node does not name the leader, although there is no fault."""
    OUTLIVED = "outlived"
    """`is_leader()` was True although the session had expired, or a pause was longer than the session."""
    CRASHED = "crashed"
    """The election's own code raised an exception that was not caught."""
    FAULT = "fault"
    """A fault began."""
    HEALED = "healed"
    """There is no fault until the next FAULT."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One event.

    Args:
        at: Its time, or the earliest time.
        participant: The participant that it is about; the victim of a fault.
        kind: Kind of event.
        epoch: Epoch of the event, for kinds that have one.
        until: The latest time; by default, `at`.
        boot: The start of the participant's process, if several have the same name.
        order: Transaction id. It orders events more exactly than the time.
        note: Text for people.
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
        """The latest possible time."""
        return self.at if self.until is None else self.until

    def __str__(self) -> str:
        epoch = "" if self.epoch is None else f" in epoch {self.epoch}"
        note = f" ({self.note})" if self.note else ""
        return f"{self.at.total_seconds():.6f} {self.participant} {self.kind.value}{epoch}{note}"


class Law(Enum):
    """The laws that a history must obey."""

    ONE_LEADER = "no two leaders at one time"
    EPOCHS_RISE = "each leadership has a higher epoch than all before it"
    TOLD_IN_TURN = "each elected is followed by exactly one revoked before the next"
    REVOKED_IS_OVER = "no participant says that it leads after it was revoked"
    GUARDED = "no participant leads, or is published, before its guard said yes in that epoch"
    FENCED = "no write is accepted in an epoch after a newer one was taken"
    SOMEBODY_LEADS = "a participant leads soon after all faults have ended"
    NO_ORPHANS = "no living session leaves a latch node behind"
    NOBODY_GIVES_UP = "a participant that wants to be in the queue comes back to it"
    PUBLISHED_TRULY = "the leader node names the leader"
    ENDS_WITH_SESSION = "no participant says that it leads once its session can have expired"
    NEVER_RAISES = "no error leaves the election unhandled"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken law, and the moments that broke it."""

    law: Law
    moments: tuple[Moment, ...]
    note: str = ""

    def __str__(self) -> str:
        note = f" - {self.note}" if self.note else ""
        return f"{self.law.value}{note}: " + "; ".join(str(moment) for moment in self.moments)
