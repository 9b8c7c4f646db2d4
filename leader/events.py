"""What an elector hears. Plain values; answers come from effects, the rest from outside."""

from __future__ import annotations

from dataclasses import dataclass

from leader.protocol.records import Leadership
from leader.states import Latch

# --- events from outside ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The owner wants us to take part."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Connected, with this session."""

    session_id: int


@dataclass(frozen=True, slots=True)
class LinkDown:
    """Not connected; the session may survive."""


@dataclass(frozen=True, slots=True)
class SessionGone:
    """The session is over."""


@dataclass(frozen=True, slots=True)
class Nudged:
    """A watch fired: look again. It says nothing more."""


@dataclass(frozen=True, slots=True)
class Poked:
    """Readiness changed; a back-off may be pointless now."""


@dataclass(frozen=True, slots=True)
class AbdicationAsked:
    """Somebody wants us to step down; from `epoch` only, if that is given."""

    reason: str
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """The timer that was set has run out."""


@dataclass(frozen=True, slots=True)
class GuardSaid:
    """The guard's answer for one epoch."""

    epoch: int
    ready: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CloseAsked:
    """The owner wants us to leave for good."""


# --- events that answer an effect ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """We have a latch node, made now or found."""

    latch: Latch


@dataclass(frozen=True, slots=True)
class SawSelf:
    """The queue was read: our latch is at `position`, 0 being the oldest."""

    position: int


@dataclass(frozen=True, slots=True)
class LatchGone:
    """Our latch node is not there, or belongs to another session."""


@dataclass(frozen=True, slots=True)
class EpochTaken:
    """The epoch was raised, by us, while our latch was there."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class Announced:
    """The leader node says that we lead in this epoch."""


@dataclass(frozen=True, slots=True)
class Proven:
    """A committed write proved that our latch and our epoch stand."""


@dataclass(frozen=True, slots=True)
class Refused:
    """ZooKeeper said no: the epoch has moved on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Barred:
    """We must not lead, though we could."""

    reason: str


@dataclass(frozen=True, slots=True)
class Troubled:
    """No answer. Whatever was asked may have happened or not."""

    reason: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """An effect failed in a way nobody foresaw."""

    reason: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """None of our latch nodes is there any more."""


Event = (
    Started
    | LinkUp
    | LinkDown
    | SessionGone
    | Nudged
    | Poked
    | AbdicationAsked
    | Due
    | GuardSaid
    | CloseAsked
    | Joined
    | SawSelf
    | LatchGone
    | EpochTaken
    | Announced
    | Proven
    | Refused
    | Barred
    | Troubled
    | Crashed
    | Withdrawn
)
