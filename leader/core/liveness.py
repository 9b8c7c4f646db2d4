"""What is known of a ZooKeeper session: its id, its connection, and since when it certainly lives.

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
from dataclasses import replace
from datetime import timedelta

from leader.protocol.record import record

APART = 6
"""Two proofs must be a session divided by this apart; half a tick is an eighth of it at most."""

KEPT = 8
"""So many proofs of such a stretch are kept. Of those that come closer together, the first stands for all."""


@record
class SessionFacts:
    """What is known of a session at one moment. Never changed, only replaced.

    Args:
        session_id: Of the present session; the last one while suspended, None after a loss.
        generation: How often the connection broke.
        is_connected: Whether there is a connection.
        since: The moment from which the session has at least `timeout` to live; None if that is not known.
        timeout: The session timeout that the server granted.
    """

    session_id: int | None = None
    generation: int = 0
    is_connected: bool = False
    since: timedelta | None = None
    timeout: timedelta = timedelta(0)


class SessionLiveness:
    """Keeps the facts. Times are of one clock, the session's owner's.

    `facts` may be read by any thread without a lock: it is replaced in one assignment. The thread of the
    connection and the drivers replace it, one at a time.

    Args:
        timeout: The session timeout that is asked for; it counts until a server grants one.
    """

    def __init__(self, timeout: timedelta = timedelta(0)) -> None:
        self.facts = SessionFacts(timeout=timeout)
        self._writing = threading.Lock()  # held for a few instructions, never while calling anybody
        self._unconfirmed: deque[tuple[timedelta, timedelta]] = deque()  # submitted, answered; oldest first

    def attached(self, session_id: int | None, asked: timedelta, timeout: timedelta) -> None:
        """A connection was made, with this session; it was asked for at `asked`."""
        with self._writing:
            self.facts = SessionFacts(session_id, self.facts.generation, True, asked, timeout)
            self._unconfirmed.clear()

    def broke(self, *, lost: bool) -> None:
        """The connection broke; if `lost`, the session is over."""
        with self._writing:
            facts = replace(self.facts, generation=self.facts.generation + 1, is_connected=False)
            self.facts = replace(facts, session_id=None, since=None) if lost else facts

    def proven(self, session_id: int | None, submitted: timedelta, answered: timedelta) -> None:
        """A write of `session_id` was committed: it confirms those that lie far enough before it."""
        with self._writing:
            facts, waiting = self.facts, self._unconfirmed
            if session_id != facts.session_id:
                return
            confirmed, apart = facts.since, facts.timeout / APART
            while waiting and submitted - waiting[0][1] >= apart:
                oldest = waiting.popleft()[0]
                confirmed = oldest if confirmed is None else max(confirmed, oldest)
            if not waiting or submitted - waiting[-1][1] >= apart / KEPT:
                waiting.append((submitted, answered))
            if confirmed != facts.since:
                self.facts = replace(facts, since=confirmed)
