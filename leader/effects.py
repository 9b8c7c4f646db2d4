"""What an elector asks its shell to do. Plain values.

An arrow names the events that may answer. A transition has at most one effect that is answered, as its
last, so an answer always meets the state that asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from leader.protocol.records import Leadership
from leader.states import Latch


@dataclass(frozen=True, slots=True)
class Join:
    """Find or make our latch node; remove older ones of ours. -> Joined, Troubled."""


@dataclass(frozen=True, slots=True)
class Look:
    """Read the queue and arm the watches. -> SawSelf, LatchGone, Troubled."""

    latch: Latch


@dataclass(frozen=True, slots=True)
class TakeEpoch:
    """Raise the epoch in one transaction with a check of our latch.

    -> EpochTaken, Refused, LatchGone, Barred, Troubled.
    """

    latch: Latch


@dataclass(frozen=True, slots=True)
class AskGuard:
    """Put the question on the guard's thread. -> later GuardSaid."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Prove ourselves, then write the leader node. -> Announced, Refused, LatchGone, Troubled."""

    latch: Latch
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class KeepAnnounced:
    """Correct the leader node if somebody changed it. -> nothing, Refused, LatchGone, Troubled."""

    latch: Latch
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class Prove:
    """Commit something that only the holder of latch and epoch can.

    -> Proven, Refused, LatchGone, Troubled.
    """

    latch: Latch
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class Grant:
    """Make `is_leader` true and tell the electable."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class Revoke:
    """Make `is_leader` false and tell the electable. `handover`: wait a little for it to finish."""

    leadership: Leadership
    reason: str
    handover: bool = False


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Delete every node of ours. -> Withdrawn, Troubled."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the session whether it is connected. -> LinkUp or nothing."""


@dataclass(frozen=True, slots=True)
class ForceReconnect:
    """Cut a connection that seems dead."""


class Timer(Enum):
    """What a timer is for. There is one timer; setting it again replaces it."""

    RETRY = "retry"
    GUARD = "guard"
    PROOF = "proof"
    BACK_OFF = "back_off"
    PATROL = "patrol"


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send Due after a while; longer and random for a higher `count`."""

    timer: Timer
    count: int = 0


Question = Join | Look | TakeEpoch | Announce | KeepAnnounced | Prove | Withdraw | Probe
"""Effects that an event answers, at once."""

Order = AskGuard | Grant | Revoke | ForceReconnect | SetTimer
"""Effects without an answer, or with one that comes later from outside."""

Effect = Question | Order
