"""The confirmed term, and the calls of guard and electable that have not returned yet."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from leader.clock import Clock
from leader.config import ElectionConfig
from leader.core.lease import ZERO, Hold, LeadershipLease
from leader.journal import Granted, Journal, Revoked
from leader.protocol.record import record
from leader.protocol.terms import Leadership


class CallbackPort(Protocol):
    """Calls guard and electable somewhere else, one call at a time, in the order asked for. Never blocks.

    What comes of a call is handed to the core as an event.
    """

    def ask(self, epoch: int) -> None:
        """Ask the guard, unless a newer question is asked before its turn comes. -> later GuardSaid."""
        ...

    def elected(self, leadership: Leadership) -> None:
        """Tell the electable. -> AbdicationAsked, if it raises."""
        ...

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """Tell the electable. -> Drained."""
        ...


@record
class _Call:
    """A call that has not returned. `since`: it was asked for, or could begin."""

    epoch: int
    since: timedelta


class PendingCalls:
    """Asks the guard and tells of the end of a term, and knows which of these calls has not returned.

    Driver only, but for `overdue`. A guard has `guard_timeout`. An electable has that or `handover_timeout`,
    whichever is longer: then it is given no other term until it has returned.
    """

    def __init__(self, callbacks: CallbackPort, config: ElectionConfig, clock: Clock) -> None:
        self._callbacks, self._clock = callbacks, clock
        self._guard_timeout = config.guard_timeout
        self._patience = max(config.handover_timeout, config.guard_timeout)
        self._question: _Call | None = None  # the newest; an older one may hang before it
        self._ending: _Call | None = None  # of the last term
        self._kept_waiting = False  # a claim, by that

    def ask(self, epoch: int) -> None:
        """Ask the guard. The question waits behind one that hangs, and so counts from that one's time."""
        hanging = self._question
        self._question = _Call(epoch, self._clock() if hanging is None else hanging.since)
        self._callbacks.ask(epoch)

    def answered(self, epoch: int) -> timedelta | None:
        """The guard has answered for `epoch`. Returns how long it took; None for an older question."""
        question = self._question
        if question is None:
            return None
        if question.epoch != epoch:
            self._question = _Call(question.epoch, self._clock())  # it is asked only now
            return None
        self._question = None
        return self._clock() - question.since

    def end(self, leadership: Leadership, reason: str) -> None:
        """Tell the electable that its term is over."""
        self._ending = _Call(leadership.epoch, self._clock())
        self._callbacks.revoked(leadership, reason)

    def drained(self, epoch: int) -> bool:
        """The electable has returned from the end of `epoch`. Returns whether a claim waits for that."""
        if self._question is not None:
            self._question = _Call(self._question.epoch, self._clock())  # it is asked only now
        if self._ending is None or self._ending.epoch != epoch:
            return False
        self._ending = None
        waited, self._kept_waiting = self._kept_waiting, False
        return waited

    def hanging(self) -> str | None:
        """Why a claim would be vain now: its question could not be asked. None if nothing hangs."""
        if self._is_late(self._ending, self._patience):
            self._kept_waiting = True
        return self.overdue()

    def overdue(self) -> str | None:
        """Which call has not returned in time. Any thread."""
        ending, question = self._ending, self._question
        if ending is not None and self._is_late(ending, self._patience):
            return f"the electable hangs: elected() or revoked() of epoch {ending.epoch} has not returned"
        if self._is_late(question, self._guard_timeout):
            return "the guard still hangs in an earlier question"
        return None

    def _is_late(self, call: _Call | None, limit: timedelta) -> bool:
        return call is not None and self._clock() - call.since >= limit


class ConfirmedTerm:
    """Granted, and revoked. Driver only, but for `leadership`, `age` and `granted`."""

    def __init__(
        self,
        lease: LeadershipLease,
        callbacks: CallbackPort,
        calls: PendingCalls,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._lease, self._callbacks, self._calls = lease, callbacks, calls
        self._journal, self._clock = journal, clock
        self._granted: tuple[Leadership, Hold] | None = None  # replaced as a whole
        self._gained_at = self._granted_at = ZERO

    def leadership(self) -> Leadership | None:
        """The leadership, if it certainly stands at this moment. No I/O, no lock.

        It stands on the hold that it was granted on: not on one that was lost and gained again since.
        """
        granted = self._granted
        return granted[0] if granted is not None and self._lease.stands(granted[1]) else None

    @property
    def granted(self) -> bool:
        """Whether there is a term, though it may not stand at this moment."""
        return self._granted is not None

    def age(self) -> timedelta | None:
        """Time since it was confirmed."""
        return None if self._granted is None else self._clock() - self._granted_at

    def lock_gained(self) -> None:
        """From here on the grant is timed."""
        self._gained_at = self._clock()

    def grant(self, leadership: Leadership) -> bool:
        """Lead, and tell. False if the lock does not stand any more."""
        hold = self._lease.hold
        if hold is None or not self._lease.stands(hold):
            return False
        self._granted, self._granted_at = (leadership, hold), self._clock()
        self._journal.record(Granted(leadership.epoch, self._granted_at - self._gained_at))
        self._callbacks.elected(leadership)
        return True

    def revoke(self, reason: str) -> bool:
        """Lead no more, and tell. False if there was no term."""
        granted, self._granted = self._granted, None
        if granted is None:
            return False
        self._journal.record(Revoked(granted[0].epoch, reason))
        self._calls.end(granted[0], reason)
        return True
