"""The state machine of a participant, above its latch. Pure.

The invariants; `tests/leader/property/test_participant_laws.py` checks them with random histories:

1. `Grant` follows only a verdict that is ready, in the same epoch.
2. Every `Grant` is followed by exactly one `Revoke` of the same leadership, before the next `Grant` and
   before `Closed`.
3. A leader closes its latch only after `Revoke`. If it steps down on request, or is closed, its electable
   first has `handover_timeout` to finish, unless the lock is lost or an effect crashes in that time.
4. There is at most one latch: the next `StartLatch` follows `LatchEnded`.
5. Each state has a timer or a latch, or waits for its owner: no state waits for ever.
"""

from __future__ import annotations

from dataclasses import replace

from leader.core.participant import model as m
from leader.core.participant.model import Effect, Event, Leave, SetTimer, State, Timer
from leader.protocol.record import record


@record
class ParticipantTransition:
    """The next state, and the effects that the core must perform, in this order."""

    state: State
    effects: tuple[Effect, ...] = ()


def step(state: State, event: Event) -> ParticipantTransition:
    """Returns the transition that `event` causes in `state`. See the module."""
    match state:  # the most urgent first
        case m.Leading():
            return _leading(state, event)
        case m.Guarding():
            return _guarding(state, event)
        case m.Draining():
            return _draining(state, event)
        case m.InLine():
            return _in_line(state, event)
        case m.Leaving():
            return _leaving(state, event)
        case m.BackingOff():
            return _backing_off(state, event)
        case m.Outside():
            return _outside(state, event)
        case m.Closed():
            return ParticipantTransition(state)


# --- moves that several states make -------------------------------------------------------------


def _queue_up(refusals: int = 0) -> ParticipantTransition:
    return ParticipantTransition(m.InLine(refusals), (m.StartLatch(),))


def _leave(reason: str, leave: Leave, refusals: int = 1) -> ParticipantTransition:
    return ParticipantTransition(m.Leaving(reason, refusals, leave), (m.CloseLatch(reason),))


def _back_off(reason: str, refusals: int) -> ParticipantTransition:
    return ParticipantTransition(m.BackingOff(reason, refusals), (SetTimer(Timer.BACK_OFF, refusals),))


def _drain(state: m.Leading, reason: str, leave: Leave) -> ParticipantTransition:
    draining = m.Draining(state.leadership, reason, leave, state.refusals + 1)
    return ParticipantTransition(draining, (m.Revoke(state.leadership, reason), SetTimer(Timer.DRAIN)))


def _revoked(state: m.Leading, reason: str, then: ParticipantTransition) -> ParticipantTransition:
    """Stop leading before the effects of `then`."""
    return ParticipantTransition(then.state, (m.Revoke(state.leadership, reason), *then.effects))


def _add_while_leaving(state: m.Draining | m.Leaving) -> ParticipantTransition:
    """The owner adds a participant that is leaving: it queues again without a back-off, unless it closes."""
    if state.leave is Leave.CLOSE:
        return ParticipantTransition(state)
    return ParticipantTransition(replace(state, leave=Leave.REQUEUE, refusals=0))


def _after_abdication(event: m.AbdicationAsked) -> Leave:
    return Leave.REQUEUE if event.at_once else Leave.BACK_OFF


# --- states -------------------------------------------------------------------------------------


def _outside(state: m.Outside, event: Event) -> ParticipantTransition:
    match event:
        case m.AddAsked():
            return _queue_up()
        case m.CloseAsked():
            return ParticipantTransition(m.Closed(), (m.EndCore(),))
        case m.RemoveAsked() | m.AbdicationAsked() | m.Poked() | m.WatchFired() | m.DelayOver() | m.Drained():
            return ParticipantTransition(state)
        case m.LatchGained() | m.LatchLost() | m.LatchVetoed() | m.LatchEnded() | m.GuardSaid():
            return ParticipantTransition(state)
        case m.Published() | m.LeaderNodeRefused() | m.WriteFailed() | m.Crashed():
            return ParticipantTransition(state)


