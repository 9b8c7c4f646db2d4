"""What an election says about itself, to people and to dashboards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from leader import states as st
from leader.guard import Verdict
from leader.states import State


class Phase(Enum):
    """Where a participant stands. WAITING: for a session or for its latch; also after a loss."""

    LATENT = "latent"
    WAITING = "waiting"
    QUEUED = "queued"
    ELECTED = "elected"
    GUARDING = "guarding"
    LEADING = "leading"
    BACKING_OFF = "backing_off"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ElectionStatus:
    """One moment of one participant. For showing only: decide with `is_leader` and the fencing token.

    Args:
        epoch: Of the term we are in or take; None if there is none.
        position: Place in the queue when it was last read, 0 being the oldest; None if not queued. Each
            watches only the one before it, so it may be too high for a while; `participants` reads anew.
        last_abdication: Why we last left the queue or lost leadership.
        last_verdict: The guard's last answer.
        back_off_remaining: How long we stay out of the queue, if nobody pokes.
        trouble: What last went wrong with ZooKeeper; None once something went right.
    """

    phase: Phase
    epoch: int | None = None
    position: int | None = None
    last_abdication: str | None = None
    last_verdict: Verdict | None = None
    back_off_remaining: timedelta | None = None
    trouble: str | None = None


def phase_of(state: State) -> Phase:
    """The phase shown for a state of the machine."""
    match state:
        case st.Latent():
            return Phase.LATENT
        case st.Joining() | st.Suspended():
            return Phase.WAITING
        case st.Queued():
            return Phase.QUEUED
        case st.Elected():
            return Phase.ELECTED
        case st.Guarding() | st.Confirming():
            return Phase.GUARDING
        case st.Leading():
            return Phase.LEADING
        case st.Withdrawing() | st.BackingOff():
            return Phase.BACKING_OFF
        case st.Closed():
            return Phase.CLOSED


def epoch_of(state: State) -> int | None:
    """The epoch a state is about."""
    if isinstance(state, st.Guarding | st.Confirming | st.Leading):
        return state.leadership.epoch
    return None


def position_of(state: State) -> int | None:
    """The place in the queue a state knows of."""
    if isinstance(state, st.Queued):
        return state.position
    if isinstance(state, st.Elected | st.Guarding | st.Confirming | st.Leading):
        return 0
    return None
