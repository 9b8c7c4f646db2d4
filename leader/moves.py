"""The moves that several states of the machine make. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from leader import effects as do
from leader import events as ev
from leader import states as st
from leader.effects import Effect, SetTimer, Timer
from leader.states import Latch, State


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state, and what the shell shall do about it, in this order."""

    state: State
    effects: tuple[Effect, ...] = ()


def join(refusals: int = 0) -> Transition:
    """Get a latch, at the end of the queue."""
    return Transition(st.Joining(refusals), (do.Join(),))


def look(latch: Latch, refusals: int) -> Transition:
    """Read the queue, to find out where we stand."""
    return Transition(st.Queued(latch, refusals=refusals), (do.Look(latch),))


def look_later(latch: Latch, refusals: int = 0) -> Transition:
    """Something did not work; read the queue after a pause and decide anew."""
    return Transition(st.Queued(latch, refusals=refusals, tries=1), (SetTimer(Timer.RETRY, 1),))


def relinked(latch: Latch, session_id: int, refusals: int) -> Transition:
    """Connected again: the watches are gone; the latch stands if the session is the same."""
    return look(latch, refusals) if session_id == latch.session_id else join(refusals)


def suspend(latch: Latch, refusals: int = 0, first: Effect | None = None) -> Transition:
    """Wait for the link to come back; `first` is done before."""
    timer = SetTimer(Timer.RETRY)
    return Transition(st.Suspended(latch, refusals), (first, timer) if first else (timer,))


def lost_ground(
    latch: Latch, event: ev.LinkUp | ev.LinkDown | ev.SessionGone | ev.LatchGone, refusals: int
) -> Transition:
    """On the way to leadership: any news of the link sends us back to looking, so to a new epoch."""
    match event:
        case ev.LinkUp(session_id):
            return relinked(latch, session_id, refusals)
        case ev.LinkDown():
            return suspend(latch, refusals)
        case ev.SessionGone() | ev.LatchGone():
            return join(refusals)


def withdraw(reason: str, refusals: int, *, closing: bool = False) -> Transition:
    """Give the latch back, and count that as a refusal."""
    return Transition(st.Withdrawing(reason, refusals + 1, closing=closing), (do.Withdraw(),))


def back_off(reason: str, refusals: int) -> Transition:
    """Stay out of the queue for a while."""
    return Transition(st.BackingOff(reason, refusals), (SetTimer(Timer.BACK_OFF, refusals),))


def revoked(state: st.Leading, reason: str, then: Transition, *, handover: bool = False) -> Transition:
    """First of all stop leading, whatever comes next."""
    return Transition(then.state, (do.Revoke(state.leadership, reason, handover), *then.effects))
