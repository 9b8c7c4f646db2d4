"""A ZooKeeper in memory whose sessions expire by a clock, as the simulator and the stages of tests need it.

One server, which sees its own writes at once; `tests/election` puts followers that lag and links that fail in
front of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from leader.clock import Clock
from leader.errors import ZooKeeperUnavailableError
from leader.local.tree import Changes, OnWatch, Tree
from leader.local.zookeeper import MemoryConnection, MemoryZooKeeper
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
        clock: Of the server.
        tick: Sessions expire at multiples of it, as ZooKeeper's ExpiryQueue rounds: later than their timeout
            after the last sign of life, by at most one tick.
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
        """Another connection with the same session; None if it has expired. Watches are not taken along."""
        return ExpiringConnection(self, session_id, on_watch) if self.touch(session_id) else None

    def new_session(self, timeout: timedelta) -> int:
        """Open a session; its id."""
        session_id = self.open_session()
        self._timeouts[session_id] = timeout
        self._expires_at[session_id] = self._expiry(timeout)
        return session_id

    def touch(self, session_id: int) -> bool:
        """Take a sign of life. False if the session is over."""
        self.expire_due()
        if session_id not in self.sessions:
            return False
        expiry = self._expiry(self._timeouts[session_id])
        self._expires_at[session_id] = max(self._expires_at[session_id], expiry)
        return True

    def expire_due(self) -> list[int]:
        """End the sessions whose time is over; their ids. Done by itself before each request."""
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
        """As a new leader of the ensemble does: all sessions have their full time again."""
        self._expires_at = {one: self._expiry(timeout) for one, timeout in self._timeouts.items()}

    def wipe(self) -> None:
        """Lose everything, sessions included. Connections of before are of no use any more."""
        self.zxid, self.tree = 0, Tree()
        for known in (self.sessions, self.expired, self._timeouts, self._expires_at):
            known.clear()

    def subscribe(self, subscriber: Callable[[Commit], None]) -> None:
        """Be told of each commit, in order, after the server itself has applied it."""
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
        """Give a sign of life. False if the connection was cut, or the session is over."""
        return self._open and self._expiring.touch(self.session_id)

    def answer(self, request: rq.Request) -> Any:
        if not self.ping():
            raise ZooKeeperUnavailableError("the connection is closed, or the session over")
        return super().answer(request)

    def drop(self) -> None:
        """Cut the connection: its watches are gone, its session lives on until it expires."""
        self._open = False
        self._expiring.tree.forget(self._on_watch)
