"""The shell of the state machine: one thread, one inbox, one timer.

Everything that happens arrives in the inbox: from kazoo's threads (which only enqueue), from the guard's
thread, from the owner. The thread `leader-elector` takes one event, steps the machine, runs the
effects and feeds the answers back. Only it talks to ZooKeeper.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import assert_never

import structlog

from leader import effects as do
from leader import events as ev
from leader import machine
from leader import states as st
from leader.clock import Clock
from leader.config import ElectionConfig
from leader.effects import Effect, Order, Question, Timer
from leader.errors import LeaderError
from leader.events import Event
from leader.guard import GuardRunner, Verdict
from leader.notifier import Notifier
from leader.protocol.records import Leadership
from leader.states import State
from leader.status import ElectionStatus, epoch_of, phase_of, position_of
from leader.store import ElectionStore
from leader.tenure import Tenure
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)

_RETRY_FIRST = timedelta(milliseconds=100)


class Elector:
    """See the module. `post` may be called by any thread; `run` by one."""

    def __init__(
        self,
        *,
        store: ElectionStore,
        session: ZooKeeperSession,
        config: ElectionConfig,
        guard: GuardRunner,
        notifier: Notifier,
        tenure: Tenure,
        clock: Clock,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._store, self._session, self._config = store, session, config
        self._guard, self._notifier, self._tenure = guard, notifier, tenure
        self._clock, self._uniform = clock, uniform
        self._inbox: SimpleQueue[Event] = SimpleQueue()
        self._halt = threading.Event()
        self._state: State = st.Latent()
        self._due_at: timedelta | None = None
        self._granted: Leadership | None = None
        self._proofs = (timedelta(0), timedelta(0))
        self._handover: threading.Event | None = None
        self._last_abdication: str | None = None
        self._last_verdict: Verdict | None = None
        self._trouble: str | None = None
        self._status = ElectionStatus(phase_of(self._state))

    def post(self, event: Event) -> None:
        """Put an event into the inbox. Never blocks."""
        self._inbox.put(event)

    def halt(self) -> None:
        """End the thread soon, even if ZooKeeper has not confirmed that our latch is gone."""
        self._halt.set()
        self._inbox.put(ev.Nudged())

    def status(self) -> ElectionStatus:
        """The newest status."""
        status, due_at = self._status, self._due_at
        if status.phase is not phase_of(st.BackingOff("")) or due_at is None:
            return status
        return _with_remaining(status, max(due_at - self._clock(), timedelta(0)))

    def run(self) -> None:
        """Work until closed or halted. Leadership ends when this returns, however it does."""
        try:
            while not isinstance(self._state, st.Closed) and not self._halt.is_set():
                self._advance(self._next_event())
        finally:
            self._revoke("the elector ended")
            self._state = st.Closed()
            self._publish()

    def _next_event(self) -> Event:
        """Wait for an event or for the timer."""
        if self._due_at is None:
            return self._inbox.get()
        wait = (self._due_at - self._clock()).total_seconds()
        if wait > 0:
            try:
                return self._inbox.get(timeout=wait)
            except Empty:
                _log.debug("timer_due")
        self._due_at = None
        return ev.Due()

    def _advance(self, event: Event) -> None:
        """Step through `event` and through the answers it leads to."""
        pending: deque[Event] = deque([event])
        while pending:
            self._note(pending[0])
            try:
                pending.extend(self._step(pending.popleft()))
            except LeaderError as exc:
                pending.clear()
                failure = ev.Troubled(str(exc)) if exc.retryable else ev.Crashed(str(exc))
                pending.append(failure)
            except Exception as exc:  # noqa: BLE001 - never silence: leadership ends, a retry follows
                _log.exception("elector_failed", state=type(self._state).__name__)
                pending.clear()
                pending.append(ev.Crashed(f"{type(exc).__name__}: {exc}"))

    def _step(self, event: Event) -> list[Event]:
        before = self._state
        moved = machine.step(before, event)
        self._state = moved.state
        if type(before) is not type(moved.state):
            self._due_at = None
            _log.info(
                "election_moved",
                was=type(before).__name__,
                now=type(moved.state).__name__,
                on=type(event).__name__,
                epoch=epoch_of(moved.state),
            )
        self._publish()
        answers = [self._perform(effect) for effect in moved.effects]
        self._publish()
        return [answer for answer in answers if answer is not None]

    def _perform(self, effect: Effect) -> Event | None:
        if isinstance(effect, Order):
            self._obey(effect)
            return None
        return self._ask(effect)

    def _ask(self, question: Question) -> Event | None:
        match question:
            case do.Join():
                return self._store.join()
            case do.Look(latch):
                return self._store.look(latch)
            case do.TakeEpoch(latch):
                return self._store.take_epoch(latch)
            case do.Announce():
                return self._announce(question)
            case do.KeepAnnounced(latch, leadership):
                return self._store.keep_announced(latch, leadership)
            case do.Prove():
                return self._prove(question)
            case do.Withdraw():
                return self._store.withdraw()
            case do.Probe():
                return self._probe()

    def _obey(self, order: Order) -> None:
        match order:
            case do.AskGuard(epoch):
                self._guard.ask(epoch)
            case do.Grant(leadership):
                self._grant(leadership)
            case do.Revoke(_, reason, handover):
                self._revoke(reason, handover=handover)
            case do.ForceReconnect():
                self._session.reconnect()
            case do.SetTimer(timer, count):
                self._due_at = self._clock() + self._delay(timer, count)
            case _:
                assert_never(order)

    def _announce(self, effect: do.Announce) -> Event:
        first = self._clock()
        proven = self._store.prove(effect.latch, effect.leadership)
        if not isinstance(proven, ev.Proven):
            return proven
        self._proofs = (first, self._clock())
        return self._store.announce(effect.latch, effect.leadership)

    def _prove(self, effect: do.Prove) -> Event:
        remaining = self._tenure.remaining()
        if remaining <= timedelta(0):
            return ev.Troubled("the deadline passed before we could prove that we still lead")
        submitted = self._clock()
        limit = min(remaining, self._session.negotiated_timeout / 3)
        outcome = self._store.prove(effect.latch, effect.leadership, limit)
        if isinstance(outcome, ev.Proven) and not self._tenure.prolong(submitted):
            return ev.Troubled("the proof that we still lead came after the deadline")
        return outcome

    def _grant(self, leadership: Leadership) -> None:
        self._tenure.grant(leadership, generation=self._store.generation, proofs=self._proofs)
        self._granted = leadership
        self._last_abdication = None
        _log.info("leadership_granted", epoch=leadership.epoch)
        self._notifier.elected(leadership)

    def _revoke(self, reason: str, *, handover: bool = False) -> None:
        self._tenure.end()
        leadership, self._granted = self._granted, None
        if leadership is None:
            return
        self._last_abdication = reason
        _log.info("leadership_revoked", epoch=leadership.epoch, reason=reason)
        done = self._notifier.revoked(leadership, reason)
        if handover and not done.wait(self._config.handover_timeout.total_seconds()):
            _log.warning("handover_slow", epoch=leadership.epoch)

    def _probe(self) -> Event | None:
        """In case kazoo's news were lost or came in another order."""
        self._session.heal()
        session_id = self._session.session_id
        return ev.LinkUp(session_id) if self._session.is_connected and session_id is not None else None

    def _delay(self, timer: Timer, count: int) -> timedelta:
        config, session_timeout = self._config, self._session.negotiated_timeout
        match timer:
            case Timer.GUARD:
                return config.guard_timeout
            case Timer.PROOF:
                return session_timeout / 4
            case Timer.PATROL:
                return session_timeout * 3  # watches tell us sooner; this is for the one that got lost
            case Timer.BACK_OFF:
                return self._jittered(config.requeue_backoff_min, config.requeue_backoff_max, count)
            case Timer.RETRY:
                return self._jittered(_RETRY_FIRST, config.retry_max, count)

    def _jittered(self, first: timedelta, longest: timedelta, count: int) -> timedelta:
        """Full jitter below a doubling bound: who failed together shall not return together."""
        doublings = min(max(count - 1, 0), 20)  # 2 ** 20 is far above any bound
        bound = min(first * (1 << doublings), longest)
        return bound * self._uniform(0.05, 1.0)

    def _note(self, event: Event) -> None:
        """Keep for the status what the state does not hold."""
        match event:
            case ev.GuardSaid(_, ready, reasons):
                self._last_verdict = Verdict(ready, reasons)
            case ev.Troubled(reason) | ev.Crashed(reason) | ev.Refused(reason) | ev.Barred(reason):
                self._trouble = reason
                _log.warning("election_trouble", state=type(self._state).__name__, reason=reason)
            case ev.SawSelf() | ev.Joined() | ev.Announced() | ev.Proven():
                self._trouble = None
            case _:
                return

    def _publish(self) -> None:
        if isinstance(self._state, st.Withdrawing | st.BackingOff):
            self._last_abdication = self._state.reason
        self._status = ElectionStatus(
            phase=phase_of(self._state),
            epoch=epoch_of(self._state),
            position=position_of(self._state),
            last_abdication=self._last_abdication,
            last_verdict=self._last_verdict,
            trouble=self._trouble,
        )


def _with_remaining(status: ElectionStatus, remaining: timedelta) -> ElectionStatus:
    return ElectionStatus(
        phase=status.phase,
        position=status.position,
        last_abdication=status.last_abdication,
        last_verdict=status.last_verdict,
        back_off_remaining=remaining,
        trouble=status.trouble,
    )
