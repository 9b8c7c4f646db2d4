"""What a participant does about each thing it hears, above its latch. Pure.

The invariants, in words; tests/property holds them against random histories:

1. `Grant` is asked only after the guard said yes in the very epoch that is granted.
2. Every `Grant` is followed by exactly one `Revoke` of the same leadership before the next `Grant`, and
   before `Closed`.
3. The latch is closed only after the electable was told, and had its time to finish.
4. At most one latch lives: `StartLatch` follows `LatchEnded`.
5. No state waits in silence: each either has a timer, or a latch at work, or an owner who must speak.
"""

from __future__ import annotations

from dataclasses import replace

from leader.core.participant import effects as do
from leader.core.participant import events as ev
from leader.core.participant import states as st
from leader.core.participant.effects import Effect, SetTimer, Timer
from leader.core.participant.events import Event
from leader.core.participant.states import Leave, State
from leader.protocol.record import record


@record
class Transition:
    """The next state, and what the core shall do about it, in this order."""

    state: State
    effects: tuple[Effect, ...] = ()


def step(state: State, event: Event) -> Transition:
    """Decide. See the module."""
    match state:  # in the order of their haste
        case st.Leading():
            return _leading(state, event)
        case st.Guarding():
            return _guarding(state, event)
        case st.Draining():
            return _draining(state, event)
        case st.InLine():
            return _in_line(state, event)
        case st.Leaving():
            return _leaving(state, event)
        case st.BackingOff():
            return _backing_off(state, event)
        case st.Outside():
            return _outside(state, event)
        case st.Closed():
            return Transition(state)


# --- moves that several states make -------------------------------------------------------------


def _queue_up(refusals: int = 0) -> Transition:
    return Transition(st.InLine(refusals), (do.StartLatch(),))


def _leave(reason: str, leave: Leave, refusals: int = 1) -> Transition:
    return Transition(st.Leaving(reason, refusals, leave), (do.CloseLatch(reason),))


def _back_off(reason: str, refusals: int) -> Transition:
    return Transition(st.BackingOff(reason, refusals), (SetTimer(Timer.BACK_OFF, refusals),))


def _drain(state: st.Leading, reason: str, leave: Leave) -> Transition:
    draining = st.Draining(state.leadership, reason, leave, state.refusals + 1)
    return Transition(draining, (do.Revoke(state.leadership, reason), SetTimer(Timer.DRAIN)))


def _revoked(state: st.Leading, reason: str, then: Transition) -> Transition:
    """First of all stop leading, whatever comes next."""
    return Transition(then.state, (do.Revoke(state.leadership, reason), *then.effects))


def _wanted_back(state: st.Draining | st.Leaving) -> Transition:
    """The owner wants to be in the queue while we leave it: no back-off, unless we leave for good."""
    if state.leave is Leave.CLOSE:
        return Transition(state)
    return Transition(replace(state, leave=Leave.REQUEUE, refusals=0))


def _after_abdication(event: ev.AbdicationAsked) -> Leave:
    return Leave.REQUEUE if event.at_once else Leave.BACK_OFF


# --- states -------------------------------------------------------------------------------------


def _outside(state: st.Outside, event: Event) -> Transition:
    match event:
        case ev.AddAsked():
            return _queue_up()
        case ev.CloseAsked():
            return Transition(st.Closed(), (do.End(),))
        case ev.RemoveAsked() | ev.AbdicationAsked() | ev.Poked() | ev.WatchFired() | ev.Due() | ev.Drained():
            return Transition(state)
        case ev.LatchGained() | ev.LatchLost() | ev.LatchVetoed() | ev.LatchEnded() | ev.GuardSaid():
            return Transition(state)
        case ev.Refused() | ev.CallFailed() | ev.Crashed():
            return Transition(state)


def _in_line(state: st.InLine, event: Event) -> Transition:  # noqa: C901 - one branch for each group of events
    match event:
        case ev.LatchGained(leadership):
            guarding = st.Guarding(leadership, state.refusals)
            return Transition(guarding, (SetTimer(Timer.GUARD), do.AskGuard(leadership.epoch)))
        case ev.LatchVetoed(reason, at_once):
            leave = Leave.REQUEUE if at_once else Leave.BACK_OFF
            return _leave(reason, leave, state.refusals + 1)
        case ev.LatchEnded():
            return _back_off("the latch ended by itself", state.refusals + 1)
        case ev.AbdicationAsked(reason, epoch):
            if epoch is not None:
                return Transition(state)  # meant for an older term
            return _leave(reason, _after_abdication(event), state.refusals + 1)
        case ev.RemoveAsked():
            return _leave("removed from the queue", Leave.OUT)
        case ev.CloseAsked():
            return _leave("closed", Leave.CLOSE)
        case ev.Crashed(reason):
            return _leave(reason, Leave.BACK_OFF, state.refusals + 1)
        case ev.Poked():
            return Transition(st.InLine())
        case ev.AddAsked() | ev.LatchLost() | ev.GuardSaid() | ev.Drained() | ev.WatchFired() | ev.Due():
            return Transition(state)
        case ev.Refused() | ev.CallFailed():
            return Transition(state)


