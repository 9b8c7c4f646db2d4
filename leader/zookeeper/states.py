"""The known state of a session, and the listeners that are called when it changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from enum import Enum

from leader.core.lease import SessionLiveness

Listener = Callable[["SessionState"], None]


class SessionState(Enum):
    """The known state of a session.

    SUSPENDED: not connected; the session may be alive or over. LOST: the session is over, and ZooKeeper has
    deleted its ephemeral nodes or will delete them; kazoo starts a new session as soon as a server answers.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class SessionStates:
    """Written by kazoo's connection thread, read by any. Listeners run on that thread and only enqueue.

    `liveness` is changed before the listeners are called. So a lease ends before a listener learns that the
    connection broke, and a listener that learns of a connection finds its session id in `liveness`.
    """

    def __init__(self, timeout: timedelta) -> None:
        self.liveness = SessionLiveness(timeout)
        self._listeners: list[Listener] = []
        self._changed = threading.Condition()

    def add(self, listener: Listener) -> None:
        """Call `listener` at each change of state. Any thread."""
        with self._changed:
            self._listeners = [*self._listeners, listener]

    def remove(self, listener: Listener) -> None:
        """Stop the calls of `listener`. Any thread."""
        with self._changed:
            self._listeners = [known for known in self._listeners if known != listener]

    @property
    def state(self) -> SessionState:
        """The newest known state."""
        facts = self.liveness.facts
        if facts.is_connected:
            return SessionState.CONNECTED
        return SessionState.LOST if facts.session_id is None else SessionState.SUSPENDED

    def connected(self, session_id: int | None, asked: timedelta, timeout: timedelta) -> None:
        """Note a connection for this session, requested at `asked`, with the granted session timeout."""
        if self.liveness.facts.session_id not in (None, session_id):
            self.lost()  # the server created another session and did not report the end of the old one
        self.liveness.attached(session_id, asked, timeout)
        self._tell(SessionState.CONNECTED)

    def suspended(self) -> None:
        """Note that the connection broke."""
        self.liveness.broke(lost=False)
        self._tell(SessionState.SUSPENDED)

    def lost(self) -> None:
        """Note that the session is over."""
        self.liveness.broke(lost=True)
        self._tell(SessionState.LOST)

    def wake(self) -> None:
        """Let the threads in `wait_for` check their conditions again."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: timedelta) -> bool:
        """Wait until `condition` is true; check it at each change and `wake`. False if time ran out."""
        with self._changed:
            return self._changed.wait_for(condition, timeout.total_seconds())

    def _tell(self, state: SessionState) -> None:
        self.wake()
        for listener in self._listeners:
            listener(state)
