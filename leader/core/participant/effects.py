"""What the machine of a participant asks its core to do. Plain values."""

from __future__ import annotations

from enum import Enum

from leader.protocol.record import record
from leader.protocol.terms import Leadership


@record
class StartLatch:
    """Make a new latch, let everybody see it, then start it. -> its news, or LatchVetoed."""


@record
class CloseLatch:
    """Close the present latch. -> LatchEnded, when its node is known to be gone."""

    reason: str


@record
class AskGuard:
    """Have the guard asked. -> later GuardSaid."""

    epoch: int


@record
class Grant:
    """Make `is_leader` true and tell the electable. -> LatchLost, if the lock does not stand any more."""

    leadership: Leadership


@record
class Publish:
    """Write or correct the leader node; see what operators want. -> Refused, AbdicationAsked, CallFailed."""

    leadership: Leadership


@record
class PublishSoon:
    """Publish in a moment: first the callback thread needs the interpreter, for `elected`. -> WatchFired."""


@record
class Revoke:
    """Make `is_leader` false and tell the electable. -> later Drained."""

    leadership: Leadership
    reason: str


@record
class End:
    """Tell the driver that nothing more will come."""


class Timer(Enum):
    """What a timer is for. There is one timer; setting it again replaces it."""

    GUARD = "guard"
    DRAIN = "drain"
    BACK_OFF = "back_off"
    SETTLED = "settled"
    RETRY = "retry"


@record
class SetTimer:
    """Send Due after a while; longer and random for a higher `count`."""

    timer: Timer
    count: int = 1


Effect = StartLatch | CloseLatch | AskGuard | Grant | Publish | PublishSoon | Revoke | End | SetTimer
