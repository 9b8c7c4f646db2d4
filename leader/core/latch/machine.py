"""The state machine of a latch. Pure: the same inputs give the same transition.

The invariants; `tests/leader/property/test_latch_laws.py` checks them with random histories:

1. `Gained` follows only a committed write that checked the latch's node while that node was the oldest, or
   that made it the oldest.
2. `Gained` and `LatchLost` alternate, beginning with `Gained`. `LatchEnded` comes once, last, and never while
   the lock is held.
3. A request without an answer never leads to the lock: the latch reads the queue again.
4. `LatchEnded` comes only when every node of the latch is known to be gone. A state may drop its node
   earlier, when the session is over: `LatchSteps` remembers that node, and the next join or withdrawal
   deletes it.
5. From `Started` until `Closed`, a timer is set or a request is under way: no state waits for ever.

There is one function for each state, without a catch-all. So the type check finds a new event that a state
does not handle.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from leader.core.latch import model as m
from leader.core.latch.model import Effect, Event, LatchTimer, Node, SetLatchTimer, State
from leader.protocol.record import record

PROOFS_BEFORE_READ = 12
"""Number of proofs after which a waiting latch reads the queue, in case a watch was lost."""


PROVES_FROM = 2
"""Participants at this position or ahead of it send proofs while they wait.

