"""What an elector does about each thing it hears. Pure: the same inputs give the same answer.

The invariants, in words; tests/property holds them against random histories:

1. `Grant` is asked only after the guard said yes in the very epoch that is granted, and after that epoch
   was announced.
2. Every `Grant` is followed by exactly one `Revoke` of the same leadership before the next `Grant`, and
   before `Closed`.
3. An unanswered call never leads towards leadership: it leads back to looking.
4. A latch is forgotten only when it is known to be gone, or to belong to a session that is over.
5. No state waits in silence: each either has a timer, or an answer under way, or a watch.

One function for each state and no catch-all: a new event fails the type check in every state that has
not decided about it.
"""

from __future__ import annotations

from dataclasses import replace

from leader import effects as do
from leader import events as ev
from leader import moves
from leader import states as st
from leader.effects import SetTimer, Timer
from leader.events import Event
from leader.moves import Transition
from leader.states import State

__all__ = ["Transition", "step"]


def step(state: State, event: Event) -> Transition:  # noqa: C901 - one branch for each state
    """Decide. See the module."""
    match state:
        case st.Latent():
            return _latent(state, event)
        case st.Joining():
            return _joining(state, event)
        case st.Queued():
            return _queued(state, event)
        case st.Elected():
            return _elected(state, event)
        case st.Guarding():
            return _guarding(state, event)
        case st.Confirming():
            return _confirming(state, event)
        case st.Leading():
            return _leading(state, event)
        case st.Suspended():
            return _suspended(state, event)
        case st.Withdrawing():
            return _withdrawing(state, event)
        case st.BackingOff():
            return _backing_off(state, event)
        case st.Closed():
            return Transition(state)


def _latent(state: st.Latent, event: Event) -> Transition:
    match event:
        case ev.Started():
            return moves.join()
        case ev.CloseAsked():
            return Transition(st.Closed())
        case ev.LinkUp() | ev.LinkDown() | ev.SessionGone() | ev.Nudged() | ev.Poked() | ev.Due():
            return Transition(state)
        case ev.AbdicationAsked() | ev.GuardSaid() | ev.Joined() | ev.SawSelf() | ev.LatchGone():
            return Transition(state)
        case ev.EpochTaken() | ev.Announced() | ev.Proven() | ev.Refused() | ev.Barred():
            return Transition(state)
        case ev.Troubled() | ev.Crashed() | ev.Withdrawn():
            return Transition(state)


def _joining(state: st.Joining, event: Event) -> Transition:
    match event:
        case ev.LinkUp() | ev.Due():
            return Transition(state, (do.Join(),))
        case ev.Joined(latch):
            return moves.look(latch, state.refusals)
        case ev.Troubled() | ev.Crashed() | ev.Refused() | ev.Barred():
            tries = state.tries + 1
            return Transition(replace(state, tries=tries), (SetTimer(Timer.RETRY, tries),))
        case ev.Poked():
            return Transition(replace(state, refusals=0))
        case ev.CloseAsked():
            return moves.withdraw("closed", state.refusals, closing=True)
        case ev.Started() | ev.LinkDown() | ev.SessionGone() | ev.Nudged() | ev.AbdicationAsked():
            return Transition(state)  # no latch to give back; the retry timer is running
        case ev.GuardSaid() | ev.SawSelf() | ev.LatchGone() | ev.EpochTaken() | ev.Announced():
            return Transition(state)  # of a latch we no longer have
        case ev.Proven() | ev.Withdrawn():
            return Transition(state)


def _queued(state: st.Queued, event: Event) -> Transition:  # noqa: C901 - one branch for each group of events
    match event:
        case ev.SawSelf(position):
            if position == 0:
                elected = st.Elected(state.latch, state.refusals)
                return Transition(elected, (do.TakeEpoch(state.latch),))
            waiting = replace(state, position=position, tries=0)
            return Transition(waiting, (SetTimer(Timer.PATROL),))
        case ev.Nudged() | ev.Due():
            return Transition(state, (do.Look(state.latch),))
        case ev.LinkUp(session_id):
            return moves.relinked(state.latch, session_id, state.refusals)
        case ev.LinkDown():
            return moves.suspend(state.latch, state.refusals)
        case ev.SessionGone() | ev.LatchGone():
            return moves.join(state.refusals)
        case ev.Troubled() | ev.Refused():
            tries = state.tries + 1
            return Transition(replace(state, tries=tries), (SetTimer(Timer.RETRY, tries),))
        case ev.Crashed(reason) | ev.Barred(reason):
            return moves.withdraw(reason, state.refusals)
        case ev.AbdicationAsked(reason, epoch):
            return moves.withdraw(reason, state.refusals) if epoch is None else Transition(state)
        case ev.CloseAsked():
            return moves.withdraw("closed", state.refusals, closing=True)
        case ev.Poked():
            return Transition(replace(state, refusals=0))
        case ev.Started() | ev.GuardSaid() | ev.Joined() | ev.EpochTaken() | ev.Announced():
            return Transition(state)
        case ev.Proven() | ev.Withdrawn():
            return Transition(state)


