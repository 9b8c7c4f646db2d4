"""Whether we lead, asked at the point of use, answered without asking anybody.

A flag is not enough: a process that was paused past its session wakes with the flag still set. So the
answer compares the clock with a deadline, and the connection with the one the leadership was proven on.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from leader.clock import Clock
from leader.protocol.records import Leadership
from leader.zookeeper.session import SessionState, ZooKeeperSession


class Tenure:
    """The present leadership and how long it is known to last.

    The deadline counts from the *submission* of the proof *before* the last: ZooKeeper's leader hears of a
    session's life separately from its writes, so the last proof alone may not have prolonged it (A.6).
    """

    def __init__(self, session: ZooKeeperSession, clock: Clock, margin: timedelta) -> None:
        self._session, self._clock, self._margin = session, clock, margin
        self._lock = threading.Lock()  # held for a few instructions, never while calling anybody
        self._leadership: Leadership | None = None
        self._generation = -1
        self._last_proof = timedelta(0)
        self._deadline = timedelta(0)

    def grant(self, leadership: Leadership, *, generation: int, proofs: tuple[timedelta, timedelta]) -> None:
        """Begin, with the submission times of the two newest proofs, older first."""
        with self._lock:
            self._leadership = leadership
            self._generation = generation
            self._last_proof = proofs[1]
            self._deadline = self._until(proofs[0])

    def prolong(self, proof: timedelta) -> bool:
        """Note a proof that was submitted at `proof`.

        Returns:
            False if it came too late: the deadline had passed and this tenure is over.
        """
        with self._lock:
            if self._clock() >= self._deadline:
                return False
            self._deadline = self._until(self._last_proof)
            self._last_proof = proof
            return True

    def end(self) -> None:
        """Lead no more."""
        with self._lock:
            self._leadership = None

    def current(self) -> Leadership | None:
        """The leadership, if it certainly stands at this moment."""
        with self._lock:
            stands = (
                self._session.state is SessionState.CONNECTED
                and self._session.generation == self._generation
                and self._clock() < self._deadline
            )
            return self._leadership if stands else None

    def remaining(self) -> timedelta:
        """Time until the deadline; negative once it has passed."""
        with self._lock:
            return self._deadline - self._clock()

    def _until(self, proof: timedelta) -> timedelta:
        return proof + self._session.negotiated_timeout - self._margin
