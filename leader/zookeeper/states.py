"""What is known of a session, and who wants to be told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from enum import Enum

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
    """Written by kazoo's connection thread, read by any. Listeners run on that thread and only enqueue."""

    def __init__(self) -> None:
        self.state = SessionState.LOST
        self.session_id: int | None = None
        self.generation = 0
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

    def connected(self, session_id: int | None) -> None:
        """There is a connection, and it is for this session."""
        if self.session_id is not None and session_id != self.session_id:
            # The server gave us another session without a word about the old one (K2).
            self._enter(SessionState.LOST)
        self.session_id = session_id
        self._enter(SessionState.CONNECTED)

    def suspended(self) -> None:
        """The connection broke."""
        self._enter(SessionState.SUSPENDED)

    def lost(self) -> None:
        """The session is over."""
        self.session_id = None
        self._enter(SessionState.LOST)

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: timedelta) -> bool:
        """Wait, from change to change, for `condition`. False: not in time."""
        with self._changed:
            return self._changed.wait_for(condition, timeout.total_seconds())

    def _enter(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self.generation += 1
        with self._changed:
            self.state = state
            self._changed.notify_all()
        for listener in self._listeners:
            listener(state)