def _elected(state: st.Elected, event: Event) -> Transition:
    match event:
        case ev.EpochTaken(leadership):
            guarding = st.Guarding(state.latch, leadership, state.refusals)
            return Transition(guarding, (SetTimer(Timer.GUARD), do.AskGuard(leadership.epoch)))
        case ev.LinkUp() | ev.LinkDown() | ev.SessionGone() | ev.LatchGone():
            return moves.lost_ground(state.latch, event, state.refusals)
        case ev.Troubled() | ev.Refused():
            return moves.look_later(state.latch, state.refusals)
        case ev.Crashed(reason) | ev.Barred(reason):
            return moves.withdraw(reason, state.refusals)
        case ev.AbdicationAsked(reason, epoch):
            return moves.withdraw(reason, state.refusals) if epoch is None else Transition(state)
        case ev.CloseAsked():
            return moves.withdraw("closed", state.refusals, closing=True)
        case ev.Poked():
            return Transition(replace(state, refusals=0))
        case ev.Started() | ev.Nudged() | ev.Due() | ev.GuardSaid() | ev.Joined() | ev.SawSelf():
            return Transition(state)
        case ev.Announced() | ev.Proven() | ev.Withdrawn():
            return Transition(state)


def _guarding(state: st.Guarding, event: Event) -> Transition:  # noqa: C901 - one branch for each group of events
    match event:
        case ev.GuardSaid():
            return _heard_guard(state, event)
        case ev.Due():
            return moves.withdraw("the guard gave no answer in time", state.refusals)
        case ev.Nudged():
            return Transition(state, (do.Look(state.latch),))
        case ev.SawSelf(position):
            return Transition(state) if position == 0 else moves.look_later(state.latch, state.refusals)
        case ev.LinkUp() | ev.LinkDown() | ev.SessionGone() | ev.LatchGone():
            return moves.lost_ground(state.latch, event, state.refusals)
        case ev.Troubled() | ev.Refused():
            return moves.look_later(state.latch, state.refusals)
        case ev.Crashed(reason) | ev.Barred(reason):
            return moves.withdraw(reason, state.refusals)
        case ev.AbdicationAsked(reason, epoch):
            ours = epoch is None or epoch == state.leadership.epoch
            return moves.withdraw(reason, state.refusals) if ours else Transition(state)
        case ev.CloseAsked():
            return moves.withdraw("closed", state.refusals, closing=True)
        case ev.Poked():
            return Transition(replace(state, refusals=0))  # a no that is under way may be old news
        case ev.Started() | ev.Joined() | ev.EpochTaken() | ev.Announced() | ev.Proven() | ev.Withdrawn():
            return Transition(state)


def _heard_guard(state: st.Guarding, said: ev.GuardSaid) -> Transition:
    if said.epoch != state.leadership.epoch:
        return Transition(state)  # an answer to an older question
    if not said.ready:
        return moves.withdraw("; ".join(said.reasons) or "the guard said no", state.refusals)
    confirming = st.Confirming(state.latch, state.leadership, state.refusals)
    return Transition(confirming, (do.Announce(state.latch, state.leadership),))


def _confirming(state: st.Confirming, event: Event) -> Transition:
    match event:
        case ev.Announced():
            leading = st.Leading(state.latch, state.leadership)
            return Transition(leading, (do.Grant(state.leadership), SetTimer(Timer.PROOF)))
        case ev.LinkUp() | ev.LinkDown() | ev.SessionGone() | ev.LatchGone():
            return moves.lost_ground(state.latch, event, state.refusals)
        case ev.Troubled() | ev.Refused():
            return moves.look_later(state.latch, state.refusals)
        case ev.Crashed(reason) | ev.Barred(reason):
            return moves.withdraw(reason, state.refusals)
        case ev.AbdicationAsked(reason, epoch):
            ours = epoch is None or epoch == state.leadership.epoch
            return moves.withdraw(reason, state.refusals) if ours else Transition(state)
        case ev.CloseAsked():
            return moves.withdraw("closed", state.refusals, closing=True)
        case ev.Started() | ev.Nudged() | ev.Poked() | ev.Due() | ev.GuardSaid() | ev.Joined():
            return Transition(state)
        case ev.SawSelf() | ev.EpochTaken() | ev.Proven() | ev.Withdrawn():
            return Transition(state)


