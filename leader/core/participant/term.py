"""The confirmed term, and the pending calls of guard and electable."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from leader.clock import Clock
from leader.config import ElectionConfig
from leader.core.lease import ZERO, LeadershipLease, LockHold
from leader.journal import Granted, Journal, Revoked
from leader.protocol.record import record
from leader.protocol.terms import Leadership


class CallbackPort(Protocol):
    """Calls guard and electable outside the core, one call at a time, in the order of the requests.

    No method blocks. The result of a call comes to the core as an event.
    """

    def ask(self, epoch: int) -> None:
        """Request a call of the guard. A newer `ask` replaces one that has not begun. -> later GuardSaid."""

    def elected(self, leadership: Leadership) -> None:
        """Request a call of `elected`. -> AbdicationAsked, if it raises."""

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """Request a call of `revoked`. -> Drained."""


@record
class _Call:
    """A call that has not returned.

    `since`: when it was requested, or, if an earlier call had not returned then, when that one was requested;
    once that one has returned, when it returned.
    """

    epoch: int
    since: timedelta


class PendingCalls:
    """Requests the calls of the guard and of `revoked`, and records which of them have not returned.

    Driver thread only; any thread may call `overdue`. Limit of a guard's call: `guard_timeout`. Limit of the
    electable's call: `guard_timeout` or `handover_timeout`, whichever is longer. After that the participant
    takes no other term until the call has returned.
    """

    def __init__(self, callbacks: CallbackPort, config: ElectionConfig, clock: Clock) -> None:
        self._callbacks, self._clock = callbacks, clock
        self._guard_timeout = config.guard_timeout
        self._patience = max(config.handover_timeout, config.guard_timeout)
        self._question: _Call | None = None  # the newest; an older one may still run
        self._ending: _Call | None = None  # `revoked` of the last term
        self._kept_waiting = False  # True when a late `_ending` has stopped a claim

    def ask(self, epoch: int) -> None:
        """Request a call of the guard. If an earlier call has not returned, time counts from that one."""
        hanging = self._question
        self._question = _Call(epoch, self._clock() if hanging is None else hanging.since)
        self._callbacks.ask(epoch)

    def answered(self, epoch: int) -> timedelta | None:
        """Note the guard's answer for `epoch`. Returns how long it took; None for an older question."""
        question = self._question
        if question is None:
            return None
        if question.epoch != epoch:
            self._question = _Call(question.epoch, self._clock())  # the guard is called only now
            return None
        self._question = None
        return self._clock() - question.since

    def end(self, leadership: Leadership, reason: str) -> None:
        """Request a call of `revoked`: the term is over."""
        self._ending = _Call(leadership.epoch, self._clock())
        self._callbacks.revoked(leadership, reason)

    def drained(self, epoch: int) -> bool:
        """Note that `revoked` of `epoch` has returned. Returns True if that call had stopped a claim."""
        if self._question is not None:
            self._question = _Call(self._question.epoch, self._clock())  # the guard is called only now
        if self._ending is None or self._ending.epoch != epoch:
            return False
        self._ending = None
        waited, self._kept_waiting = self._kept_waiting, False
        return waited

    def hanging(self) -> str | None:
        """Returns which call hangs, so that a claim now could not call its guard; None if none hangs."""
        if self._is_late(self._ending, self._patience):
            self._kept_waiting = True
        return self.overdue()

    def overdue(self) -> str | None:
        """Returns which call has not returned in time; None if none. Any thread."""
        ending, question = self._ending, self._question
        if ending is not None and self._is_late(ending, self._patience):
            return f"the electable hangs: elected() or revoked() of epoch {ending.epoch} has not returned"
        if self._is_late(question, self._guard_timeout):
            return "the guard hangs: an earlier call has not returned"
        return None

    def _is_late(self, call: _Call | None, limit: timedelta) -> bool:
        return call is not None and self._clock() - call.since >= limit


class ConfirmedTerm:
    """The term, from `grant` to `revoke`. Driver thread only, except `leadership`, `age` and `granted`."""

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
        self._granted: tuple[Leadership, LockHold] | None = None  # replaced in one assignment
        self._gained_at = self._granted_at = ZERO

    def leadership(self) -> Leadership | None:
        """Returns the leadership, if the lock is certainly held now; else None. No I/O, no lock.

        The hold must be the one under which leadership was granted, not a later one.
        """
        granted = self._granted
        return granted[0] if granted is not None and self._lease.stands(granted[1]) else None

    @property
    def granted(self) -> bool:
        """True when there is a term, even if the lock is not certain now."""
        return self._granted is not None

    def age(self) -> timedelta | None:
        """Time since leadership was confirmed; None without a term."""
        return None if self._granted is None else self._clock() - self._granted_at

    def lock_gained(self) -> None:
        """Start to measure the time until the grant."""
        self._gained_at = self._clock()

    def grant(self, leadership: Leadership) -> bool:
        """Begin the term, and request a call of `elected`. Returns False if the lock is no longer held."""
        hold = self._lease.hold
        if hold is None or not self._lease.stands(hold):
            return False
        self._granted, self._granted_at = (leadership, hold), self._clock()
        self._journal.record(Granted(leadership.epoch, self._granted_at - self._gained_at))
        self._callbacks.elected(leadership)
        return True

    def revoke(self, reason: str) -> bool:
        """End the term, and request a call of `revoked`. Returns False if there was no term."""
        granted, self._granted = self._granted, None
        if granted is None:
            return False
        self._journal.record(Revoked(granted[0].epoch, reason))
        self._calls.end(granted[0], reason)
        return True
