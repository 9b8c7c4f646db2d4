"""A ZooKeeper in memory: nodes, sessions, watches, transactions.

It answers the requests of `leader.protocol.requests` as a real ZooKeeper does; tests/leader/contract runs the
same cases on both. Sessions end only when they are closed. Not thread-safe. No call waits.

    zookeeper = MemoryZooKeeper(clock)
    connection = zookeeper.connect(on_watch)
    stat = connection.run(exists("/election/epoch", watch=True))
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from leader.clock import Clock
from leader.errors import ZooKeeperUnavailableError
from leader.local.tree import Changes, OnWatch, OpenTransaction, Tree
from leader.protocol import requests as rq
from leader.protocol.requests import drive

T = TypeVar("T")

_FIRST_SESSION = 0x1000


class MemoryZooKeeper:
    """See the module.

    Args:
        clock: Source of the nodes' modification times.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._last_session = _FIRST_SESSION
        self.zxid = 0
        self.tree = Tree()
        self.sessions: set[int] = set()

    def connect(self, on_watch: OnWatch) -> MemoryConnection:
        """Open a session, and a connection for it."""
        return MemoryConnection(self, self.open_session(), on_watch)

    def open_session(self) -> int:
        """Open a session. Returns its id."""
        self._last_session += 1
        self.zxid += 1
        self.sessions.add(self._last_session)
        return self._last_session

    def close_session(self, session_id: int) -> None:
        """End a session and delete its ephemeral nodes. Does nothing if it is over."""
        if session_id not in self.sessions:
            return
        self.sessions.remove(session_id)
        draft = self._draft(0)
        for path in self.tree.owned_by(session_id):
            draft.delete(path)
        self._commit(draft.changes)

    def write(self, request: rq.Write, session_id: int = 0) -> Any:
        """Commit a write. Session 0 stands for an operator without a session, who owns no ephemeral nodes.

        Raises:
            ZooKeeperUnavailableError: The session is over; nothing was changed.
            RefusedError: See `leader.protocol.requests`.
            TransactionFailedError: See `leader.protocol.requests`.
        """
        if session_id and session_id not in self.sessions:
            raise ZooKeeperUnavailableError("the session is over")
        draft = self._draft(session_id)
        answer = draft.do(request)
        self._commit(draft.changes)
        return answer

    def _draft(self, session_id: int) -> OpenTransaction:
        self.zxid += 1
        now_ms = self.clock() // timedelta(milliseconds=1)
        return OpenTransaction(self.tree, session_id=session_id, zxid=self.zxid, now_ms=now_ms)

    def _commit(self, changes: Changes) -> None:
        self.tree.apply(changes)


class MemoryConnection:
    """One client's connection: it answers requests and reports watches.

    Args:
        zookeeper: The server.
        session_id: A session of that server.
        on_watch: Called when a watch fires, with its path, and True if the node is gone.
    """

    def __init__(self, zookeeper: MemoryZooKeeper, session_id: int, on_watch: OnWatch) -> None:
        self._zookeeper, self.session_id, self._on_watch = zookeeper, session_id, on_watch

    def answer(self, request: rq.Request) -> Any:
        """Answer one request.

        Raises:
            ZooKeeperUnavailableError: The session is over.
            RefusedError: See `leader.protocol.requests`.
            TransactionFailedError: See `leader.protocol.requests`.
        """
        if self.session_id not in self._zookeeper.sessions:
            raise ZooKeeperUnavailableError("the session is over")
        if isinstance(request, rq.Read):
            return self._zookeeper.tree.read(request, self._on_watch)
        return self._zookeeper.write(request, self.session_id)

    def run(self, steps: rq.Steps[T]) -> T:
        """Run `steps` to their end. Raises what they raise."""
        return drive(steps, self.answer)

    def close(self) -> None:
        """End the session, and remove the client's watches."""
        self._zookeeper.tree.forget(self._on_watch)
        self._zookeeper.close_session(self.session_id)