def _leading(state: st.Leading, event: Event) -> Transition:  # noqa: C901 - one branch for each group of events
    match event:
        case ev.Due():
            return Transition(state, (do.Prove(state.latch, state.leadership),))
        case ev.Proven():
            return Transition(state, (SetTimer(Timer.PROOF),))
        case ev.Nudged():
            return Transition(state, (do.Look(state.latch),))
        case ev.SawSelf(position):
            if position == 0:
                return Transition(state, (do.KeepAnnounced(state.latch, state.leadership),))
            return moves.revoked(state, "an older latch is in the queue", moves.look_later(state.latch))
        case ev.LinkUp(session_id):
            if session_id == state.latch.session_id:
                return Transition(state, (do.Look(state.latch),))
            return moves.revoked(state, "the session was replaced", moves.join())
        case ev.LinkDown():
            return moves.revoked(state, "the connection to ZooKeeper broke", moves.suspend(state.latch))
        case ev.SessionGone():
            return moves.revoked(state, "the ZooKeeper session is over", moves.join())
        case ev.LatchGone():
            return moves.revoked(state, "our latch node was deleted", moves.join())
        case ev.Troubled(reason):
            # Perhaps a dead link that kazoo still calls connected.
            suspended = moves.suspend(state.latch, first=do.ForceReconnect())
            return moves.revoked(state, reason, suspended)
        case ev.Refused(reason):
            return moves.revoked(state, reason, moves.look_later(state.latch))
        case ev.Crashed(reason) | ev.Barred(reason):
            return moves.revoked(state, reason, moves.withdraw(reason, 0))
        case ev.AbdicationAsked(reason, epoch):
            if epoch is not None and epoch != state.leadership.epoch:
                return Transition(state)  # meant for an older term
            return moves.revoked(state, reason, moves.withdraw(reason, 0), handover=True)
        case ev.CloseAsked():
            return moves.revoked(state, "closed", moves.withdraw("closed", 0, closing=True), handover=True)
        case ev.Started() | ev.Poked() | ev.GuardSaid() | ev.Joined() | ev.EpochTaken():
            return Transition(state)
        case ev.Announced() | ev.Withdrawn():
            return Transition(state)


def _suspended(state: st.Suspended, event: Event) -> Transition:
    match event:
        case ev.LinkUp(session_id):
            return moves.relinked(state.latch, session_id, state.refusals)
        case ev.SessionGone() | ev.LatchGone():
            return moves.join(state.refusals)
        case ev.Due():
            return Transition(state, (SetTimer(Timer.RETRY, 3), do.Probe()))
        case ev.Troubled() | ev.Crashed():
            return Transition(state, (SetTimer(Timer.RETRY, 3),))
        case ev.AbdicationAsked(reason, epoch):
            return moves.withdraw(reason, state.refusals) if epoch is None else Transition(state)
        case ev.CloseAsked():
            return moves.withdraw("closed", state.refusals, closing=True)
        case ev.Poked():
            return Transition(replace(state, refusals=0))
        case ev.Started() | ev.LinkDown() | ev.Nudged() | ev.GuardSaid() | ev.Joined() | ev.SawSelf():
            return Transition(state)
        case ev.EpochTaken() | ev.Announced() | ev.Proven() | ev.Refused() | ev.Barred() | ev.Withdrawn():
            return Transition(state)


def _withdrawing(state: st.Withdrawing, event: Event) -> Transition:
    match event:
        case ev.Withdrawn():
            if state.closing:
                return Transition(st.Closed())
            return moves.back_off(state.reason, state.refusals)
        case ev.LinkUp() | ev.Due():
            return Transition(state, (do.Withdraw(),))
        case ev.Troubled() | ev.Crashed() | ev.Refused() | ev.Barred():
            tries = state.tries + 1
            return Transition(replace(state, tries=tries), (SetTimer(Timer.RETRY, tries),))
        case ev.CloseAsked():
            return Transition(replace(state, closing=True), (do.Withdraw(),))
        case ev.Poked():
            return Transition(replace(state, refusals=0))
        case ev.Started() | ev.LinkDown() | ev.SessionGone() | ev.Nudged() | ev.AbdicationAsked():
            return Transition(state)  # even after a loss we look before we forget
        case ev.GuardSaid() | ev.Joined() | ev.SawSelf() | ev.LatchGone() | ev.EpochTaken():
            return Transition(state)
        case ev.Announced() | ev.Proven():
            return Transition(state)


def _backing_off(state: st.BackingOff, event: Event) -> Transition:
    match event:
        case ev.Due():
            return moves.join(state.refusals)
        case ev.Poked():
            return moves.join()
        case ev.CloseAsked():
            return Transition(st.Closed())
        case ev.Crashed() | ev.Troubled():
            return moves.back_off(state.reason, state.refusals)
        case ev.Started() | ev.LinkUp() | ev.LinkDown() | ev.SessionGone() | ev.Nudged():
            return Transition(state)
        case ev.AbdicationAsked() | ev.GuardSaid() | ev.Joined() | ev.SawSelf() | ev.LatchGone():
            return Transition(state)
        case ev.EpochTaken() | ev.Announced() | ev.Proven() | ev.Refused() | ev.Barred() | ev.Withdrawn():
            return Transition(state)