def _in_line(state: m.InLine, event: Event) -> ParticipantTransition:  # noqa: C901 - one branch for each group of events
    match event:
        case m.LatchGained(leadership):
            guarding = m.Guarding(leadership, state.refusals)
            return ParticipantTransition(guarding, (SetTimer(Timer.GUARD), m.AskGuard(leadership.epoch)))
        case m.LatchVetoed(reason, at_once):
            if at_once:  # it yields to another participant, which is no failure of its own
                return _leave(reason, Leave.REQUEUE, state.refusals)
            return _leave(reason, Leave.BACK_OFF, state.refusals + 1)
        case m.LatchEnded():
            return _back_off("the latch ended by itself", state.refusals + 1)
        case m.AbdicationAsked(reason, epoch):
            if epoch is not None:
                return ParticipantTransition(state)  # meant for an older term
            return _leave(reason, _after_abdication(event), state.refusals + 1)
        case m.RemoveAsked():
            return _leave("removed from the queue", Leave.OUT)
        case m.CloseAsked():
            return _leave("closed", Leave.CLOSE)
        case m.Crashed(reason):
            return _leave(reason, Leave.BACK_OFF, state.refusals + 1)
        case m.Poked():
            return ParticipantTransition(m.InLine())
        case m.AddAsked() | m.LatchLost() | m.GuardSaid() | m.Drained() | m.WatchFired() | m.DelayOver():
            return ParticipantTransition(state)
        case m.Published() | m.LeaderNodeRefused() | m.WriteFailed():
            return ParticipantTransition(state)


def _guarding(state: m.Guarding, event: Event) -> ParticipantTransition:  # noqa: C901 - one branch for each group of events
    refusals = state.refusals + 1
    match event:
        case m.GuardSaid(epoch, verdict):
            if epoch != state.leadership.epoch:
                return ParticipantTransition(state)  # the answer for an older epoch
            if verdict.ready:
                leading = m.Leading(state.leadership, state.refusals)
                return ParticipantTransition(
                    leading, (m.GrantLeadership(state.leadership), SetTimer(Timer.PUBLISH))
                )
            return _leave(verdict.why(), Leave.BACK_OFF, refusals)
        case m.DelayOver():
            return _leave("the guard gave no answer in time", Leave.BACK_OFF, refusals)
        case m.LatchLost():
            return ParticipantTransition(m.InLine(state.refusals))
        case m.LatchVetoed(reason) | m.Crashed(reason) | m.LeaderNodeRefused(reason):
            return _leave(reason, Leave.BACK_OFF, refusals)
        case m.LatchEnded():
            return _back_off("the latch ended by itself", refusals)
        case m.AbdicationAsked(reason, epoch):
            if epoch is not None and epoch != state.leadership.epoch:
                return ParticipantTransition(state)
            return _leave(reason, _after_abdication(event), refusals)
        case m.RemoveAsked():
            return _leave("removed from the queue", Leave.OUT)
        case m.CloseAsked():
            return _leave("closed", Leave.CLOSE)
        case m.Poked():
            return ParticipantTransition(replace(state, refusals=0))  # a no under way may be older than this
        case m.AddAsked() | m.LatchGained() | m.Drained() | m.WatchFired() | m.Published() | m.WriteFailed():
            return ParticipantTransition(state)


def _leading(state: m.Leading, event: Event) -> ParticipantTransition:  # noqa: C901 - one branch for each group of events
    match event:
        case m.CloseAsked():
            return _drain(state, "closed", Leave.CLOSE)
        case m.LatchLost(reason):
            return _revoked(state, reason, ParticipantTransition(m.InLine()))
        case m.LeaderNodeRefused(reason) | m.Crashed(reason) | m.LatchVetoed(reason):
            return _revoked(state, reason, _leave(reason, Leave.BACK_OFF, state.refusals + 1))
        case m.LatchEnded():
            reason = "the latch ended by itself"
            return _revoked(state, reason, _back_off(reason, state.refusals + 1))
        case m.DelayOver():
            if state.published:  # it has led for `requeue_backoff_max`
                return ParticipantTransition(replace(state, refusals=0), (m.Publish(state.leadership),))
            published = replace(state, published=True)
            return ParticipantTransition(published, (SetTimer(Timer.SETTLED), m.Publish(state.leadership)))
        case m.WatchFired():
            return ParticipantTransition(state, (m.Publish(state.leadership),))
        case m.Published():
            return ParticipantTransition(replace(state, tries=0))
        case m.WriteFailed():
            # Retry only: the proofs of the latch find a dead link.
            tries = state.tries + 1
            return ParticipantTransition(
                replace(state, published=False, tries=tries), (SetTimer(Timer.RETRY, tries),)
            )
        case m.AbdicationAsked(reason, epoch):
            if epoch is not None and epoch != state.leadership.epoch:
                return ParticipantTransition(state)  # meant for an older term
            return _drain(state, reason, _after_abdication(event))
        case m.RemoveAsked():
            return _drain(state, "removed from the queue", Leave.OUT)
        case m.AddAsked() | m.Poked() | m.LatchGained() | m.GuardSaid() | m.Drained():
            return ParticipantTransition(state)


