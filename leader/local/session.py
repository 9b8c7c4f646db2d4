"""One participant's session with a ZooKeeper in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from leader.core.lease import SessionLiveness
from leader.errors import ZooKeeperUnavailableError
from leader.local.zookeeper import MemoryConnection, MemoryZooKeeper
from leader.protocol import requests as rq
from leader.protocol.requests import drive

T = TypeVar("T")

SESSION_TIMEOUT = timedelta(days=365)
"""Nothing expires by itself within one process, however long it or its machine sleeps."""


class MemorySession:
    """See `leader.core.lease.SessionView`. Any thread may use it.

    Args:
        zookeeper: Shared, and itself single-threaded.
        lock: Held around each use of `zookeeper`.
        before: See `MemoryElection`.
        on_watch: Ditto.
    """

    def __init__(
        self,
        zookeeper: MemoryZooKeeper,
        lock: threading.Lock,
        before: Callable[[rq.Request], None],
        on_watch: Callable[[str, bool], None],
    ) -> None:
        self._zookeeper, self._lock, self._before, self._on_watch = zookeeper, lock, before, on_watch
        self._connection: MemoryConnection | None = None
        self.liveness = SessionLiveness(SESSION_TIMEOUT)

    @property
    def is_connected(self) -> bool:
        """Whether it is open."""
        return self.liveness.facts.is_connected

    @property
    def session_id(self) -> int | None:
        """Id of the present session."""
        return self.liveness.facts.session_id

    @property
    def generation(self) -> int:
        """How often a session was lost."""
        return self.liveness.facts.generation

    @property
    def negotiated_timeout(self) -> timedelta:
        """So long that it never ends by itself."""
        return SESSION_TIMEOUT

    def reconnect(self) -> None:
        """There is no link that could be dead."""

    def open(self) -> None:
        """Begin a session."""
        with self._lock:
            self._connect()

    def close(self) -> None:
        """End it; its ephemeral nodes go."""
        with self._lock:
            self._end()

    def replace(self) -> None:
        """Lose it, and have another."""
        with self._lock:
            self._end()
            self._connect()

    def _connect(self) -> None:
        asked = self._zookeeper.clock()
        self._connection = self._zookeeper.connect(SESSION_TIMEOUT, self._on_watch)
        self.liveness.attached(self._connection.session_id, asked, SESSION_TIMEOUT)

    def _end(self) -> None:
        self.liveness.broke(lost=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def run(self, steps: rq.Steps[T]) -> T:
        """Run `steps` to their end, on whatever session is open at each. Raises what they raise."""
        return drive(steps, self._answer)

    def look_on(self, steps: rq.Steps[T]) -> T:
        """Run `steps` that only read; no session is needed. Raises what they raise."""
        return drive(steps, self._shown)

    def _answer(self, request: rq.Request) -> Any:
        with self._lock:
            if self._connection is None:
                raise ZooKeeperUnavailableError("the session is closed")
            self._before(request)
            return self._connection.answer(request)

    def _shown(self, request: rq.Request) -> Any:
        if not isinstance(request, rq.Read):
            raise TypeError(f"{request} is no read")
        with self._lock:
            return self._zookeeper.replica.read(request, _deaf)


def _deaf(_path: str, _gone: bool) -> None:
    """Who only looks on watches nothing."""
