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
from collections import deque
from datetime import timedelta

APART = 6
"""Two proofs must be a session divided by this apart; half a tick is an eighth of it at most."""

KEPT = 8
"""So many proofs of such a stretch are kept. Of those that come closer together, the first stands for all."""


class Evidence:
    """See the module. Any thread. Times are of one clock, the session's owner's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for a few instructions, never while calling anybody
        self._session_id: int | None = None
        self._since: timedelta | None = None
        self._unconfirmed: deque[tuple[timedelta, timedelta]] = deque()  # submitted, answered; oldest first

    def attached(self, session_id: int | None, asked: timedelta) -> None:
        """A connection was made, with this session; it was asked for at `asked`."""
        with self._lock:
            self._session_id, self._since = session_id, asked
            self._unconfirmed.clear()

    def proven(self, submitted: timedelta, answered: timedelta, session_timeout: timedelta) -> None:
        """A write of the session was committed: it confirms those that lie far enough before it."""
        apart, waiting = session_timeout / APART, self._unconfirmed
        with self._lock:
            while waiting and submitted - waiting[0][1] >= apart:
                confirmed = waiting.popleft()[0]
                self._since = max(confirmed, self._since or confirmed)
            if not waiting or submitted - waiting[-1][1] >= apart / KEPT:
                waiting.append((submitted, answered))

    def since(self, session_id: int | None) -> timedelta | None:
        """The moment from which `session_id` has at least its timeout to live; None if that is not known."""
        with self._lock:
            return self._since if session_id == self._session_id else None
