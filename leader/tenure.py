"""Whether the lock is still held, asked at the point of use, answered without asking anybody.

A flag is not enough: a process that was paused past its session wakes with the flag still set. So the
answer compares the clock with a deadline, and the connection with the one the lock was won on.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta

from leader.clock import Clock
from leader.latch.ports import SessionView

ZERO = timedelta(0)
_LONG_AGO = -timedelta(days=1)


class _Process:
    """Which process this is, counted along forks; cheaper to ask than the process id."""

    number = 0

    @classmethod
    def forked(cls) -> None:
        cls.number += 1


os.register_at_fork(after_in_child=_Process.forked)


class Tenure:
    """How long the lock is known to last.

    The deadline counts from the *submission* of the proof *before* the last: ZooKeeper's leader hears of a
    session's life separately from its writes, each half tick, so the last proof alone may not have prolonged
    it (A.6). A session is at least four ticks long, so two proofs an eighth of it apart have half a tick
    between them. Of two that are closer, both may have gone unheard, and the last sign of life is then the
    ping before the first of them, which comes each third of the session.

    Args:
        margin: How long before the session can end we let go by ourselves.
        any_connection: Whether the lock outlives a broken connection (`SuspendedPolicy.SESSION`).
    """

    def __init__(
        self, session: SessionView, clock: Clock, margin: timedelta, *, any_connection: bool = False
    ) -> None:
        self._session, self._clock, self._margin = session, clock, margin
        self._any_connection = any_connection
        self._process = _Process.number
        self._lock = threading.Lock()  # held for a few instructions, never while calling anybody
        self._held = False
        self._generation = -1
        self._session_id: int | None = None
        self._older: timedelta | None = None
        self._newer: timedelta | None = None
        self._since: timedelta | None = None  # ZooKeeper's leader has certainly heard of us since

    def restart(self, session_id: int, submitted: timedelta | None) -> None:
        """Begin with a new node: older proofs count no more. Making a node is a proof, if it was made now."""
        with self._lock:
            self._held = False
            self._session_id = session_id
            self._older, self._newer, self._since = None, submitted, None

    def proven(self, submitted: timedelta) -> bool:
        """Note a proof that was submitted at `submitted`.

        Returns:
            False if it came too late: the deadline had passed and what was held is over.
        """
        with self._lock:
            if self._held and self._clock() >= self._deadline():
                return False
            self._older, self._newer = self._newer, submitted
            if self._older is not None:
                timeout = self._session.negotiated_timeout
                apart = submitted - self._older >= timeout / 8
                sure = self._older if apart else self._older - timeout / 3
                self._since = sure if self._since is None else max(self._since, sure)
            return True

    def begin(self, generation: int) -> bool:
        """Hold the lock from now on; it was won on the connection `generation`.

        Returns:
            False if it cannot be held: that connection is gone, or the proofs are too old.
        """
        with self._lock:
            self._held, self._generation = True, generation
            self._held = self._stands()
            return self._held

    def end(self) -> None:
        """Hold it no more."""
        with self._lock:
            self._held = False

    def stands(self) -> bool:
        """Whether the lock is certainly held at this moment. No I/O; any thread.

        A forked child holds nothing: what keeps the lock lives in its parent alone.
        """
        if _Process.number != self._process:
            return False  # first of all: the lock may have been forked while somebody held it
        with self._lock:
            return self._stands()

    def remaining(self) -> timedelta:
        """Time until the deadline; negative once it has passed."""
        with self._lock:
            return self._deadline() - self._clock()

    def worth(self) -> timedelta:
        """How long the lock would stand if it were gained now; negative without two proofs."""
        return self.remaining()

    def proof_age(self) -> timedelta | None:
        """Time since the last proof was submitted; None without one."""
        with self._lock:
            return None if self._newer is None else self._clock() - self._newer

    def _stands(self) -> bool:
        if not self._held or self._session.session_id != self._session_id:
            return False
        if not self._any_connection and not (
            self._session.is_connected and self._session.generation == self._generation
        ):
            return False
        return self._clock() < self._deadline()

    def _deadline(self) -> timedelta:
        if self._since is None:
            return _LONG_AGO
        return self._since + self._session.negotiated_timeout - self._margin
