"""What a participant hears, above its latch. Plain values."""

from __future__ import annotations

from leader.guard import Verdict
from leader.protocol.record import record
from leader.protocol.terms import Leadership

# --- from the owner -----------------------------------------------------------------------------


@record
class AddAsked:
    """The owner wants to be in the queue."""


@record
class RemoveAsked:
    """The owner wants out of the queue."""


@record
class CloseAsked:
    """The owner wants us to leave for good."""


@record
class AbdicationAsked:
    """Somebody wants us to step down; from `epoch` only, if that is given. `at_once`: without a back-off."""

    reason: str
    epoch: int | None = None
    at_once: bool = False


@record
class Poked:
    """Readiness changed; a back-off may be pointless now."""


# --- from our parts -----------------------------------------------------------------------------


@record
class LatchGained:
    """Our latch holds the lock, and the epoch is raised."""

    leadership: Leadership


@record
class LatchLost:
    """It holds it no more. It goes on trying by itself."""

    reason: str


@record
class LatchVetoed:
    """It could hold the lock, but must not. `at_once`: somebody better is there, so queue behind it."""

    reason: str
    at_once: bool = False


@record
class LatchEnded:
    """It is closed, and no node of ours is left."""


@record
class GuardSaid:
    """The guard's answer for one epoch."""

    epoch: int
    verdict: Verdict


@record
class Drained:
    """The electable has finished what the leadership of this epoch began."""

    epoch: int


@record
class WatchFired:
    """Something that a leader watches has changed, or `PublishSoon` is due: publish again."""


@record
class Due:
    """The timer that was set has run out."""


@record
class Refused:
    """ZooKeeper said no: the epoch has moved on, or our latch is gone."""

    reason: str


@record
class CallFailed:
    """No answer. Whatever was asked may have happened or not."""

    reason: str


@record
class Crashed:
    """An effect failed in a way nobody foresaw."""

    reason: str


Event = (
    AddAsked
    | RemoveAsked
    | CloseAsked
    | AbdicationAsked
    | Poked
    | LatchGained
    | LatchLost
    | LatchVetoed
    | LatchEnded
    | GuardSaid
    | Drained
    | WatchFired
    | Due
    | Refused
    | CallFailed
    | Crashed
)