def _guarding(state: st.Guarding, event: Event) -> Transition:  # noqa: C901 - one branch for each group of events
    refusals = state.refusals + 1
    match event:
        case ev.GuardSaid(epoch, verdict):
            if epoch != state.leadership.epoch:
                return Transition(state)  # an answer to an older question
            if verdict.ready:
                leading = st.Leading(state.leadership, state.refusals)
                take_the_lead = (do.Grant(state.leadership), SetTimer(Timer.SETTLED), do.PublishSoon())
                return Transition(leading, take_the_lead)
            return _leave(verdict.why(), Leave.BACK_OFF, refusals)
        case ev.Due():
            return _leave("the guard gave no answer in time", Leave.BACK_OFF, refusals)
        case ev.LatchLost():
            return Transition(st.InLine(state.refusals))
        case ev.LatchVetoed(reason) | ev.Crashed(reason) | ev.Refused(reason):
            return _leave(reason, Leave.BACK_OFF, refusals)
        case ev.LatchEnded():
            return _back_off("the latch ended by itself", refusals)
        case ev.AbdicationAsked(reason, epoch):
            if epoch is not None and epoch != state.leadership.epoch:
                return Transition(state)
            return _leave(reason, _after_abdication(event), refusals)
        case ev.RemoveAsked():
            return _leave("removed from the queue", Leave.OUT)
        case ev.CloseAsked():
            return _leave("closed", Leave.CLOSE)
        case ev.Poked():
            return Transition(replace(state, refusals=0))  # a no that is under way may be old news
        case ev.AddAsked() | ev.LatchGained() | ev.Drained() | ev.WatchFired() | ev.CallFailed():
            return Transition(state)


def _leading(state: st.Leading, event: Event) -> Transition:  # noqa: C901 - one branch for each group of events
    match event:
        case ev.CloseAsked():
            return _drain(state, "closed", Leave.CLOSE)
        case ev.LatchLost(reason):
            return _revoked(state, reason, Transition(st.InLine()))
        case ev.Refused(reason) | ev.Crashed(reason) | ev.LatchVetoed(reason):
            return _revoked(state, reason, _leave(reason, Leave.BACK_OFF, state.refusals + 1))
        case ev.LatchEnded():
            reason = "the latch ended by itself"
            return _revoked(state, reason, _back_off(reason, state.refusals + 1))
        case ev.Due():  # led for so long: earlier failures are forgotten
            return Transition(replace(state, refusals=0), (do.Publish(state.leadership),))
        case ev.WatchFired():
            return Transition(state, (do.Publish(state.leadership),))
        case ev.CallFailed():
            # The latch has its own proofs and its own way to learn of a dead link.
            return Transition(state, (SetTimer(Timer.RETRY),))
        case ev.AbdicationAsked(reason, epoch):
            if epoch is not None and epoch != state.leadership.epoch:
                return Transition(state)  # meant for an older term
            return _drain(state, reason, _after_abdication(event))
        case ev.RemoveAsked():
            return _drain(state, "removed from the queue", Leave.OUT)
        case ev.AddAsked() | ev.Poked() | ev.LatchGained() | ev.GuardSaid() | ev.Drained():
            return Transition(state)


def _draining(state: st.Draining, event: Event) -> Transition:
    match event:
        case ev.Drained(epoch):
            if epoch != state.leadership.epoch:
                return Transition(state)
            return _leave(state.reason, state.leave, state.refusals)
        case ev.Due() | ev.LatchLost() | ev.Crashed():
            return _leave(state.reason, state.leave, state.refusals)
        case ev.LatchEnded():
            return _after_leaving(st.Leaving(state.reason, state.refusals, state.leave))
        case ev.RemoveAsked():
            out = state.leave if state.leave is Leave.CLOSE else Leave.OUT
            return Transition(replace(state, leave=out))
        case ev.CloseAsked():
            return Transition(replace(state, leave=Leave.CLOSE))
        case ev.AddAsked():
            return _wanted_back(state)
        case ev.AbdicationAsked() | ev.Poked() | ev.LatchGained() | ev.LatchVetoed() | ev.GuardSaid():
            return Transition(state)
        case ev.WatchFired() | ev.Refused() | ev.CallFailed():
            return Transition(state)


def _leaving(state: st.Leaving, event: Event) -> Transition:
    match event:
        case ev.LatchEnded():
            return _after_leaving(state)
        case ev.RemoveAsked():
            out = state.leave if state.leave is Leave.CLOSE else Leave.OUT
            return Transition(replace(state, leave=out))
        case ev.CloseAsked():
            return Transition(replace(state, leave=Leave.CLOSE))
        case ev.AddAsked():
            return _wanted_back(state)
        case ev.Poked():
            return Transition(replace(state, refusals=0))
        case ev.AbdicationAsked() | ev.LatchGained() | ev.LatchLost() | ev.LatchVetoed() | ev.GuardSaid():
            return Transition(state)
        case ev.Drained() | ev.WatchFired() | ev.Due() | ev.Refused() | ev.CallFailed() | ev.Crashed():
            return Transition(state)  # the latch goes on until it is closed


def _after_leaving(state: st.Leaving) -> Transition:
    match state.leave:
        case Leave.CLOSE:
            return Transition(st.Closed(), (do.End(),))
        case Leave.OUT:
            return Transition(st.Outside())
        case Leave.REQUEUE:
            return _queue_up(state.refusals)
        case Leave.BACK_OFF:
            return _back_off(state.reason, state.refusals)


def _backing_off(state: st.BackingOff, event: Event) -> Transition:
    match event:
        case ev.Due():
            return _queue_up(state.refusals)
        case ev.Poked() | ev.AddAsked():
            return _queue_up()
        case ev.RemoveAsked():
            return Transition(st.Outside())
        case ev.CloseAsked():
            return Transition(st.Closed(), (do.End(),))
        case ev.Crashed() | ev.CallFailed():
            return Transition(state, (SetTimer(Timer.BACK_OFF, state.refusals),))
        case ev.AbdicationAsked() | ev.LatchGained() | ev.LatchLost() | ev.LatchVetoed() | ev.LatchEnded():
            return Transition(state)
        case ev.GuardSaid() | ev.Drained() | ev.WatchFired() | ev.Refused():
            return Transition(state)
