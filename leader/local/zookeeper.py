"""A ZooKeeper in memory: nodes, sessions that expire by a clock of yours, watches, transactions.

It answers the requests of `leader.protocol.requests` as a real ZooKeeper does; tests/contract runs the same
cases on both. One server, which sees its own writes at once; `tests/election` puts followers that
lag and links that fail in front of it. Single-threaded, and nothing in it waits.

    zookeeper = MemoryZooKeeper(clock)
    connection = zookeeper.connect(timedelta(seconds=10), on_watch)
    stat = connection.run(exists("/election/epoch", watch=True))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from leader.clock import Clock
from leader.errors import ZooKeeperUnavailableError
from leader.local.replica import OnWatch, Replica
from leader.local.tree import Changes, Draft, Tree
from leader.protocol import requests as rq
from leader.protocol.requests import drive

T = TypeVar("T")

_FIRST_SESSION = 0x1000


class Commit(NamedTuple):
    """A transaction that every server will apply. `closed`: the session that it ended, or None."""

    zxid: int
    changes: Changes
    closed: int | None = None


@dataclass(slots=True)
class Session:
    """What the server knows of a client."""

    id: int
    timeout: timedelta
    expires_at: timedelta


class MemoryZooKeeper:
    """See the module.

    Args:
        clock: Of the server.
        tick: Sessions expire at multiples of it, as ZooKeeper's ExpiryQueue rounds: later than their timeout
            after the last sign of life, by at most one tick.
    """

    def __init__(self, clock: Clock, *, tick: timedelta = timedelta(seconds=2)) -> None:
        self.clock, self.tick = clock, tick
        self._next_session = _FIRST_SESSION
        self._subscribers: list[Callable[[Commit], None]] = []
        self._start_empty()

    def _start_empty(self) -> None:
        self.zxid = 0
        self.tree = Tree()
        self.sessions: dict[int, Session] = {}
        self.expired: set[int] = set()
        """Sessions that ended because their clients were silent for too long."""
        self.replica = Replica(self.tree)

    # --- sessions ---------------------------------------------------------------------------------

    def connect(self, timeout: timedelta, on_watch: OnWatch) -> MemoryConnection:
        """A new session, and a connection that bears it."""
        return MemoryConnection(self, self.new_session(timeout), on_watch)

    def reconnect(self, session_id: int, on_watch: OnWatch) -> MemoryConnection | None:
        """Another connection with the same session; None if it has expired. Watches are not taken along."""
        return MemoryConnection(self, session_id, on_watch) if self.touch(session_id) else None

    def new_session(self, timeout: timedelta) -> int:
        """Make a session; its id."""
        self._next_session += 1
        self.zxid += 1
        session = Session(self._next_session, timeout, self._expiry(timeout))
        self.sessions[session.id] = session
        return session.id

    def touch(self, session_id: int) -> bool:
        """Take a sign of life. False if the session is over."""
        self.expire_due()
        session = self.sessions.get(session_id)
        if session is None:
            return False
        session.expires_at = max(session.expires_at, self._expiry(session.timeout))
        return True

    def expire_due(self) -> list[int]:
        """End the sessions whose time is over; their ids. Done by itself before each request."""
        now = self.clock()
        due = [session.id for session in self.sessions.values() if session.expires_at <= now]
        self.expired.update(due)
        for session_id in due:
            self.close_session(session_id)
        return due

    def close_session(self, session_id: int) -> None:
        """End a session, as its client may ask or as its time commands: its ephemeral nodes go."""
        if self.sessions.pop(session_id, None) is None:
            return
        draft = self._draft(0)
        for path in self.tree.owned_by(session_id):
            draft.delete(path)
        self._publish(Commit(self.zxid, draft.changes, session_id))

    def start_anew(self) -> None:
        """As a new leader of the ensemble does: all sessions have their full time again."""
        for session in self.sessions.values():
            session.expires_at = self._expiry(session.timeout)

    def wipe(self) -> None:
        """Lose everything, sessions included. Connections of before are of no use any more."""
        self._start_empty()

    # --- requests ---------------------------------------------------------------------------------

    def subscribe(self, subscriber: Callable[[Commit], None]) -> None:
        """Be told of each commit, in order, after the server itself has applied it."""
        self._subscribers.append(subscriber)

    def write(self, request: rq.Write, session_id: int = 0) -> Any:
        """Commit a write. Session 0 is an operator, who may do anything but own ephemeral nodes.

        Raises:
            ZooKeeperUnavailableError: The session is over; nothing was changed.
            RefusedError: See `leader.protocol.requests`.
            TransactionFailedError: Ditto.
        """
        self.expire_due()
        if session_id and session_id not in self.sessions:
            raise ZooKeeperUnavailableError("the session is over")
        draft = self._draft(session_id)
        answer = draft.do(request)
        self._publish(Commit(self.zxid, draft.changes))
        return answer

    def _draft(self, session_id: int) -> Draft:
        self.zxid += 1
        now_ms = self.clock() // timedelta(milliseconds=1)
        return Draft(self.tree, session_id=session_id, zxid=self.zxid, now_ms=now_ms)

    def _publish(self, commit: Commit) -> None:
        self.replica.apply(commit.changes)
        for subscriber in self._subscribers:
            subscriber(commit)

    def _expiry(self, timeout: timedelta) -> timedelta:
        return ((self.clock() + timeout) // self.tick + 1) * self.tick


class MemoryConnection:
    """One client's connection: requests in, answers out, watches in between.

    Args:
        zookeeper: The server.
        session_id: A session of it.
        on_watch: Called with path and whether the node is gone.
    """

    def __init__(self, zookeeper: MemoryZooKeeper, session_id: int, on_watch: OnWatch) -> None:
        self._zookeeper, self.session_id, self._on_watch = zookeeper, session_id, on_watch
        self._open = True

    def ping(self) -> bool:
        """Give a sign of life. False if the session is over."""
        return self._open and self._zookeeper.touch(self.session_id)

    def answer(self, request: rq.Request) -> Any:
        """Answer one request; it is a sign of life too.

        Raises:
            ZooKeeperUnavailableError: The connection was cut, or the session is over.
            RefusedError: See `leader.protocol.requests`.
            TransactionFailedError: Ditto.
        """
        if not self.ping():
            raise ZooKeeperUnavailableError("the connection is closed, or the session over")
        if isinstance(request, rq.Read):
            return self._zookeeper.replica.read(request, self._on_watch)
        return self._zookeeper.write(request, self.session_id)

    def run(self, steps: rq.Steps[T]) -> T:
        """Run `steps` to their end. Raises what they raise."""
        return drive(steps, self.answer)

    def drop(self) -> None:
        """Cut the connection: its watches are gone, its session lives on until it expires."""
        self._open = False
        self._zookeeper.replica.forget(self._on_watch)

    def close(self) -> None:
        """End the session."""
        self.drop()
        self._zookeeper.close_session(self.session_id)
