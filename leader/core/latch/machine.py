"""What a latch does about each thing it hears. Pure: the same inputs give the same answer.

The invariants, in words; tests/property holds them against random histories:

1. `Gain` follows only a committed write that needed our node, made while that node was the oldest.
2. `Gain` and `Lose` alternate, beginning with `Gain`; `End` comes once, last, never while the lock is held.
3. An unanswered call never leads towards the lock: it leads back to looking.
4. A node is forgotten only when it is known to be gone.
5. No state waits in silence: each either has a timer, or an answer under way, or an owner who must speak.

One function for each state and no catch-all: a new event fails the type check in every state that has
not decided about it.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from leader.core.latch import effects as do
from leader.core.latch import events as ev
from leader.core.latch import states as st
from leader.core.latch.effects import Effect, SetTimer, Timer
from leader.core.latch.events import Event
from leader.core.latch.states import Node, State
from leader.protocol.record import record

PATROLS_BEFORE_LOOK = 12
"""Watches tell us of each change; this many proofs later we look all the same, in case one got lost."""


PROVES_FROM = 2
"""Who stands here or further ahead proves itself while it waits: two hand-overs in a row find it ready."""


class SuspendedPolicy(Enum):
    """What a broken connection means for who holds the lock (Curator's ConnectionStateErrorPolicy).

    STANDARD: it is lost at once. SESSION: it is lost with the session, or when the time of the last proof
    has run out, whichever we learn of first.
    """

    STANDARD = "standard"
    SESSION = "session"


@record
class Transition:
    """The next state, and what the core shall do about it, in this order."""

    state: State
    effects: tuple[Effect, ...] = ()


def step(state: State, event: Event, policy: SuspendedPolicy = SuspendedPolicy.STANDARD) -> Transition:
    """Decide. See the module."""
    match state:  # in the order of their haste
        case st.Holding():
            return _holding(state, event, policy)
        case st.Waiting():
            return _waiting(state, event)
        case st.Claiming():
            return _claiming(state, event)
        case st.Withdrawing():
            return _withdrawing(state, event)
        case st.Suspended():
            return _suspended(state, event)
        case st.Joining():
            return _joining(state, event)
        case st.Latent():
            return _latent(state, event)
        case st.Closed():
            return Transition(state)


# --- moves that several states make -------------------------------------------------------------


def _join() -> Transition:
    return Transition(st.Joining(), (do.Join(),))


def _join_later(tries: int) -> Transition:
    return Transition(st.Joining(tries), (SetTimer(Timer.RETRY, tries),))


def _look(node: Node, tries: int = 0) -> Transition:
    return Transition(st.Waiting(node, tries=tries), (do.Look(node),))


def _look_later(node: Node, tries: int = 1) -> Transition:
    return Transition(st.Waiting(node, tries=tries), (SetTimer(Timer.RETRY, tries),))


def _relinked(node: Node, session_id: int) -> Transition:
    """Connected again: the watches are gone; our node stands if the session is the same."""
    return _look(node) if session_id == node.session_id else _join()


def _suspend(node: Node) -> Transition:
    return Transition(st.Suspended(node), (SetTimer(Timer.RETRY),))


def _withdraw() -> Transition:
    return Transition(st.Withdrawing(), (do.Withdraw(),))


def _claim(node: Node) -> Transition:
    return Transition(st.Claiming(node), (do.Claim(node),))


def _lost(reason: str, then: Transition) -> Transition:
    """First of all say that the lock is gone, whatever comes next."""
    return Transition(then.state, (do.Lose(reason), *then.effects))


# --- states -------------------------------------------------------------------------------------


def _latent(state: st.Latent, event: Event) -> Transition:
    match event:
        case ev.Started():
            return _join()
        case ev.CloseAsked():
            return Transition(st.Closed(), (do.End(),))
        case ev.LinkUp() | ev.LinkDown() | ev.SessionGone() | ev.WatchFired() | ev.NodeGone() | ev.Due():
            return Transition(state)
        case ev.Joined() | ev.SawSelf() | ev.LatchGone() | ev.Claimed() | ev.Postponed() | ev.Barred():
            return Transition(state)
        case ev.Proven() | ev.Refused() | ev.CallFailed() | ev.Crashed() | ev.Withdrawn():
            return Transition(state)


def _joining(state: st.Joining, event: Event) -> Transition:
    match event:
        case ev.LinkUp() | ev.Due():
            return Transition(state, (do.Join(),))
        case ev.Joined(node):
            return _look(node, state.tries)  # it may be gone before we see it, again and again
        case ev.CallFailed() | ev.Crashed() | ev.Refused() | ev.Barred() | ev.Postponed() | ev.LatchGone():
            return _join_later(state.tries + 1)
        case ev.CloseAsked():
            return _withdraw()
        case ev.Started() | ev.LinkDown() | ev.SessionGone() | ev.WatchFired() | ev.NodeGone():
            return Transition(state)  # no node to lose; the retry timer is running
        case ev.SawSelf() | ev.Claimed() | ev.Proven() | ev.Withdrawn():
            return Transition(state)  # of a node we no longer have


def _waiting(state: st.Waiting, event: Event) -> Transition:  # noqa: C901 - one branch for each group of events
    match event:
        case ev.SawSelf(place):
            if place.position == 0:
                return _claim(state.node)
            if place.position <= PROVES_FROM:  # a claim must stand on fresh proofs: begin to gather them
                return Transition(st.Waiting(state.node, place), (do.Prove(state.node),))
            return Transition(st.Waiting(state.node, place), (SetTimer(Timer.PATROL),))
        case ev.NodeGone(name):
            # Who was oldest but one is oldest now: nobody can join before us. The claim will prove it.
            next_in_line = state.place is not None and state.place.position == 1
            if next_in_line and state.place is not None and state.place.before == name:
                return _claim(state.node)
            return Transition(state, (do.Look(state.node),))
        case ev.Due():
            return _patrol(state)
        case ev.WatchFired():
            return Transition(state, (do.Look(state.node),))
        case ev.Proven():
            return Transition(replace(state, patrols=state.patrols + 1, tries=0), (SetTimer(Timer.PROOF),))
        case ev.LinkUp(session_id):
            return _relinked(state.node, session_id)
        case ev.LinkDown():
            return _suspend(state.node)
        case ev.LatchGone() if state.place is None:  # somebody deletes it as fast as we make it
            return _join_later(state.tries + 1)
        case ev.SessionGone() | ev.LatchGone():
            return _join()
        case ev.CallFailed() | ev.Crashed() | ev.Refused():
            # `place` is forgotten: what we saw on a link that fails is no ground for a claim.
            return _look_later(state.node, state.tries + 1)
        case ev.CloseAsked():
            return _withdraw()
        case ev.Started() | ev.Joined() | ev.Claimed() | ev.Postponed() | ev.Barred() | ev.Withdrawn():
            return Transition(state)


def _patrol(state: st.Waiting) -> Transition:
    soon_in_line = state.place is not None and 0 < state.place.position <= PROVES_FROM
    if soon_in_line and state.patrols < PATROLS_BEFORE_LOOK:
        return Transition(state, (do.Prove(state.node),))
    return Transition(state, (do.Look(state.node),))


def _claiming(state: st.Claiming, event: Event) -> Transition:  # noqa: C901 - one branch for each group of events
    match event:
        case ev.Claimed():
            holding = st.Holding(state.node)
            return Transition(holding, (do.Gain(state.node), SetTimer(Timer.FIRST_PROOF)))
        case ev.Postponed():
            return Transition(st.Waiting(state.node, st.Place(0)), (SetTimer(Timer.FIRST_PROOF),))
        case ev.Barred(reason, at_once):
            waiting = st.Waiting(state.node, st.Place(0))
            return Transition(waiting, (do.Bar(reason, at_once), SetTimer(Timer.PATROL)))
        case ev.Refused() | ev.CallFailed() | ev.Crashed():
            return _look_later(state.node)
        case ev.LatchGone():  # since we looked, a moment ago
            return _join_later(tries=1)
        case ev.SessionGone():
            return _join()
        case ev.LinkUp(session_id):
            return _relinked(state.node, session_id)
        case ev.LinkDown():
            return _suspend(state.node)
        case ev.CloseAsked():
            return _withdraw()
        case ev.Started() | ev.WatchFired() | ev.NodeGone() | ev.Due() | ev.Joined() | ev.SawSelf():
            return Transition(state)
        case ev.Proven() | ev.Withdrawn():
            return Transition(state)


def _holding(  # noqa: C901 - one branch for each group of events
    state: st.Holding, event: Event, policy: SuspendedPolicy
) -> Transition:
    match event:
        case ev.CloseAsked(reason):
            return _lost(reason, _withdraw())
        case ev.Due():
            return Transition(state, (do.Prove(state.node),))
        case ev.Proven():
            return Transition(state, (SetTimer(Timer.PROOF),))
        case ev.NodeGone(name) if name == state.node.name:
            # Who is next hears of it at the same time, so there is none to lose with looking.
            return _lost("our latch node was deleted", _join())
        case ev.WatchFired() | ev.NodeGone():
            return Transition(state, (do.Look(state.node),))
        case ev.SawSelf(place):
            if place.position == 0:
                return Transition(state, (do.Prove(state.node),))
            return _lost("an older latch is in the queue", _look_later(state.node))
        case ev.LinkUp(session_id):
            if session_id == state.node.session_id:
                return Transition(state, (do.Look(state.node),))
            return _lost("the session was replaced", _join())
        case ev.LinkDown():
            if policy is SuspendedPolicy.SESSION:
                return Transition(st.Suspended(state.node, held=True), (SetTimer(Timer.DEADLINE),))
            return _lost("the connection to ZooKeeper broke", _suspend(state.node))
        case ev.SessionGone():
            return _lost("the ZooKeeper session is over", _join())
        case ev.LatchGone():
            return _lost("our latch node was deleted", _join())
        case ev.CallFailed(reason) | ev.Crashed(reason):
            # Perhaps a dead link that kazoo still calls connected.
            if policy is SuspendedPolicy.SESSION:
                held = st.Suspended(state.node, held=True)
                return Transition(held, (do.ForceReconnect(), SetTimer(Timer.DEADLINE)))
            suspended = _suspend(state.node)
            return _lost(reason, Transition(suspended.state, (do.ForceReconnect(), *suspended.effects)))
        case ev.Refused(reason):
            return _lost(reason, _look_later(state.node))
        case ev.Started() | ev.Joined() | ev.Claimed() | ev.Postponed() | ev.Barred() | ev.Withdrawn():
            return Transition(state)


def _suspended(state: st.Suspended, event: Event) -> Transition:
    match event:
        case ev.LinkUp(session_id):
            if not state.held:
                return _relinked(state.node, session_id)
            if session_id == state.node.session_id:
                return Transition(st.Holding(state.node), (do.Look(state.node),))
            return _lost("the session was replaced", _join())
        case ev.SessionGone() | ev.LatchGone():
            return _lost("the ZooKeeper session is over", _join()) if state.held else _join()
        case ev.Due():
            probe = Transition(st.Suspended(state.node), (SetTimer(Timer.RETRY, 3), do.Probe()))
            return _lost("the time of our last proof ran out", probe) if state.held else probe
        case ev.CallFailed() | ev.Crashed():
            timer = SetTimer(Timer.DEADLINE) if state.held else SetTimer(Timer.RETRY, 3)
            return Transition(state, (timer,))
        case ev.CloseAsked(reason):
            return _lost(reason, _withdraw()) if state.held else _withdraw()
        case ev.Started() | ev.LinkDown() | ev.WatchFired() | ev.NodeGone() | ev.Joined() | ev.SawSelf():
            return Transition(state)
        case ev.Claimed() | ev.Postponed() | ev.Barred() | ev.Proven() | ev.Refused() | ev.Withdrawn():
            return Transition(state)


def _withdrawing(state: st.Withdrawing, event: Event) -> Transition:
    match event:
        case ev.Withdrawn():
            return Transition(st.Closed(), (do.End(),))
        case ev.LinkUp() | ev.Due() | ev.CloseAsked():
            return Transition(state, (do.Withdraw(),))
        case ev.CallFailed() | ev.Crashed() | ev.Refused() | ev.Barred() | ev.Postponed():
            tries = state.tries + 1
            return Transition(st.Withdrawing(tries), (SetTimer(Timer.RETRY, tries),))
        case ev.Started() | ev.LinkDown() | ev.SessionGone() | ev.WatchFired() | ev.NodeGone():
            return Transition(state)  # even after a loss we look before we forget
        case ev.Joined() | ev.SawSelf() | ev.LatchGone() | ev.Claimed() | ev.Proven():
            return Transition(state)
