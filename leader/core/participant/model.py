"""What a participant can be above its latch, what it hears, and what it asks for. Plain values."""

from __future__ import annotations

from enum import Enum

from leader.core.latch import model as latch_m
from leader.elector import Phase, Verdict
from leader.protocol.record import record
from leader.protocol.terms import Leadership


class Leave(Enum):
    """What comes after leaving the queue."""

    BACK_OFF = "back_off"
    """A pause, then the end of the queue."""
    REQUEUE = "requeue"
    """The end of the queue, at once."""
    OUT = "out"
    """Nothing, until the owner wants in again."""
    CLOSE = "close"
    """Nothing any more."""


# --- states -------------------------------------------------------------------------------------
# `refusals` counts abdications in a row and sets the back-off.


@record
class Outside:
    """Not in the queue, and does not want to be."""


@record
class InLine:
    """Has a latch, which does not hold the lock, or not yet."""

    refusals: int = 0


@record
class Guarding:
    """Holds the lock and has raised the epoch; the guard is being asked."""

    leadership: Leadership
    refusals: int = 0


@record
class Leading:
    """Confirmed. `published`: the others were told. Terms that end soon count as refusals."""

    leadership: Leadership
    refusals: int = 0
    published: bool = False


@record
class Draining:
    """Has stopped leading and lets its electable finish, still holding the lock."""

    leadership: Leadership
    reason: str
    leave: Leave
    refusals: int = 1


@record
class Leaving:
    """Its latch is closing."""

    reason: str
    refusals: int
    leave: Leave


@record
class BackingOff:
    """Out of the queue until the back-off ends or somebody pokes."""

    reason: str
    refusals: int = 0


@record
class Closed:
    """The end. No event leads out of it."""


State = Outside | InLine | Guarding | Leading | Draining | Leaving | BackingOff | Closed


def phase_of(state: State, latch: latch_m.State | None) -> Phase:
    """The phase shown for the states of participant and latch."""
    match state:
        case Outside():
            return Phase.LATENT
        case InLine():
            return _in_line(latch)
        case Guarding():
            return Phase.GUARDING
        case Leading():
            return Phase.LEADING
        case Draining() | Leaving() | BackingOff():
            return Phase.BACKING_OFF
        case Closed():
            return Phase.CLOSED


def _in_line(latch: latch_m.State | None) -> Phase:
    match latch:
        case latch_m.Waiting():
            return Phase.QUEUED
        case latch_m.Claiming() | latch_m.Holding():
            return Phase.ELECTED
        case _:
            return Phase.WAITING


def epoch_of(state: State) -> int | None:
    """The epoch a state is about."""
    if isinstance(state, Guarding | Leading | Draining):
        return state.leadership.epoch
    return None


# --- events from the owner ------------------------------------------------------------------------


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


# --- events from our parts ------------------------------------------------------------------------

# News of the latch are events as they are; but LatchGained has the term.
LatchLost = latch_m.LatchLost
LatchVetoed = latch_m.LatchVetoed
LatchEnded = latch_m.LatchEnded


@record
class LatchGained:
    """Our latch holds the lock, and the epoch is raised."""

    leadership: Leadership


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
    """Something that a leader watches has changed: publish again."""


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


FromOwner = AddAsked | RemoveAsked | CloseAsked | AbdicationAsked | Poked
FromLatch = LatchGained | LatchLost | LatchVetoed | LatchEnded
FromCallbacks = GuardSaid | Drained
Event = FromOwner | FromLatch | FromCallbacks | WatchFired | Due | Refused | CallFailed | Crashed


# --- effects ------------------------------------------------------------------------------------
# An arrow names the events that may answer.


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
    PUBLISH = "publish"
    SETTLED = "settled"
    RETRY = "retry"
    DRAIN = "drain"
    BACK_OFF = "back_off"


@record
class SetTimer:
    """Send Due after a while; longer and random for a higher `count`."""

    timer: Timer
    count: int = 1


Effect = StartLatch | CloseLatch | AskGuard | Grant | Publish | Revoke | End | SetTimer
