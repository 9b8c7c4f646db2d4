"""What the states of latch and participant are called in the status."""

from __future__ import annotations

from leader.core.latch import model as latch_m
from leader.core.participant import model as m
from leader.core.participant.model import State
from leader.status import Phase


def phase_of(state: State, latch: latch_m.State | None) -> Phase:
    """The phase shown for the states of participant and latch."""
    match state:
        case m.Outside():
            return Phase.LATENT
        case m.InLine():
            return _in_line(latch)
        case m.Guarding():
            return Phase.GUARDING
        case m.Leading():
            return Phase.LEADING
        case m.Draining() | m.Leaving() | m.BackingOff():
            return Phase.BACKING_OFF
        case m.Closed():
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
    if isinstance(state, m.Guarding | m.Leading | m.Draining):
        return state.leadership.epoch
    return None