def _draining(state: m.Draining, event: Event) -> ParticipantTransition:
    match event:
        case m.Drained(epoch):
            if epoch != state.leadership.epoch:
                return ParticipantTransition(state)
            return _leave(state.reason, state.leave, state.refusals)
        case m.DelayOver() | m.LatchLost() | m.Crashed():
            return _leave(state.reason, state.leave, state.refusals)
        case m.LatchEnded():
            return _after_leaving(m.Leaving(state.reason, state.refusals, state.leave))
        case m.RemoveAsked():
            out = state.leave if state.leave is Leave.CLOSE else Leave.OUT
            return ParticipantTransition(replace(state, leave=out))
        case m.CloseAsked():
            return ParticipantTransition(replace(state, leave=Leave.CLOSE))
        case m.AddAsked():
            return _add_while_leaving(state)
        case m.AbdicationAsked() | m.Poked() | m.LatchGained() | m.LatchVetoed() | m.GuardSaid():
            return ParticipantTransition(state)
        case m.WatchFired() | m.Published() | m.LeaderNodeRefused() | m.WriteFailed():
            return ParticipantTransition(state)


def _leaving(state: m.Leaving, event: Event) -> ParticipantTransition:
    match event:
        case m.LatchEnded():
            return _after_leaving(state)
        case m.RemoveAsked():
            out = state.leave if state.leave is Leave.CLOSE else Leave.OUT
            return ParticipantTransition(replace(state, leave=out))
        case m.CloseAsked():
            return ParticipantTransition(replace(state, leave=Leave.CLOSE))
        case m.AddAsked():
            return _add_while_leaving(state)
        case m.Poked():
            return ParticipantTransition(replace(state, refusals=0))
        case m.AbdicationAsked() | m.LatchGained() | m.LatchLost() | m.LatchVetoed() | m.GuardSaid():
            return ParticipantTransition(state)
        case m.Drained() | m.WatchFired() | m.DelayOver() | m.Published() | m.LeaderNodeRefused():
            return ParticipantTransition(state)
        case m.WriteFailed() | m.Crashed():
            return ParticipantTransition(state)  # the latch withdraws until it is closed


def _after_leaving(state: m.Leaving) -> ParticipantTransition:
    match state.leave:
        case Leave.CLOSE:
            return ParticipantTransition(m.Closed(), (m.EndCore(),))
        case Leave.OUT:
            return ParticipantTransition(m.Outside())
        case Leave.REQUEUE:
            return _queue_up(state.refusals)
        case Leave.BACK_OFF:
            return _back_off(state.reason, state.refusals)


def _backing_off(state: m.BackingOff, event: Event) -> ParticipantTransition:
    match event:
        case m.DelayOver():
            return _queue_up(state.refusals)
        case m.Poked() | m.AddAsked():
            return _queue_up()
        case m.RemoveAsked():
            return ParticipantTransition(m.Outside())
        case m.CloseAsked():
            return ParticipantTransition(m.Closed(), (m.EndCore(),))
        case m.Crashed() | m.WriteFailed():
            return ParticipantTransition(state, (SetTimer(Timer.BACK_OFF, state.refusals),))
        case m.AbdicationAsked() | m.LatchGained() | m.LatchLost() | m.LatchVetoed() | m.LatchEnded():
            return ParticipantTransition(state)
        case m.GuardSaid() | m.Drained() | m.WatchFired() | m.Published() | m.LeaderNodeRefused():
            return ParticipantTransition(state)
