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


def margin_objection(margin: timedelta, session_timeout: timedelta) -> str | None:
    """Why `margin` leaves no time to lead in a session of `session_timeout`; None if it does.

    A leader proves itself each quarter of the session timeout and counts from the proof before the last, so
    half of the timeout is gone in the ordinary course of things.
    """
    if margin < session_timeout / 2:
        return None
    return (
        f"step_down_margin ({margin}) must be below half of the session timeout ({session_timeout}); "
        f"lower the one or raise the other, on the servers too: they limit what they grant"
    )


class Tenure:
    """How long the lock is known to last: from the newest evidence of the session's life, less a margin.

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
        self._lock = threading.Lock()  # held for a few instructions, never while calling anybody but Evidence
        self._held = False
        self._generation = -1
        self._session_id: int | None = None
        self._proven_at: timedelta | None = None

    def objection(self) -> str | None:
        """Why the lock cannot be held at all: a server may have granted less when we connected again."""
        return margin_objection(self._margin, self._session.negotiated_timeout)

    def restart(self, session_id: int) -> None:
        """Begin with a new node, of this session."""
        with self._lock:
            self._held = False
            self._session_id = session_id

    def proven(self, submitted: timedelta) -> bool:
        """Note a committed write of ours that was submitted at `submitted`.

        Returns:
            False if it came too late: the deadline had passed and what was held is over.
        """
        with self._lock:
            now = self._clock()
            if self._held and now >= self._deadline():
                return False
            self._proven_at = submitted
            self._session.evidence.proven(submitted, now, self._session.negotiated_timeout)
            return True

    def begin(self, generation: int) -> bool:
        """Hold the lock from now on; it was won on the connection `generation`.

        Returns:
            False if it cannot be held: that connection is gone, or the evidence is too old.
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
        """Whether the lock is certainly held at this moment. No I/O; any thread. Never in a forked child."""
        if _Process.number != self._process:
            return False  # the session is our parent's; its lock may be held by a thread that is not here
        with self._lock:
            return self._stands()

    def remaining(self) -> timedelta:
        """Time until the deadline; while nothing is held, how long it would stand. May be negative."""
        with self._lock:
            return self._deadline() - self._clock()

    def proof_age(self) -> timedelta | None:
        """Time since the last proof was submitted; None without one."""
        with self._lock:
            return None if self._proven_at is None else self._clock() - self._proven_at

    def _stands(self) -> bool:
        if not self._held or self._session.session_id != self._session_id:
            return False
        if not self._any_connection and not (
            self._session.is_connected and self._session.generation == self._generation
        ):
            return False
        return self._clock() < self._deadline()

    def _deadline(self) -> timedelta:
        since = self._session.evidence.since(self._session_id)
        return _LONG_AGO if since is None else since + self._session.negotiated_timeout - self._margin
