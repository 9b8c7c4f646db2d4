"""An election in the memory of one process: for tests, and what the single node stands on.

It runs the very core that `LeaderLockQueue` runs, latch, epoch and guard, against a ZooKeeper in memory;
only the lock queue lies elsewhere. Nothing expires by itself: within one process nobody dies alone. A test
that wants somebody to lose its session says so (`MemoryElector.lose_session`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import structlog

from leader.clock import Clock, Countdown, boottime
from leader.config import ElectionConfig
from leader.electors.memory_session import MemorySession
from leader.errors import ElectionStateError, FencedOutError
from leader.fencing import FencingToken
from leader.guard import Guard, GuardThread
from leader.inbox import InboxThread
from leader.journal import DeferredJournal, Journal, LogJournal
from leader.latch import events as latch_ev
from leader.notifier import Electable, Notifier
from leader.observers import leader_steps, participants_steps
from leader.office import events as ev
from leader.office.core import OfficeCore
from leader.protocol.paths import ElectionPaths
from leader.protocol.records import LeaderInfo, Leadership, Participant, ParticipantView
from leader.protocol.requests import Check, Request, Steps, Transaction, TransactionFailedError, Write
from leader.status import ElectionStatus
from leader.testing.memory import MemoryZooKeeper

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class MemoryElection:
    """What the participants of one process share: their queues, epochs and leaders, by root. Thread-safe.

    Args:
        clock: Of all participants.
        before: Called with each request before it is done; may refuse it by raising a LeaderError.
    """

    def __init__(
        self, *, clock: Clock = boottime, before: Callable[[Request], None] = lambda _request: None
    ) -> None:
        self.clock, self._before = clock, before
        self._zookeeper = MemoryZooKeeper(clock)
        self._lock = threading.Lock()  # nothing that waits, and no foreign code, runs under it

    def session(self, on_watch: Callable[[str, bool], None]) -> MemorySession:
        """A new session. `on_watch` is called under our lock, by any thread: it must only enqueue."""
        return MemorySession(self._zookeeper, self._lock, self._before, on_watch)

    def write(self, request: Write) -> Any:
        """Write as an operator would, past all sessions; see `MemoryZooKeeper.write`."""
        with self._lock:
            return self._zookeeper.write(request)

    def check(self, token: FencingToken) -> None:
        """Refuse the write of a deposed leader: what a store of your own in memory calls first.

        Raises:
            FencedOutError: The term of this token is over.
        """
        checks = [Check(token.path, token.version)]
        if token.latch is not None:
            checks.append(Check(token.latch))
        try:
            self.write(Transaction(tuple(checks)))
        except TransactionFailedError as exc:
            raise FencedOutError(path=exc.cause.path, epoch=token.epoch) from exc


class MemoryElector:
    """See the module, and `leader.elector.Elector`.

    Threads, from the first `add_to_leader_lock_queue` until `close`: `leader-election`, `leader-notifier`
    and `leader-guard`.

    Args:
        election: Shared by all who queue together.
        config: `root` tells the elections of one process apart.
        participant: Who we are.
        guard: Asked with the lock held and the epoch raised; see `Guard`.
        electable: Told of each leadership.
        journal: Told of each change; writes log lines without it.
    """

    def __init__(
        self,
        election: MemoryElection,
        *,
        config: ElectionConfig,
        participant: Participant,
        guard: Guard,
        electable: Electable,
        journal: Journal | None = None,
    ) -> None:
        self._paths = ElectionPaths(config.root)
        self._session = election.session(self._on_watch)
        self._journal = DeferredJournal(journal or LogJournal(participant.id))
        self._guard = GuardThread(guard)
        self._notifier = Notifier(electable, self._on_electable_failed)
        self._core = OfficeCore(
            session=self._session,
            config=config,
            participant=participant,
            guard=self._guard,
            notifier=self._notifier,
            clock=election.clock,
            uniform=random.uniform,
            journal=self._journal,
            post=self._post,
        )
        self._thread = InboxThread(
            "leader-election",
            due_at=lambda: self._core.due_at,
            expired=lambda: self._do(self._core.expired),
            clock=election.clock,
        )
        self._lifecycle = threading.Lock()
        self._started = False
        self._closed = False

    def add_to_leader_lock_queue(self) -> None:
        """See `Elector.add_to_leader_lock_queue`."""
        with self._lifecycle:
            if self._closed:
                raise ElectionStateError("this elector was closed; make a new one")
            if not self._started:
                self._started = True
                self._session.open()
                self._notifier.start()
                self._guard.start()
                self._thread.start()
                self._tell_link_up()
        self._post(ev.AddAsked())

    def remove_from_leader_lock_queue(self) -> None:
        """See `Elector.remove_from_leader_lock_queue`."""
        self._post(ev.RemoveAsked())

    def close(self, timeout: timedelta) -> None:
        """See `Elector.close`."""
        with self._lifecycle:
            first, self._closed = not self._closed, True
        if not first or not self._started:
            return
        countdown = Countdown(timeout)
        self._post(ev.CloseAsked())
        if not self._thread.join(countdown.remaining()):
            _log.warning("election_still_busy")
            self._thread.post(lambda: self._core.abort("closed"))
            self._thread.end()
        self._session.close()  # and with it whatever is left of us
        if not self._notifier.close(countdown.remaining().total_seconds()):
            _log.warning("electable_still_busy")
        if not self._guard.close(countdown.remaining().total_seconds()):
            _log.warning("guard_still_busy")

    def is_leader(self) -> bool:
        """See `Elector.is_leader`."""
        return self._core.leadership() is not None

    def leadership(self) -> Leadership | None:
        """See `Elector.leadership`."""
        return self._core.leadership()

    def abdicate(self, reason: str) -> None:
        """See `Elector.abdicate`."""
        self._post(ev.AbdicationAsked(reason))

    def poke(self) -> None:
        """See `Elector.poke`."""
        self._post(ev.Poked())

    def publish_readiness(
        self, ready: bool, *, missing: int = 0, missing_bytes: int = 0, reasons: tuple[str, ...] = ()
    ) -> None:
        """See `Elector.publish_readiness`."""
        self._submit(lambda: self._core.readiness(ready, missing, missing_bytes, reasons))

    def get_all_participants(self) -> list[ParticipantView]:
        """See `Elector.get_all_participants`."""
        return self._read(participants_steps(self._paths))

    def get_leader(self) -> LeaderInfo | None:
        """See `Elector.get_leader`."""
        return self._read(leader_steps(self._paths))

    def status(self) -> ElectionStatus:
        """See `Elector.status`."""
        return self._core.status()

    def lose_session(self) -> None:
        """For tests: end our session behind our back, as an ensemble does with one that went silent.

        We lead no more at once, and queue again with a new session.
        """
        self._session.replace()
        self._submit(lambda: self._core.link(latch_ev.SessionGone()))
        self._tell_link_up()

    def _read(self, steps: Steps[T]) -> T:
        return self._session.look_on(steps)

    def _tell_link_up(self) -> None:
        session_id = self._session.session_id
        if session_id is not None:
            self._submit(lambda: self._core.link(latch_ev.LinkUp(session_id)))

    def _post(self, event: ev.Posted) -> None:
        self._submit(lambda: self._core.handle(event))

    def _submit(self, work: Callable[[], Steps[None]]) -> None:
        self._thread.post(lambda: self._do(work))

    def _do(self, work: Callable[[], Steps[None]]) -> None:
        """The election's thread."""
        if self._core.ended:
            return
        try:
            self._session.run(work())
        except Exception:  # noqa: BLE001 - a core answers for all it foresees; this it did not
            _log.exception("election_failed_unforeseen")
            self._core.abort("the election's thread failed")
        self._journal.flush()
        if self._core.ended:
            self._thread.end()

    def _on_watch(self, path: str, gone: bool) -> None:
        """Whoever changed something, under the election's lock: only enqueue."""
        self._submit(lambda: self._core.heard(path, gone))

    def _on_electable_failed(self, leadership: Leadership, reason: str) -> None:
        """The notifier's thread."""
        self._post(ev.AbdicationAsked(reason, leadership.epoch))