So after each of two hand-overs in a row, the new holder already has fresh proofs.
"""


class SuspendedPolicy(Enum):
    """What a broken connection means for the holder of the lock (Curator's ConnectionStateErrorPolicy).

    STANDARD: the lock is lost at once. SESSION: the lock is lost when the session is over, or when the
    deadline has passed, whichever the latch notices first.
    """

    STANDARD = "standard"
    SESSION = "session"


@record
class LatchTransition:
    """The next state, and the effects that the core must perform, in this order."""

    state: State
    effects: tuple[Effect, ...] = ()


def step(state: State, event: Event, policy: SuspendedPolicy = SuspendedPolicy.STANDARD) -> LatchTransition:
    """Returns the transition that `event` causes in `state`. See the module."""
    match state:  # the most urgent first
        case m.Holding():
            return _holding(state, event, policy)
        case m.Waiting():
            return _waiting(state, event)
        case m.Claiming():
            return _claiming(state, event)
        case m.Withdrawing():
            return _withdrawing(state, event)
        case m.Suspended():
            return _suspended(state, event)
        case m.Joining():
            return _joining(state, event)
        case m.Latent():
            return _latent(state, event)
        case m.LatchClosed():
            return LatchTransition(state)


# --- moves that several states make -------------------------------------------------------------


def _join() -> LatchTransition:
    return LatchTransition(m.Joining(), (m.Join(),))


def _join_later(tries: int) -> LatchTransition:
    return LatchTransition(m.Joining(tries), (SetLatchTimer(LatchTimer.RETRY, tries),))


def _read_queue(node: Node, tries: int = 0) -> LatchTransition:
    return LatchTransition(m.Waiting(node, tries=tries), (m.ReadQueue(node),))


def _read_queue_later(node: Node, tries: int = 1) -> LatchTransition:
    return LatchTransition(m.Waiting(node, tries=tries), (SetLatchTimer(LatchTimer.RETRY, tries),))


def _relinked(node: Node, session_id: int) -> LatchTransition:
    """Go on after a reconnect: the watches are gone; the node exists only if the session is the same."""
    return _read_queue(node) if session_id == node.session_id else _join()


def _suspend(node: Node) -> LatchTransition:
    return LatchTransition(m.Suspended(node), (SetLatchTimer(LatchTimer.RETRY),))


def _withdraw() -> LatchTransition:
    return LatchTransition(m.Withdrawing(), (m.Withdraw(),))


def _claim(node: Node) -> LatchTransition:
    return LatchTransition(m.Claiming(node), (m.TakeLock(node),))


def _lost(reason: str, then: LatchTransition) -> LatchTransition:
    """Report the loss of the lock before the effects of `then`."""
    return LatchTransition(then.state, (m.LatchLost(reason), *then.effects))


# --- states -------------------------------------------------------------------------------------


def _latent(state: m.Latent, event: Event) -> LatchTransition:
    match event:
        case m.Started():
            return _join()
        case m.LatchCloseAsked():
            return LatchTransition(m.LatchClosed(), (m.LatchEnded(),))
        case m.LinkUp() | m.LinkDown() | m.SessionGone() | m.QueueChanged() | m.NodeGone() | m.TimerDue():
            return LatchTransition(state)
        case m.Joined() | m.SawSelf() | m.LatchGone() | m.Claimed() | m.Postponed() | m.Barred():
            return LatchTransition(state)
        case m.Proven() | m.Refused() | m.CallFailed() | m.Withdrawn():
            return LatchTransition(state)


def _joining(state: m.Joining, event: Event) -> LatchTransition:
    match event:
        case m.LinkUp() | m.TimerDue():
            return LatchTransition(state, (m.Join(),))
        case m.Joined(node):
            return _read_queue(node, state.tries)  # keeps `tries`: another client may delete each new node
        case m.CallFailed() | m.Refused() | m.Barred() | m.Postponed() | m.LatchGone():
            return _join_later(state.tries + 1)
        case m.LatchCloseAsked():
            return _withdraw()
        case m.Started() | m.LinkDown() | m.SessionGone() | m.QueueChanged() | m.NodeGone():
            return LatchTransition(state)  # there is no node to lose, and the retry timer runs
        case m.SawSelf() | m.Claimed() | m.Proven() | m.Withdrawn():
            return LatchTransition(state)  # about a node that the latch no longer has


def _waiting(state: m.Waiting, event: Event) -> LatchTransition:  # noqa: C901 - one branch for each group of events
    match event:
        case m.SawSelf(place):
            if place.position == 0:
                return _claim(state.node)
            if place.position <= PROVES_FROM:  # a claim needs fresh proofs
                return LatchTransition(m.Waiting(state.node, place), (m.Prove(state.node),))
            return LatchTransition(m.Waiting(state.node, place), (SetLatchTimer(LatchTimer.PATROL),))
        case m.NodeGone(name):
            # The second in the queue is now the oldest: new latches join at the end. The claim will prove it.
            next_in_line = state.place is not None and state.place.position == 1
            if next_in_line and state.place is not None and state.place.before == name:
                return _claim(state.node)
            return LatchTransition(state, (m.ReadQueue(state.node),))
        case m.TimerDue():
            return _timer_due(state)
        case m.QueueChanged():
            return LatchTransition(state, (m.ReadQueue(state.node),))
        case m.Proven():
            return LatchTransition(
                replace(state, proofs=state.proofs + 1, tries=0), (SetLatchTimer(LatchTimer.PROOF),)
            )
        case m.LinkUp(session_id):
            return _relinked(state.node, session_id)
        case m.LinkDown():
            return _suspend(state.node)
        case m.LatchGone() if state.place is None:  # another client deletes each new node
            return _join_later(state.tries + 1)
        case m.SessionGone() | m.LatchGone():
            return _join()
        case m.CallFailed() | m.Refused():
            # Forget `place`: a claim must not rely on what was read over a link that fails.
            return _read_queue_later(state.node, state.tries + 1)
        case m.LatchCloseAsked():
            return _withdraw()
        case m.Started() | m.Joined() | m.Claimed() | m.Postponed() | m.Barred() | m.Withdrawn():
            return LatchTransition(state)


def _timer_due(state: m.Waiting) -> LatchTransition:
    soon_in_line = state.place is not None and 0 < state.place.position <= PROVES_FROM
    if soon_in_line and state.proofs < PROOFS_BEFORE_READ:
        return LatchTransition(state, (m.Prove(state.node),))
    return LatchTransition(state, (m.ReadQueue(state.node),))


def _claiming(state: m.Claiming, event: Event) -> LatchTransition:  # noqa: C901 - one branch for each group of events
    match event:
        case m.Claimed():
            holding = m.Holding(state.node)
            return LatchTransition(holding, (m.Gained(state.node), SetLatchTimer(LatchTimer.FIRST_PROOF)))
        case m.Postponed():
            # When the timer is due, the latch claims again. Its next proof confirms the last one.
            return LatchTransition(
                m.Waiting(state.node, m.Place(0)), (SetLatchTimer(LatchTimer.FIRST_PROOF),)
            )
        case m.Barred(reason, at_once):
            waiting = m.Waiting(state.node, m.Place(0))
            return LatchTransition(
                waiting, (m.LatchVetoed(reason, at_once), SetLatchTimer(LatchTimer.PATROL))
            )
        case m.Refused() | m.CallFailed():
            return _read_queue_later(state.node)
        case m.LatchGone():  # deleted since the read
            return _join_later(tries=1)
        case m.SessionGone():
            return _join()
        case m.LinkUp(session_id):
            return _relinked(state.node, session_id)
        case m.LinkDown():
            return _suspend(state.node)
        case m.LatchCloseAsked():
            return _withdraw()
        case m.TimerDue():  # the driver failed before the answer came
            return _read_queue(state.node)
        case m.Started() | m.QueueChanged() | m.NodeGone() | m.Joined() | m.SawSelf():
            return LatchTransition(state)
        case m.Proven() | m.Withdrawn():
            return LatchTransition(state)


def _holding(  # noqa: C901 - one branch for each group of events
    state: m.Holding, event: Event, policy: SuspendedPolicy
) -> LatchTransition:
    match event:
        case m.LatchCloseAsked(reason):
            return _lost(reason, _withdraw())
        case m.TimerDue():
            return LatchTransition(state, (m.Prove(state.node),))
        case m.Proven():
            return LatchTransition(state, (SetLatchTimer(LatchTimer.PROOF),))
        case m.NodeGone(name) if name == state.node.name:
            # The same watch event tells the next in the queue, so report the loss at once, without a read.
            return _lost("the latch node was deleted", _join())
        case m.QueueChanged() | m.NodeGone():
            return LatchTransition(state, (m.ReadQueue(state.node),))
        case m.SawSelf(place):
            if place.position == 0:
                return LatchTransition(state, (m.Prove(state.node),))
            return _lost("an older latch is in the queue", _read_queue_later(state.node))
        case m.LinkUp(session_id):
            if session_id == state.node.session_id:
                return LatchTransition(state, (m.ReadQueue(state.node),))
            return _lost("the session was replaced", _join())
        case m.LinkDown():
            if policy is SuspendedPolicy.SESSION:
                return LatchTransition(
                    m.Suspended(state.node, held=True), (SetLatchTimer(LatchTimer.DEADLINE),)
                )
            return _lost("the connection to ZooKeeper broke", _suspend(state.node))
        case m.SessionGone():
            return _lost("the ZooKeeper session is over", _join())
        case m.LatchGone():
            return _lost("the latch node was deleted", _join())
        case m.CallFailed(reason):
            # The link may be dead although kazoo still reports it as connected.
            if policy is SuspendedPolicy.SESSION:
                held = m.Suspended(state.node, held=True)
                return LatchTransition(held, (m.ForceReconnect(), SetLatchTimer(LatchTimer.DEADLINE)))
            suspended = _suspend(state.node)
            return _lost(reason, LatchTransition(suspended.state, (m.ForceReconnect(), *suspended.effects)))
        case m.Refused(reason):
            return _lost(reason, _read_queue_later(state.node))
        case m.Started() | m.Joined() | m.Claimed() | m.Postponed() | m.Barred() | m.Withdrawn():
            return LatchTransition(state)


def _suspended(state: m.Suspended, event: Event) -> LatchTransition:
    match event:
        case m.LinkUp(session_id):
            if not state.held:
                return _relinked(state.node, session_id)
            if session_id == state.node.session_id:
                return LatchTransition(m.Holding(state.node), (m.ReadQueue(state.node),))
            return _lost("the session was replaced", _join())
        case m.SessionGone() | m.LatchGone():
            return _lost("the ZooKeeper session is over", _join()) if state.held else _join()
        case m.TimerDue():
            probe = LatchTransition(m.Suspended(state.node), (SetLatchTimer(LatchTimer.RETRY, 3), m.Probe()))
            return _lost("the deadline of the last proof passed", probe) if state.held else probe
        case m.CallFailed():
            timer = SetLatchTimer(LatchTimer.DEADLINE) if state.held else SetLatchTimer(LatchTimer.RETRY, 3)
            return LatchTransition(state, (timer,))
        case m.LatchCloseAsked(reason):
            return _lost(reason, _withdraw()) if state.held else _withdraw()
        case m.Started() | m.LinkDown() | m.QueueChanged() | m.NodeGone() | m.Joined() | m.SawSelf():
            return LatchTransition(state)
        case m.Claimed() | m.Postponed() | m.Barred() | m.Proven() | m.Refused() | m.Withdrawn():
            return LatchTransition(state)


def _withdrawing(state: m.Withdrawing, event: Event) -> LatchTransition:
    match event:
        case m.Withdrawn():
            return LatchTransition(m.LatchClosed(), (m.LatchEnded(),))
        case m.LinkUp() | m.TimerDue() | m.LatchCloseAsked():
            return LatchTransition(state, (m.Withdraw(),))
        case m.CallFailed() | m.Refused() | m.Barred() | m.Postponed():
            tries = state.tries + 1
            return LatchTransition(m.Withdrawing(tries), (SetLatchTimer(LatchTimer.RETRY, tries),))
        case m.Started() | m.LinkDown() | m.SessionGone() | m.QueueChanged() | m.NodeGone():
            return LatchTransition(state)  # forget no node before it is known to be gone
        case m.Joined() | m.SawSelf() | m.LatchGone() | m.Claimed() | m.Proven():
            return LatchTransition(state)
