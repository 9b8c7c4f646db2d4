"""What the states of latch and participant are called in the status."""

from __future__ import annotations

from leader.core.latch import states as latch_st
from leader.core.participant import states as st
from leader.core.participant.states import State
from leader.status import Phase


def phase_of(state: State, latch: latch_st.State | None) -> Phase:
    """The phase shown for the states of participant and latch."""
    match state:
        case st.Outside():
            return Phase.LATENT
        case st.InLine():
            return _in_line(latch)
        case st.Guarding():
            return Phase.GUARDING
        case st.Leading():
            return Phase.LEADING
        case st.Draining() | st.Leaving() | st.BackingOff():
            return Phase.BACKING_OFF
        case st.Closed():
            return Phase.CLOSED


def _in_line(latch: latch_st.State | None) -> Phase:
    match latch:
        case latch_st.Waiting():
            return Phase.QUEUED
        case latch_st.Claiming() | latch_st.Holding():
            return Phase.ELECTED
        case _:
            return Phase.WAITING


def epoch_of(state: State) -> int | None:
    """The epoch a state is about."""
    if isinstance(state, st.Guarding | st.Leading | st.Draining):
        return state.leadership.epoch
    return None


def place_of(latch: latch_st.State | None) -> latch_st.Place | None:
    """The place in the queue a latch knows of."""
    match latch:
        case latch_st.Waiting(_, place):
            return place
        case latch_st.Claiming() | latch_st.Holding():
            return latch_st.Place(0)
        case _:
            return None
