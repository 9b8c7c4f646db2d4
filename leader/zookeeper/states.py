"""What is known of a session, and who wants to be told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from enum import Enum

from leader.core.lease import SessionLiveness

Listener = Callable[["SessionState"], None]


class SessionState(Enum):
    """What is known of the session.

    SUSPENDED: not connected; the session may or may not live. LOST: it is over, its ephemeral nodes are
    gone or will go; a new one is made by itself as soon as a server answers.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class SessionStates:
    """Written by kazoo's connection thread, read by any. Listeners run on that thread and only enqueue.

    `liveness` is changed first, so that a lease ends before anybody is told that the connection broke, and
    whoever is told of a connection finds its session.
    """

    def __init__(self, timeout: timedelta) -> None:
        self.liveness = SessionLiveness(timeout)
        self._listeners: list[Listener] = []
        self._changed = threading.Condition()

    def add(self, listener: Listener) -> None:
        """Tell `listener` of each change. Any thread."""
        with self._changed:
            self._listeners = [*self._listeners, listener]

    def remove(self, listener: Listener) -> None:
        """Tell it no more. Any thread."""
        with self._changed:
            self._listeners = [known for known in self._listeners if known != listener]

    @property
    def state(self) -> SessionState:
        """The newest state."""
        facts = self.liveness.facts
        if facts.is_connected:
            return SessionState.CONNECTED
        return SessionState.LOST if facts.session_id is None else SessionState.SUSPENDED

    def connected(self, session_id: int | None, asked: timedelta, timeout: timedelta) -> None:
        """There is a connection for this session, asked for at `asked`; a server granted it `timeout`."""
        if self.liveness.facts.session_id not in (None, session_id):
            self.lost()  # the server gave us another session without a word about the old one
        self.liveness.attached(session_id, asked, timeout)
        self._tell(SessionState.CONNECTED)

    def suspended(self) -> None:
        """The connection broke."""
        self.liveness.broke(lost=False)
        self._tell(SessionState.SUSPENDED)

    def lost(self) -> None:
        """The session is over."""
        self.liveness.broke(lost=True)
        self._tell(SessionState.LOST)

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: timedelta) -> bool:
        """Wait, from change to change, for `condition`. False: not in time."""
        with self._changed:
            return self._changed.wait_for(condition, timeout.total_seconds())

    def _tell(self, state: SessionState) -> None:
        self.wake()
        for listener in self._listeners:
            listener(state)
