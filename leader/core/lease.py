"""Whether the lock is still held, asked at the point of use, answered without asking anybody.

A flag is not enough: a process that was paused past its session wakes with the flag still set. So the
answer compares the clock with a deadline, and the connection with the one the lock was won on.

The deadline counts from the moment since which the session certainly lives. ZooKeeper's leader does not
learn of a session's life from its writes. The server of the session (a follower, perhaps) collects signs of
life and passes them on each half tick. So one committed write says only that the session was not over yet.
But when a second one, sent at least half a tick after the first was answered, is committed too, then a
collection that held the first has gone to the leader before it, in order: the session lives on from there.
Making a session, or attaching to it again, goes through the leader and counts at once.

Source: ZooKeeper 3.9, LearnerHandler and SessionTracker; validated in the simulator.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from leader.clock import Clock
from leader.errors import ElectionConfigError
from leader.protocol.record import record

ZERO = timedelta(0)
_LONG_AGO = -timedelta(days=1)

APART = 6
"""Two proofs must be a session divided by this apart: half a tick, if a session has three ticks or more.

With two, which is the shortest session that a server grants, half a tick is a quarter of the session. Then
the margin must cover the difference, a twelfth of the session. Servers also round its end up to a tick.
"""

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


class SessionView(Protocol):
    """The ZooKeeper session, as far as the core must know it. No method blocks."""

    @property
    def liveness(self) -> SessionLiveness:
        """What is known of it."""
        ...

    def reconnect(self) -> None:
        """Cut a connection that seems dead, so that another is made."""
        ...


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


def check_margin(margin: timedelta, session_timeout: timedelta) -> None:
    """Refuse a margin that leaves no time to lead. ElectionConfigError."""
    objection = margin_objection(margin, session_timeout)
    if objection is not None:
        raise ElectionConfigError(objection)


class _Process:
    """Which process this is, counted along forks; cheaper to ask than the process id."""

    number = 0

    @classmethod
    def forked(cls) -> None:
        cls.number += 1


os.register_at_fork(after_in_child=_Process.forked)


class Hold:
    """One time of holding the lock: won with a node of `session_id`, on the connection `generation`.

    `over` is set once and never taken back: who has been told no is not told yes again.
    """

    __slots__ = ("generation", "over", "session_id")

    def __init__(self, session_id: int | None, generation: int) -> None:
        self.session_id, self.generation, self.over = session_id, generation, False


class LeadershipLease:
    """How long the lock is known to last: from the newest proof that the session lives, less a margin.

    The driver calls everything; any thread may call `stands`, `remaining` and `proof_age`. They take no lock:
    each reads the hold and the facts of the session once, and then the clock.

    Args:
        margin: How long before the session can end we let go by ourselves.
        any_connection: Whether the lock outlives a broken connection (`SuspendedPolicy.SESSION`).
    """

    def __init__(
        self, liveness: SessionLiveness, clock: Clock, margin: timedelta, *, any_connection: bool = False
    ) -> None:
        self._liveness, self._clock, self._margin = liveness, clock, margin
        self._any_connection = any_connection
        self._process = _Process.number
        self._session_id: int | None = None  # of our node
        self._proven_at: timedelta | None = None
        self.hold: Hold | None = None
        """The present hold, whether it stands at this moment or not."""

    def objection(self) -> str | None:
        """Why the lock cannot be held at all: a server may have granted less when we connected again."""
        return margin_objection(self._margin, self._liveness.facts.timeout)

    def restart(self, session_id: int) -> None:
        """Begin with a new node, of this session."""
        self.hold, self._session_id = None, session_id

    def proven(self, submitted: timedelta) -> bool:
        """Note a committed write of ours that was submitted at `submitted`.

        Returns:
            False if it came too late: the deadline had passed and what was held is over.
        """
        now = self._clock()
        if self.hold is not None and now >= self._deadline(self._liveness.facts):
            return False
        self._proven_at = submitted
        self._liveness.proven(self._session_id, submitted, now)
        return True

    def begin(self, generation: int) -> bool:
        """Hold the lock from now on; it was won on the connection `generation`.

        Returns:
            False if it cannot be held: that connection is gone, or the last proof is too old.
        """
        hold = Hold(self._session_id, generation)
        self.hold = hold if self._is_certain(hold) else None
        return self.hold is not None

    def end(self) -> None:
        """Hold it no more."""
        self.hold = None

    def stands(self, hold: Hold | None) -> bool:
        """Whether the lock is certainly held at this moment, and has been all through `hold`.

        No I/O. Never true in a forked child: the session is its parent's.
        """
        if hold is None or hold is not self.hold or hold.over or _Process.number != self._process:
            return False
        if not self._is_certain(hold):
            hold.over = True
            return False
        return True

    def remaining(self) -> timedelta:
        """Time until the deadline; while nothing is held, how long it would stand. May be negative."""
        return self._deadline(self._liveness.facts) - self._clock()

    def proof_age(self) -> timedelta | None:
        """Time since the last proof was submitted; None without one."""
        return None if self._proven_at is None else self._clock() - self._proven_at

    def _is_certain(self, hold: Hold) -> bool:
        """The facts are read before the clock: a pause between them can only turn the answer to no."""
        facts = self._liveness.facts
        if facts.session_id != hold.session_id or facts.since is None:
            return False
        if not self._any_connection and not (facts.is_connected and facts.generation == hold.generation):
            return False
        return self._clock() < facts.since + facts.timeout - self._margin

    def _deadline(self, facts: SessionFacts) -> timedelta:
        if facts.session_id != self._session_id or facts.since is None:
            return _LONG_AGO
        return facts.since + facts.timeout - self._margin
