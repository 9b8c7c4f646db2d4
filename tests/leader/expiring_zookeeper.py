"""A ZooKeeper in memory whose sessions expire by a clock, for the simulator and for tests.

It is one server, which sees its own writes at once. `tests/leader/election` adds followers with delayed data
and failing links.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from leader.clock import Clock
from leader.errors import ZooKeeperUnavailableError
from leader.local.zookeeper import Changes, MemoryConnection, MemoryZooKeeper, OnWatch, Tree
from leader.protocol import requests as rq

LONG = timedelta(days=365)


class Commit(NamedTuple):
    """A transaction that every server will apply. `closed`: the session that it ended, or None."""

    zxid: int
    changes: Changes
    closed: int | None = None


class ExpiringZooKeeper(MemoryZooKeeper):
    """See the module.

    Args:
        clock: The server's clock.
        tick: Sessions expire at multiples of it, like in ZooKeeper's ExpiryQueue: at most one tick later than
            their timeout after the last sign of life.
    """

    def __init__(self, clock: Clock, *, tick: timedelta = timedelta(seconds=2)) -> None:
        super().__init__(clock)
        self.tick = tick
        self.expired: set[int] = set()
        """Sessions that ended because their clients were silent for too long."""
        self._timeouts: dict[int, timedelta] = {}
        self._expires_at: dict[int, timedelta] = {}
        self._subscribers: list[Callable[[Commit], None]] = []
        self._closing: int | None = None

    def connect(self, on_watch: OnWatch, timeout: timedelta = LONG) -> ExpiringConnection:
        """Open a session, and a connection for it."""
        return ExpiringConnection(self, self.new_session(timeout), on_watch)

    def reconnect(self, session_id: int, on_watch: OnWatch) -> ExpiringConnection | None:
        """Open another connection with the same session, without its watches; None if it has expired."""
        return ExpiringConnection(self, session_id, on_watch) if self.touch(session_id) else None

    def new_session(self, timeout: timedelta) -> int:
        """Open a session. Returns its id."""
        session_id = self.open_session()
        self._timeouts[session_id] = timeout
        self._expires_at[session_id] = self._expiry(timeout)
        return session_id

    def touch(self, session_id: int) -> bool:
        """Receive a sign of life. Returns False if the session is over."""
        self.expire_due()
        if session_id not in self.sessions:
            return False
        expiry = self._expiry(self._timeouts[session_id])
        self._expires_at[session_id] = max(self._expires_at[session_id], expiry)
        return True

    def expire_due(self) -> list[int]:
        """End expired sessions, and return their ids. Also called before each request."""
        now = self.clock()
        due = [session_id for session_id, at in self._expires_at.items() if at <= now]
        self.expired.update(due)
        for session_id in due:
            self.close_session(session_id)
        return due

    def close_session(self, session_id: int) -> None:
        self._timeouts.pop(session_id, None)
        self._expires_at.pop(session_id, None)
        self._closing = session_id
        super().close_session(session_id)
        self._closing = None

    def start_anew(self) -> None:
        """Give all sessions their full timeout again, like a new leader of the ensemble."""
        self._expires_at = {one: self._expiry(timeout) for one, timeout in self._timeouts.items()}

    def wipe(self) -> None:
        """Lose all data and sessions. Existing connections become useless."""
        self.zxid, self.tree = 0, Tree()
        for known in (self.sessions, self.expired, self._timeouts, self._expires_at):
            known.clear()

    def subscribe(self, subscriber: Callable[[Commit], None]) -> None:
        """Call a function for each commit, in order, after the server has applied it."""
        self._subscribers.append(subscriber)

    def write(self, request: rq.Write, session_id: int = 0) -> Any:
        self.expire_due()
        return super().write(request, session_id)

    def _commit(self, changes: Changes) -> None:
        super()._commit(changes)
        for subscriber in self._subscribers:
            subscriber(Commit(self.zxid, changes, self._closing))

    def _expiry(self, timeout: timedelta) -> timedelta:
        return ((self.clock() + timeout) // self.tick + 1) * self.tick


class ExpiringConnection(MemoryConnection):
    """One client's connection. Each request is a sign of life."""

    def __init__(self, zookeeper: ExpiringZooKeeper, session_id: int, on_watch: OnWatch) -> None:
        super().__init__(zookeeper, session_id, on_watch)
        self._expiring, self._open = zookeeper, True

    def ping(self) -> bool:
        """Send a sign of life. Returns False if the connection was cut, or the session is over."""
        return self._open and self._expiring.touch(self.session_id)

    def answer(self, request: rq.Request) -> Any:
        if not self.ping():
            raise ZooKeeperUnavailableError("the connection is closed, or the session over")
        return super().answer(request)

    def drop(self) -> None:
        """Cut the connection. Its watches are lost; its session continues until it expires."""
        self._open = False
        self._expiring.tree.forget(self._on_watch)
