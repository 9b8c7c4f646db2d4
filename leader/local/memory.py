"""An election in the memory of one process: for tests of code that uses `leader`, and for `SingleElector`.

It runs the same core as `LeaderLockQueue` (latch, epoch, guard) on a ZooKeeper in memory. Sessions do not
expire, because within one process no participant dies alone. A test ends a participant's session with
`MemoryElector.lose_session`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from leader.clock import Clock, Countdown, boottime
from leader.config import ElectionConfig
from leader.elector import Electable, Guard
from leader.errors import FencedOutError, ZooKeeperUnavailableError
from leader.journal import Journal
from leader.local.zookeeper import MemoryConnection, MemoryZooKeeper
from leader.protocol import requests as rq
from leader.protocol.participant import Participant
from leader.protocol.terms import FencingToken
from leader.runtime.base_elector import BaseElector
from leader.runtime.driver import OnWatch
from leader.zookeeper.states import SessionStates

T = TypeVar("T")

_SESSION_TIMEOUT = timedelta(days=365)


class MemoryElection:
    """The state that the participants of one process share: queues, epochs, leaders, by root. Thread-safe.

    Args:
        clock: Clock of all participants.
        before: Called with each request of a participant before its execution. To refuse the request, it
            raises a LeaderError.
    """

    def __init__(
        self, *, clock: Clock = boottime, before: Callable[[rq.Request], None] = lambda _request: None
    ) -> None:
        self.clock, self._before = clock, before
        self._zookeeper = MemoryZooKeeper(clock)
        self._lock = threading.Lock()  # held for one request; no guard, electable or journal runs under it

    def check(self, token: FencingToken) -> None:
        """Refuse the write of a deposed leader. A store in memory calls this before each of its writes.

        FencedOutError if the term of this token is over.
        """
        try:
            self.write(rq.Transaction(token.checks()))
        except rq.TransactionFailedError as exc:
            raise FencedOutError(path=exc.cause.path, epoch=token.epoch) from exc

    def write(self, request: rq.Write) -> Any:
        """Write without a session, like an operator; see `MemoryZooKeeper.write`."""
        with self._lock:
            return self._zookeeper.write(request)

    def read(self, steps: rq.Steps[T]) -> T:
        """Run `steps` that only read, without a session. Raises what they raise."""

        def answer(request: rq.Request) -> Any:
            if not isinstance(request, rq.Read):
                raise TypeError(f"{request} is not a read")
            with self._lock:
                return self._zookeeper.tree.read(request, lambda _path, _gone: None)

        return rq.drive(steps, answer)


class MemorySession:
    """One participant's session; see `leader.runtime.driver.Session`. Any thread may use it.

    Listeners are called under the election's lock.
    """

    answer_limit = timedelta(seconds=1)

    def __init__(self, election: MemoryElection) -> None:
        self._election = election
        self._on_watch: OnWatch = lambda _path, _gone: None
        self._connection: MemoryConnection | None = None
        self._states = SessionStates(_SESSION_TIMEOUT)
        self.liveness = self._states.liveness
        self.add_listener, self.remove_listener = self._states.add, self._states.remove

    def asking(self, on_watch: OnWatch) -> Callable[[rq.Steps[None]], None]:
        """Set the function to call when a watch fires. Returns the function that runs steps to their end.

        Call this before `open`. `on_watch` is called under the election's lock, on any thread: it must only
        enqueue.
        """
        self._on_watch = on_watch
        return self._run

    def reconnect(self) -> None:
        """Do nothing: there is no connection that could be dead."""

    def heal(self) -> None:
        """Do nothing: there is no connection thread that could have ended."""

    def open(self) -> None:
        """Open a session. Then close the one before it, if there is one."""
        with self._election._lock:
            zookeeper = self._election._zookeeper
            asked, before = zookeeper.clock(), self._connection
            self._connection = zookeeper.connect(self._on_watch)
            self._states.connected(self._connection.session_id, asked, _SESSION_TIMEOUT)
            if before is not None:
                before.close()

    def close(self) -> None:
        """End the session and delete its ephemeral nodes."""
        with self._election._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                self._states.lost()
                connection.close()

    def _run(self, steps: rq.Steps[None]) -> None:
        """Run `steps` to their end, each request on the session that is then open. Raises what they raise."""
        rq.drive(steps, self._answer)

    def _answer(self, request: rq.Request) -> Any:
        with self._election._lock:
            if self._connection is None:
                raise ZooKeeperUnavailableError("the session is closed")
            self._election._before(request)
            return self._connection.answer(request)


class MemoryElector(BaseElector):
    """See the module, and `leader.elector.Elector`.

    Threads, from the first `add_to_leader_lock_queue` until `close`: `leader-election` and
    `leader-callbacks`.

    Args:
        election: Shared by all participants of the election.
        config: Elections with different values of `root` are separate, also in one `MemoryElection`.
        guard: Called while the lock is held, after the epoch is raised; see `Guard`.
        journal: Gets an entry for each change. By default, a `LogJournal`.
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
        self._election, self._session = election, MemorySession(election)
        super().__init__(
            self._session,
            self._session.asking,
            config=config,
            participant=participant,
            guard=guard,
            electable=electable,
            journal=journal,
            clock=election.clock,
        )

    def lose_session(self) -> None:
        """For tests: end the session, as ZooKeeper does when a session expires.

        The participant stops leading at once, and queues again with a new session.
        """
        self._session.open()

    def _begin(self) -> None:
        self._session.open()
        super()._begin()

    def _finish(self, countdown: Countdown) -> None:
        super()._finish(countdown)
        if not self._driver.here:  # else the driver still needs the session, to end the core
            self._session.close()  # deletes the remaining nodes of this participant

    def _read(self, steps: Callable[[], rq.Steps[T]]) -> T:
        return self._election.read(steps())
