"""Since when ZooKeeper's leader has certainly known that a session lives. It belongs to the session.

ZooKeeper's leader does not learn of a session's life from its writes. Whoever serves the session (a follower,
perhaps) collects signs of life and passes them on each half tick. So one committed write says only that the
session was not over yet. But when a second one, sent at least half a tick after the first was answered, is
committed too, then a collection that held the first has gone to the leader before it, in order: the session
lives on from there. Making a session, or attaching to it again, goes through the leader and counts at once.

Source: ZooKeeper 3.9, LearnerHandler and SessionTracker; validated in the simulator.
"""

from __future__ import annotations

import threading
from datetime import timedelta

APART = 6
"""Two proofs must be a session divided by this apart; half a tick is an eighth of it at most."""


class Evidence:
    """See the module. Any thread. Times are of one clock, the session's owner's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for a few instructions, never while calling anybody
        self._session_id: int | None = None
        self._since: timedelta | None = None
        self._newest: tuple[timedelta, timedelta] | None = None  # submitted, answered

    def attached(self, session_id: int | None, asked: timedelta) -> None:
        """A connection was made, with this session; it was asked for at `asked`."""
        with self._lock:
            self._session_id, self._since, self._newest = session_id, asked, None

    def proven(self, submitted: timedelta, answered: timedelta, session_timeout: timedelta) -> None:
        """A write of the session was committed."""
        with self._lock:
            if self._newest is not None:
                if submitted - self._newest[1] < session_timeout / APART:
                    return  # worth no more than the one before it
                self._since = max(self._newest[0], self._since or self._newest[0])
            self._newest = (submitted, answered)

    def since(self, session_id: int | None) -> timedelta | None:
        """The moment from which `session_id` has at least its timeout to live; None if that is not known."""
        with self._lock:
            return self._since if session_id == self._session_id else None
