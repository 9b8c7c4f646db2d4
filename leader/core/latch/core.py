"""One latch, without threads and without I/O. It yields requests to ZooKeeper; the driver sends the answers.

The driver is a thread over kazoo (`leader.runtime.driver`), or the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import assert_never

import structlog

from leader.clock import RETRY_FIRST, Clock, Uniform, jittered
from leader.core.latch import machine
from leader.core.latch import model as m
from leader.core.latch.machine import SuspendedPolicy
from leader.core.latch.model import Effect, Event, LatchTimer, News, Node, State
from leader.core.latch.steps import Claimant, LatchSteps
from leader.core.lease import APART, ZERO, LeadershipLease, SessionView
from leader.errors import LeaderError
from leader.journal import Journal, Move
from leader.protocol.requests import Steps

_log = structlog.get_logger(__name__)

_FIRST_PROOF_MARGIN = 1.08
"""The first proof comes later than `APART` requires by this factor, so it surely confirms the one before."""

_TROUBLE = (m.CallFailed, m.Refused)
_PROGRESS = (m.SawSelf, m.Joined, m.Claimed, m.Proven)


class LatchCore:
    """See the module. Only the driver calls it; any thread may call `lease.stands`.

    `tell` is called with each report to the owner, in order; it must not block.
    """

    def __init__(
        self,
        *,
        session: SessionView,
        queue: str,
        data: bytes,
        claimant: Claimant,
        lease: LeadershipLease,
        clock: Clock,
        uniform: Uniform,
        retry_max: timedelta,
        tell: Callable[[News], None],
        journal: Journal,
        policy: SuspendedPolicy = SuspendedPolicy.STANDARD,
    ) -> None:
        self._session, self._lease, self._clock, self._uniform = session, lease, clock, uniform
        self._claimant = claimant
        self._steps = LatchSteps(session, queue, data, claimant)
        self._retry_max, self._tell, self._policy = retry_max, tell, policy
        self._journal = journal
        self._generation = -1  # of the connection at the start of the last read
        self._asked_on: int | None = None  # generation at the last read or proof; None without a connection
        self._gained = False
        self.state: State = m.Latent()
        self.due_at: timedelta | None = None
        """When the driver must call `expired`."""
        self.trouble: str | None = None
        """Why the latch last failed to join, claim or prove; None after the next success."""

    @property
    def ended(self) -> bool:
        """True when the latch is closed: it sends no more requests and reports."""
        return isinstance(self.state, m.LatchClosed)

    @property
    def place(self) -> m.Place | None:
        """The place in the queue when it was last read; None if it is not known."""
        match self.state:
            case m.Waiting(_, place):
                return place
            case m.Claiming() | m.Holding():
                return m.Place(0)
            case m.Latent() | m.Joining() | m.Suspended() | m.Withdrawing() | m.LatchClosed():
                return None

    # --- called by the driver ---------------------------------------------------------------------

    def watch_fired(self, path: str, gone: bool) -> Steps[None]:
        """Handle a watch that fired on `path`. `gone`: True if the node was deleted."""
        if not gone:
            yield from self.handle(m.QueueChanged())
            return
        name = path.rpartition("/")[2]
        if isinstance(self.state, m.Holding) and name != self.state.node.name:
            return  # the latch that was before this one: known to be gone
        yield from self.handle(m.NodeGone(name))

    def handed_over(self) -> Steps[None]:
        """Handle a hand-over: the participant before this one has raised the epoch and deleted its latch."""
        place = self.place
        if place is not None and place.before is not None:
            yield from self.handle(m.NodeGone(place.before))

    def link(self, event: m.LinkEvent) -> Steps[None]:
        """Handle a change of the session's state."""
        yield from self.handle(event)

    def expired(self) -> Steps[None]:
        """Handle the timer: `due_at` has come."""
        self.due_at = None
        yield from self.handle(m.TimerDue())

    def abort(self, reason: str) -> None:
        """Lose the lock, in any state, because the driver failed or ends.

        If the driver continues, the timer, which is due now, leads the latch back to the queue.
        """
        self._lose(reason)
        self.due_at = self._clock()

    def handle(self, event: Event) -> Steps[None]:
        """Handle `event`, and each answer that follows from it."""
        answer: Event | None = event
        while answer is not None:
            try:
                answer = yield from self._step(answer)
            except LeaderError as exc:
                answer = m.CallFailed(str(exc))
            except Exception as exc:  # noqa: BLE001 - no error is ignored: the lock is lost, a retry follows
                _log.exception("latch_failed", state=type(self.state).__name__)
                answer = m.CallFailed(f"{type(exc).__name__}: {exc}")

    # --- steps and effects ------------------------------------------------------------------------

    def _step(self, event: Event) -> Steps[Event | None]:
        """Handle `event` alone. Returns the answer to its effects, if there is one."""
        before = self.state
        moved = machine.step(before, event, self._policy)
        self.state = moved.state
        if type(before) is not type(moved.state):
            self.due_at = None
            self._journal.record(Move("latch", before, moved.state, event))
        self._note(event)
        answer: Event | None = None
        for effect in moved.effects:
            answered = yield from self._perform(effect)
            answer = answer if answered is None else answered
        return answer

    def _perform(self, effect: Effect) -> Steps[Event | None]:  # noqa: C901 - one branch for each effect
        match effect:  # the most urgent first
            case m.Gained(node):
                return self._gain(node)
            case m.LatchLost(reason):
                self._lose(reason)
            case m.TakeLock(node):
                return (yield from self._claim(node))
            case m.SetLatchTimer(timer, count):
                self.due_at = self._clock() + self._delay(timer, count)
            case m.Prove(node):
                return (yield from self._prove(node))
            case m.ReadQueue(node):
                self._generation = self._session.liveness.facts.generation
                self._note_link()
                return (yield from self._steps.read_queue(node))
            case m.Join():
                return (yield from self._join())
            case m.Withdraw():
                return (yield from self._steps.withdraw())
            case m.LatchVetoed() | m.LatchEnded():
                self._tell(effect)
            case m.ForceReconnect():
                if self._session.liveness.facts.generation == self._asked_on:  # else it was replaced
                    self._session.reconnect()
            case m.Probe():
                return self._probe()
            case _:
                assert_never(effect)
        return None

    def _gain(self, node: Node) -> Event | None:
        if not self._lease.begin(self._generation):
            return m.Refused("the connection broke, or the deadline passed, while the lock was taken")
        self._gained = True
        self._tell(m.Gained(node))
        return None

    def _lose(self, reason: str) -> None:
        self._lease.end()
        if self._gained:
            self._gained = False
            self._tell(m.LatchLost(reason))

    def _join(self) -> Steps[Event]:
        submitted = self._clock()
        joined = yield from self._steps.join()
        self._lease.restart(joined.node.session_id)
        if joined.made:  # a node that was found is known by a read, which proves nothing
            self._lease.proven(submitted)
        return joined

    def _claim(self, node: Node) -> Steps[Event]:
        """Claim the lock, if the proofs leave enough time to hold it: a quarter of the session timeout."""
        objection = self._lease.objection()
        if objection is not None:
            return m.Barred(objection)
        enough = self._session.liveness.facts.timeout / 4
        if self._lease.remaining() < enough:
            proven = yield from self._prove(node)
            if not isinstance(proven, m.Proven):
                return proven
            if self._lease.remaining() < enough:  # after a time without proofs, one proof is not enough
                return m.Postponed("the session needs one more proof")
        submitted = self._clock()
        answer = yield from self._claimant.claim(node)
        if isinstance(answer, m.Claimed) and answer.by_us:
            self._lease.proven(submitted)
        return answer

    def _prove(self, node: Node) -> Steps[Event]:
        submitted = self._clock()
        self._note_link()
        answer = yield from self._claimant.prove(node)
        if not isinstance(answer, m.Proven):
            return answer
        if not self._lease.proven(submitted):
            return m.CallFailed("the answer to the proof of the lock came after the deadline")
        if isinstance(self.state, m.Holding) and not self._lease.stands(self._lease.hold):
            # The lease is over without an event. A participant that does not lead must not keep the lock.
            return m.Refused("the lease ended, and no event said why")
        return answer

    def _note_link(self) -> None:
        facts = self._session.liveness.facts
        self._asked_on = facts.generation if facts.is_connected else None

    def _probe(self) -> Event | None:
        """Returns LinkUp if connected, in case kazoo's events were lost or came in another order."""
        facts = self._session.liveness.facts
        return m.LinkUp(facts.session_id) if facts.is_connected and facts.session_id is not None else None

    def _delay(self, timer: LatchTimer, count: int) -> timedelta:
        session_timeout = self._session.liveness.facts.timeout
        match timer:
            case LatchTimer.PROOF:
                return session_timeout / 4
            case LatchTimer.FIRST_PROOF:
                return session_timeout * _FIRST_PROOF_MARGIN / APART
            case LatchTimer.PATROL:
                return session_timeout * 3  # in case a watch was lost; else it fires earlier
            case LatchTimer.DEADLINE:
                return max(self._lease.remaining(), ZERO)
            case LatchTimer.RETRY:
                return jittered(RETRY_FIRST, self._retry_max, count, self._uniform)

    def _note(self, event: Event) -> None:
        """Keep for the status, and log, why a request failed. A success clears it."""
        if isinstance(event, _PROGRESS):
            self.trouble = None
        elif isinstance(event, _TROUBLE) or (isinstance(event, m.Barred) and not event.at_once):
            self.trouble = event.reason
            _log.warning("latch_trouble", state=type(self.state).__name__, reason=event.reason)
