"""One latch, without thread and without I/O of its own.

`handle` takes an event, steps the machine and carries out the effects; what it needs from ZooKeeper it
yields. The driver sends the answers: a thread over kazoo (`leader.runtime.driver`), or the simulator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import assert_never

import structlog

from leader.clock import Clock
from leader.core.backoff import Uniform, jittered
from leader.core.latch import effects as do
from leader.core.latch import events as ev
from leader.core.latch import machine
from leader.core.latch import states as st
from leader.core.latch.effects import Effect, Order, Question, Timer
from leader.core.latch.events import Event
from leader.core.latch.machine import SuspendedPolicy
from leader.core.latch.ports import Claimant, SessionView
from leader.core.latch.states import Node, State
from leader.core.latch.steps import LatchSteps
from leader.core.lease import ZERO, LeadershipLease
from leader.errors import LeaderError
from leader.journal import Journal, Move
from leader.protocol.record import record
from leader.protocol.requests import Steps

_log = structlog.get_logger(__name__)

_RETRY_FIRST = timedelta(milliseconds=100)
_TROUBLE = (ev.CallFailed, ev.Crashed, ev.Refused)
_PROGRESS = (ev.SawSelf, ev.Joined, ev.Claimed, ev.Proven)


@record
class Gained:
    """The lock is held."""

    node: Node


@record
class Lost:
    """It is no longer held."""

    reason: str


@record
class Vetoed:
    """We could have it, but the claimant's rules forbid. `at_once`: somebody better is there."""

    reason: str
    at_once: bool = False


@record
class Ended:
    """Closed, and no node of ours is left."""


News = Gained | Lost | Vetoed | Ended


