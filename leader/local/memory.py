"""An election in the memory of one process: for tests, and what the single node stands on.

It runs the very core that `LeaderLockQueue` runs, latch, epoch and guard, against a ZooKeeper in memory;
only the lock queue lies elsewhere. Nothing expires by itself: within one process nobody dies alone. A test
that wants somebody to lose its session says so (`MemoryElector.lose_session`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import structlog

from leader.clock import Clock, Countdown, boottime
from leader.config import ElectionConfig
from leader.core.latch import model as latch_m
from leader.errors import FencedOutError
from leader.guard import Guard
from leader.journal import Journal
from leader.local.session import MemorySession
from leader.local.zookeeper import MemoryZooKeeper
from leader.protocol.participant import Participant
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Request, Transaction, TransactionFailedError, Write
from leader.protocol.terms import EpochRecord, FencingToken, LeaderInfo
from leader.protocol.view import ParticipantView, epoch_steps, leader_steps, participants_steps
from leader.runtime.base_elector import BaseElector
from leader.runtime.callbacks import Electable
from leader.runtime.driver import Driver

_log = structlog.get_logger(__name__)

_LAST_WAIT = timedelta(seconds=1)
"""For what is under way when we are ended by force: all is in memory."""


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
        try:
            self.write(Transaction(token.checks()))
        except TransactionFailedError as exc:
            raise FencedOutError(path=exc.cause.path, epoch=token.epoch) from exc


class MemoryElector(BaseElector):
    """See the module, and `leader.elector.Elector`.

    Threads, from the first `add_to_leader_lock_queue` until `close`: `leader-election` and
    `leader-callbacks`.

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
        super().__init__(
            self._session,
            config=config,
            participant=participant,
            guard=guard,
            electable=electable,
            journal=journal,
            clock=election.clock,
        )
        self._driver = Driver(
            self._core,
            self._session.run,
            last_wait=lambda: _LAST_WAIT,
            clock=election.clock,
            journal=self._journal,
            name="leader-election",
            on_end=self._callbacks.end,
        )

    def get_all_participants(self) -> list[ParticipantView]:
        """See `Elector.get_all_participants`."""
        return self._session.look_on(participants_steps(self._paths))

    def get_leader(self) -> LeaderInfo | None:
        """See `Elector.get_leader`."""
        return self._session.look_on(leader_steps(self._paths))

    def get_epoch(self) -> EpochRecord | None:
        """See `Elector.get_epoch`."""
        return self._session.look_on(epoch_steps(self._paths))

    def lose_session(self) -> None:
        """For tests: end our session behind our back, as an ensemble does with one that went silent.

        We lead no more at once, and queue again with a new session.
        """
        self._session.replace()
        self._driver.post(lambda: self._core.link(latch_m.SessionGone()))
        self._tell_link_up()

    def _begin(self) -> None:
        self._session.open()
        self._driver.start()
        self._tell_link_up()

    def _finish(self, countdown: Countdown) -> None:
        if not self._driver.stop(countdown.remaining()):
            _log.warning("election_still_busy")
        if not self._driver.here:  # it has still to end, on that session
            self._session.close()  # and with it whatever is left of us

    def _tell_link_up(self) -> None:
        session_id = self._session.session_id
        if session_id is not None:
            self._driver.post(lambda: self._core.link(latch_m.LinkUp(session_id)))

    def _on_watch(self, path: str, gone: bool) -> None:
        """Whoever changed something, under the election's lock: only enqueue."""
        self._driver.post(lambda: self._core.heard(path, gone))
