"""States, events and effects of a participant, above its latch. Plain values.

The *owner* of a participant is the process that uses its elector.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from leader.core.latch import model as latch_m
from leader.elector import Phase, Verdict
from leader.protocol.record import record
from leader.protocol.terms import Leadership


class Leave(Enum):
    """What a participant does after its latch is closed."""

    BACK_OFF = "back_off"
    """Waits, then queues again at the end."""
    REQUEUE = "requeue"
    """Queues again at the end, at once."""
    OUT = "out"
    """Stays out of the queue until the owner adds it again."""
    CLOSE = "close"
    """Ends."""


# --- states -------------------------------------------------------------------------------------
# `refusals` counts abdications in a row; the back-off grows with it.


@record
class Outside:
    """Not in the queue. Waits until the owner adds it."""


@record
class InLine:
    """Has a latch that does not hold the lock."""

    refusals: int = 0


@record
class Guarding:
    """Holds the lock, in its own epoch. Waits for the guard's answer."""

    leadership: Leadership
    refusals: int = 0


@record
class Leading:
    """Leads: confirmed. `published`: True once the leader node is written, or its write has begun.

    `refusals` returns to 0 after `requeue_backoff_max`: a term that is given up earlier counts as a refusal.
    `tries` counts failed publications in a row; the pause before the next one grows with it.
    """

    leadership: Leadership
    refusals: int = 0
    published: bool = False
    tries: int = 0


@record
class Draining:
    """Leads no more, but keeps the lock until `revoked` has returned, for `handover_timeout` at most."""

    leadership: Leadership
    reason: str
    leave: Leave
    refusals: int = 1


@record
class Leaving:
    """Waits until its latch is closed."""

    reason: str
    refusals: int
    leave: Leave


@record
class BackingOff:
    """Out of the queue until the back-off ends; `Poked` and `AddAsked` end it at once."""

    reason: str
    refusals: int = 0


@record
class Closed:
    """The final state. No event leads out of it."""


State = Outside | InLine | Guarding | Leading | Draining | Leaving | BackingOff | Closed


def phase_of(state: State, latch: latch_m.State | None) -> Phase:
    """Returns the phase that the status shows for these states of participant and latch."""
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
        case (
            None
            | latch_m.Latent()
            | latch_m.Joining()
            | latch_m.Suspended()
            | latch_m.Withdrawing()
            | latch_m.LatchClosed()
        ):
            return Phase.WAITING


def epoch_of(state: State) -> int | None:
    """Returns the epoch of the term that `state` belongs to; None without a term."""
    if isinstance(state, Guarding | Leading | Draining):
        return state.leadership.epoch
    return None


# --- events from the owner ------------------------------------------------------------------------


@record
class AddAsked:
    """The owner adds the participant to the queue."""


@record
class RemoveAsked:
    """The owner removes the participant from the queue."""


@record
class CloseAsked:
    """The owner closes the participant."""


@record
class AbdicationAsked:
    """The participant is asked to step down: by its owner, by an operator, or because `elected` raised.

    `epoch`: if given, only the leader of this epoch steps down. `at_once`: without a back-off.
    """

    reason: str
    epoch: int | None = None
    at_once: bool = False


@record
class Poked:
    """The guard may answer differently now, for example because readiness has changed. Ends a back-off."""


# --- events from the parts of the participant -----------------------------------------------------

# The reports of the latch are events, unchanged; only `Gained` becomes LatchGained, which has the term.
LatchLost = latch_m.LatchLost
LatchVetoed = latch_m.LatchVetoed
LatchEnded = latch_m.LatchEnded


@record
class LatchGained:
    """The latch holds the lock, and the epoch is raised."""

    leadership: Leadership


@record
class GuardSaid:
    """The guard's answer for one epoch."""

    epoch: int
    verdict: Verdict


@record
class Drained:
    """The electable has returned from `revoked` for this epoch."""

    epoch: int


@record
class WatchFired:
    """A node that the leader watches has changed: publish again."""


@record
class Published:
    """The leader node is correct, and the operators' requests are read."""


@record
class DelayOver:
    """The timer has run out."""

    shown_as: ClassVar = "Due"


@record
class LeaderNodeRefused:
    """The leader node cannot be written.

    The epoch has changed, the latch's node is gone, or another client changes the leader node all the time.
    """

    shown_as: ClassVar = "Refused"
    reason: str


@record
class WriteFailed:
    """No answer. A write may have been applied or not."""

    shown_as: ClassVar = "CallFailed"
    reason: str


@record
class Crashed:
    """An effect failed with an unexpected error, or with one that a retry cannot heal."""

    reason: str


FromOwner = AddAsked | RemoveAsked | CloseAsked | AbdicationAsked | Poked
FromLatch = LatchGained | LatchLost | LatchVetoed | LatchEnded
FromCallbacks = GuardSaid | Drained
FromPublisher = Published | LeaderNodeRefused
Event = FromOwner | FromLatch | FromCallbacks | FromPublisher | WatchFired | DelayOver | WriteFailed | Crashed


# --- effects ------------------------------------------------------------------------------------
# `->` names the events that may answer.


@record
class StartLatch:
    """Write the member node, then start a new latch.

    -> reports of the latch; LatchVetoed if the id is in use.
    """


@record
class CloseLatch:
    """Close the present latch. -> LatchEnded, when its node is known to be gone."""

    reason: str


@record
class AskGuard:
    """Request a call of the guard. -> later GuardSaid."""

    epoch: int


@record
class GrantLeadership:
    """Make `is_leader` true and request a call of `elected`. -> LatchLost if the lock is no longer held."""

    leadership: Leadership


@record
class Publish:
    """Write or correct the leader node; read operators' requests.

    -> Published, Refused, AbdicationAsked, CallFailed.
    """

    leadership: Leadership


@record
class Revoke:
    """Make `is_leader` false and request a call of `revoked`. -> later Drained."""

    leadership: Leadership
    reason: str


@record
class EndCore:
    """Delete the member node and end the core."""


class Timer(Enum):
    """Purpose of the timer. There is one timer; setting it again replaces it."""

    GUARD = "guard"
    PUBLISH = "publish"
    SETTLED = "settled"
    RETRY = "retry"
    DRAIN = "drain"
    BACK_OFF = "back_off"


@record
class SetTimer:
    """Send DelayOver after a delay. The delay of RETRY and BACK_OFF is random and grows with `count`."""

    timer: Timer
    count: int = 1


Effect = StartLatch | CloseLatch | AskGuard | GrantLeadership | Publish | Revoke | EndCore | SetTimer