class LatchCore:
    """See the module. One driver at a time; `lease` may be asked by any thread.

    Args:
        queue: Path of the queue node.
        data: Content of our latch node.
        tell: Called with each piece of news, by the driver, in order; must not block.
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
        self._steps = LatchSteps(session, queue, data, claimant)
        self._queue, self._retry_max, self._tell, self._policy = queue, retry_max, tell, policy
        self._journal = journal
        self._generation = -1  # of the connection on which we last began to look
        self._gained = False
        self.state: State = st.Latent()
        self.due_at: timedelta | None = None
        self.trouble: str | None = None
        """What last went wrong with ZooKeeper; None once something went right."""

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return isinstance(self.state, st.Closed)

    def heard(self, path: str, gone: bool) -> Event | None:
        """Put the firing of a watch into words; None if it says nothing to us."""
        if not gone:
            return ev.WatchFired()
        name = path.rpartition("/")[2]
        if isinstance(self.state, st.Holding) and name != self.state.node.name:
            return None  # it stood before us, and we know
        return ev.NodeGone(name)

    def handle(self, event: Event) -> Steps[None]:
        """Step through `event` and through the answers it leads to."""
        pending: deque[Event] = deque([event])
        while pending:
            try:
                pending.extend((yield from self._step(pending.popleft())))
            except LeaderError as exc:
                pending.clear()
                pending.append(ev.CallFailed(str(exc)) if exc.retryable else ev.Crashed(str(exc)))
            except Exception as exc:  # noqa: BLE001 - never silence: the lock is lost, a retry follows
                _log.exception("latch_failed", state=type(self.state).__name__)
                pending.clear()
                pending.append(ev.Crashed(f"{type(exc).__name__}: {exc}"))

    def _step(self, event: Event) -> Steps[list[Event]]:
        before = self.state
        moved = machine.step(before, event, self._policy)
        self.state = moved.state
        if type(before) is not type(moved.state):
            self.due_at = None
            self._journal.moved(Move("latch", before, moved.state, event))
        self._note(event)
        answers: list[Event] = []
        for effect in moved.effects:
            answer = yield from self._perform(effect)
            if answer is not None:
                answers.append(answer)
        return answers

    def _perform(self, effect: Effect) -> Steps[Event | None]:
        if isinstance(effect, do.Gain):
            return self._gain(effect.node)
        if isinstance(effect, Order):
            self._obey(effect)
            return None
        return (yield from self._ask(effect))

    def _ask(self, question: Question) -> Steps[Event | None]:
        match question:
            case do.Join():
                return (yield from self._join())
            case do.Look(node):
                self._generation = self._session.generation
                return (yield from self._steps.look(node))
            case do.Claim(node):
                return (yield from self._claim(node))
            case do.Prove(node):
                return (yield from self._prove(node))
            case do.Withdraw():
                return (yield from self._steps.withdraw())
            case do.Probe():
                return self._probe()
            case _:
                assert_never(question)

    def _obey(self, order: Order) -> None:
        match order:
            case do.Lose(reason):
                self._lose(reason)
            case do.Bar(reason, at_once):
                self._tell(Vetoed(reason, at_once))
            case do.End():
                self._tell(Ended())
            case do.ForceReconnect():
                self._session.reconnect()
            case do.SetTimer(timer, count):
                self.due_at = self._clock() + self._delay(timer, count)
            case _:
                assert_never(order)

    def _gain(self, node: Node) -> Event | None:
        if not self._lease.begin(self._generation):
            return ev.Refused("the connection broke, or the time ran out, while we took the lock")
        self._gained = True
        self._tell(Gained(node))
        return None

    def _lose(self, reason: str) -> None:
        self._lease.end()
        if self._gained:
            self._gained = False
            self._tell(Lost(reason))

    def _join(self) -> Steps[Event]:
        submitted = self._clock()
        joined = yield from self._steps.join()
        self._lease.restart(joined.node.session_id)
        if joined.made:  # one that was found proves nothing of now
            self._lease.proven(submitted)
        return joined

    def _claim(self, node: Node) -> Steps[Event]:
        """Claim, on a proof that is young enough to hold the lock for a while."""
        objection = self._lease.objection()
        if objection is not None:
            return ev.Barred(objection)
        enough = self._session.negotiated_timeout / 4
        if self._lease.remaining() < enough:
            proven = yield from self._prove(node)
            if not isinstance(proven, ev.Proven):
                return proven
            if self._lease.remaining() < enough:  # after a long silence one proof is not enough
                return ev.Postponed("the session must prove itself once more")
        submitted = self._clock()
        answer = yield from self._steps.claim(node)
        if isinstance(answer, ev.Claimed) and answer.by_us:
            self._lease.proven(submitted)
        return answer

    def _prove(self, node: Node) -> Steps[Event]:
        submitted = self._clock()
        answer = yield from self._steps.prove(node)
        if not isinstance(answer, ev.Proven):
            return answer
        if not self._lease.proven(submitted):
            return ev.CallFailed("the proof that we still hold the lock came after the deadline")
        if self._gained and not self._lease.stands(self._lease.hold):
            # Whatever we were not told: who cannot say that it leads must not keep others from leading.
            return ev.Refused("the connection broke without a word")
        return answer

    def _probe(self) -> Event | None:
        """In case kazoo's news were lost or came in another order."""
        self._session.heal()
        session_id = self._session.session_id
        return ev.LinkUp(session_id) if self._session.is_connected and session_id is not None else None

    def _delay(self, timer: Timer, count: int) -> timedelta:
        session_timeout = self._session.negotiated_timeout
        match timer:
            case Timer.PROOF:
                return session_timeout / 4
            case Timer.FIRST_PROOF:
                return session_timeout * 0.18  # a little more than two proofs must be apart
            case Timer.PATROL:
                return session_timeout * 3  # watches tell us sooner; this is for the one that got lost
            case Timer.DEADLINE:
                return max(self._lease.remaining(), ZERO)
            case Timer.RETRY:
                return jittered(_RETRY_FIRST, self._retry_max, count, self._uniform)

    def _note(self, event: Event) -> None:
        """Keep for the status what the state does not hold."""
        if isinstance(event, _PROGRESS):
            self.trouble = None
        elif isinstance(event, _TROUBLE) or (isinstance(event, ev.Barred) and not event.at_once):
            self.trouble = event.reason
            _log.warning("latch_trouble", state=type(self.state).__name__, reason=event.reason)
