"""Session liveness and leadership lease: they say without I/O whether the lock is certainly held now.

A flag is not enough: after a pause longer than the session, a process continues with the flag still set. So
the answer compares the clock with a deadline, and the connection with the one on which the lock was won.

The deadline counts from the session liveness, the latest time at which ZooKeeper certainly counted the
session as alive. One committed write does not give this time: ZooKeeper's leader does not prolong a session
when it commits the session's writes. The session's server (perhaps a follower) collects signs of life and
sends them to the leader every half tick. So one committed write proves only that the session was not over
yet. Two committed writes prove more, if the second was sent at least half a tick after the answer to the
first. The server sends in order, so the leader received the first write's sign of life before the second
write. So the session was alive, and was prolonged, after the first write was sent. Creating a session, or
attaching to it again, goes through the leader and counts at once.

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
"""The second proof must be sent at least timeout / `APART` after the answer to the first, to confirm it.

This interval is at least half a tick if the session timeout is three ticks or more. If the timeout is two
ticks, the least that a server grants, half a tick is a quarter of it. Then the margin must cover the
difference, a twelfth of the timeout. Servers also round the end of a session up to a tick.
"""

KEPT = 8
"""Number of proofs kept in each timeout / `APART`. Of proofs that are closer, only the first is kept."""


@record
class SessionFacts:
    """The known state of a session at one moment. Immutable: each change makes new facts.

    Args:
        session_id: Id of the session. Kept while the connection is broken; None after the session is lost.
        generation: Rises when the connection breaks, and once more when the session is then lost. So while it
            is equal, the connection did not break.
        alive_since: The session liveness: from this time on the session lives for at least `timeout`. None if
            unknown.
    """

    session_id: int | None = None
    generation: int = 0
    is_connected: bool = False
    alive_since: timedelta | None = None
    timeout: timedelta = timedelta(0)


class SessionLiveness:
    """Keeps the session facts; from the proofs it computes `alive_since`, the session liveness.

    All times are of one clock, that of the session's owner.

    Any thread may read `facts` without a lock, because it is replaced in one assignment. kazoo's connection
    thread and the driver threads replace it, one at a time. Until a server grants one, `timeout` is the
    requested session timeout.
    """

    def __init__(self, timeout: timedelta = timedelta(0)) -> None:
        self.facts = SessionFacts(timeout=timeout)
        self._writing = threading.Lock()  # held for a few instructions, never while other code is called
        self._unconfirmed: deque[tuple[timedelta, timedelta]] = deque()  # submitted, answered; oldest first

    def attached(self, session_id: int | None, asked: timedelta, timeout: timedelta) -> None:
        """Note a new connection with this session. The client requested it at `asked`."""
        with self._writing:
            self.facts = SessionFacts(session_id, self.facts.generation, True, asked, timeout)
            self._unconfirmed.clear()

    def broke(self, *, lost: bool) -> None:
        """Note that the connection broke; if `lost`, the session is over, too."""
        with self._writing:
            facts = replace(self.facts, generation=self.facts.generation + 1, is_connected=False)
            self.facts = replace(facts, session_id=None, alive_since=None) if lost else facts

    def proven(self, session_id: int | None, submitted: timedelta, answered: timedelta) -> None:
        """Note a committed write of `session_id`. It confirms the writes answered long enough before it."""
        with self._writing:
            facts, waiting = self.facts, self._unconfirmed
            if session_id != facts.session_id:
                return
            confirmed, apart = facts.alive_since, facts.timeout / APART
            while waiting and submitted - waiting[0][1] >= apart:
                oldest = waiting.popleft()[0]
                confirmed = oldest if confirmed is None else max(confirmed, oldest)
            if not waiting or submitted - waiting[-1][1] >= apart / KEPT:
                waiting.append((submitted, answered))
            if confirmed != facts.alive_since:
                self.facts = replace(facts, alive_since=confirmed)


class SessionView(Protocol):
    """The part of the ZooKeeper session that the core uses. No method blocks."""

    @property
    def liveness(self) -> SessionLiveness:
        """The keeper of the session facts."""

    def reconnect(self) -> None:
        """Cut a connection that seems dead, so that kazoo makes another."""


def margin_objection(margin: timedelta, session_timeout: timedelta) -> str | None:
    """Returns why `margin` leaves no time to lead in a session of `session_timeout`; None if there is time.

    A leader sends a proof every quarter of the session timeout, and the deadline counts from the proof before
    the last. So ordinarily half of the timeout has already passed.
    """
    if margin < session_timeout / 2:
        return None
    return (
        f"step_down_margin ({margin}) must be below half of the session timeout ({session_timeout}); "
        f"lower the margin or raise the timeout, on the servers too, because they limit it"
    )


def check_margin(margin: timedelta, session_timeout: timedelta) -> None:
    """Raises ElectionConfigError if `margin` leaves no time to lead in a session of `session_timeout`."""
    objection = margin_objection(margin, session_timeout)
    if objection is not None:
        raise ElectionConfigError(objection)


class _Process:
    """Identifies the process by the number of forks that led to it. Cheaper to read than the process id."""

    number = 0

    @classmethod
    def forked(cls) -> None:
        cls.number += 1


os.register_at_fork(after_in_child=_Process.forked)


class LockHold:
    """One period of holding the lock, won with a node of `session_id` on the connection `generation`.

    `over` is set once and never cleared: once `stands` has returned False, it does not return True again.
    """

    __slots__ = ("generation", "over", "session_id")

    def __init__(self, session_id: int | None, generation: int) -> None:
        self.session_id, self.generation, self.over = session_id, generation, False


class LeadershipLease:
    """The leadership lease: the lock is certain until session liveness plus session timeout, less a margin.

    Driver thread only, except `stands`, `remaining` and `proof_age`. Any thread may call these. They take no
    lock: each reads the hold and the session facts once, and then the clock. `margin`: how long before the
    session can end the lock counts as lost. `any_connection`: the lock is kept after the connection broke
    (`SuspendedPolicy.SESSION`).
    """

    def __init__(
        self, liveness: SessionLiveness, clock: Clock, margin: timedelta, *, any_connection: bool = False
    ) -> None:
        self._liveness, self._clock, self._margin = liveness, clock, margin
        self._any_connection = any_connection
        self._process = _Process.number
        self._session_id: int | None = None  # owner of the latch node
        self._proven_at: timedelta | None = None
        self.hold: LockHold | None = None
        """The present hold. It may be over: `stands` checks it."""

    def objection(self) -> str | None:
        """Returns why no lock can be held; None if one can. A reconnect may have lowered the timeout."""
        return margin_objection(self._margin, self._liveness.facts.timeout)

    def restart(self, session_id: int) -> None:
        """Start again with a new latch node, owned by this session."""
        self.hold, self._session_id = None, session_id

    def proven(self, submitted: timedelta) -> bool:
        """Note a committed write of this participant that was sent at `submitted`.

        False if the answer came after the deadline, so that the hold is over.
        """
        now = self._clock()
        if self.hold is not None and now >= self._deadline(self._liveness.facts):
            return False
        self._proven_at = submitted
        self._liveness.proven(self._session_id, submitted, now)
        return True

    def begin(self, generation: int) -> bool:
        """Begin a hold of the lock, which was won on the connection `generation`.

        False if it cannot be held: that connection broke, or the last proof that counts is too old.
        """
        hold = LockHold(self._session_id, generation)
        self.hold = hold if self._is_certain(hold) else None
        return self.hold is not None

    def end(self) -> None:
        """End the hold."""
        self.hold = None

    def stands(self, hold: LockHold | None) -> bool:
        """True when the lock is certainly held now, and was so since `hold` began.

        No I/O. Never true in a forked child: the session belongs to the parent.
        """
        if hold is None or hold is not self.hold or hold.over or _Process.number != self._process:
            return False
        if not self._is_certain(hold):
            hold.over = True
            return False
        return True

    def remaining(self) -> timedelta:
        """Time until the deadline of the hold, or of one that would begin now. May be negative."""
        return self._deadline(self._liveness.facts) - self._clock()

    def proof_age(self) -> timedelta | None:
        """Time since the last proof was sent; None without one."""
        return None if self._proven_at is None else self._clock() - self._proven_at

    def _is_certain(self, hold: LockHold) -> bool:
        """Reads the facts before the clock: a pause between the two can only change the answer to False."""
        facts = self._liveness.facts
        if facts.session_id != hold.session_id or facts.alive_since is None:
            return False
        if not self._any_connection and not (facts.is_connected and facts.generation == hold.generation):
            return False
        return self._clock() < facts.alive_since + facts.timeout - self._margin

    def _deadline(self, facts: SessionFacts) -> timedelta:
        if facts.session_id != self._session_id or facts.alive_since is None:
            return _LONG_AGO
        return facts.alive_since + facts.timeout - self._margin
