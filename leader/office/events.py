"""What a participant hears, above its latch. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

from leader.guard import Verdict
from leader.protocol.terms import Leadership

# --- from the owner -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddAsked:
    """The owner wants to be in the queue."""


@dataclass(frozen=True, slots=True)
class RemoveAsked:
    """The owner wants out of the queue."""


@dataclass(frozen=True, slots=True)
class CloseAsked:
    """The owner wants us to leave for good."""


@dataclass(frozen=True, slots=True)
class AbdicationAsked:
    """Somebody wants us to step down; from `epoch` only, if that is given. `at_once`: without a back-off."""

    reason: str
    epoch: int | None = None
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Poked:
    """Readiness changed; a back-off may be pointless now."""


# --- from our parts -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LatchGained:
    """Our latch holds the lock, and the epoch is raised."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class LatchLost:
    """It holds it no more. It goes on trying by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class LatchHeldBack:
    """It could hold the lock, but must not. `at_once`: somebody better is there, so queue behind it."""

    reason: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class LatchEnded:
    """It is closed, and no node of ours is left."""


@dataclass(frozen=True, slots=True)
class GuardSaid:
    """The guard's answer for one epoch."""

    epoch: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class GuardAnswered:
    """The guard has answered; what it was asked about, the core knows. Not heard by the machine itself."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Drained:
    """The electable has finished what the leadership of this epoch began."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Nudged:
    """Something that a leader watches has changed: look again."""


@dataclass(frozen=True, slots=True)
class Due:
    """The timer that was set has run out."""


@dataclass(frozen=True, slots=True)
class Refused:
    """ZooKeeper said no: the epoch has moved on, or our latch is gone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Troubled:
    """No answer. Whatever was asked may have happened or not."""

    reason: str


@dataclass(frozen=True, slots=True)
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
    | LatchHeldBack
    | LatchEnded
    | GuardSaid
    | Drained
    | Nudged
    | Due
    | Refused
    | Troubled
    | Crashed
)

Posted = Event | GuardAnswered
"""What is posted to a core from outside."""
