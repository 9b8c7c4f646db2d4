"""The confirmed term: granted, revoked, and drained when the electable has come back from its end."""

from __future__ import annotations

from datetime import timedelta

from leader.clock import Clock
from leader.core.lease import ZERO, Hold, LeadershipLease
from leader.core.participant.ports import CallbackPort
from leader.journal import Journal
from leader.protocol.terms import Leadership


class ConfirmedTerm:
    """See the module. Driver only, but for `leadership`, `age`, `granted` and `overdue`.

    Args:
        patience: How long an electable may take for the end of a term before it is given no other.
    """

    def __init__(
        self,
        lease: LeadershipLease,
        callbacks: CallbackPort,
        journal: Journal,
        clock: Clock,
        patience: timedelta,
    ) -> None:
        self._lease, self._callbacks, self._journal, self._clock = lease, callbacks, journal, clock
        self._patience = patience
        self._granted: tuple[Leadership, Hold] | None = None  # replaced as a whole
        self._gained_at = self._granted_at = ZERO
        self._ending: tuple[int, timedelta] | None = None  # the last term, while its end is being told; since
        self._kept_waiting = False  # by that

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
        self._journal.granted(leadership.epoch, self._granted_at - self._gained_at)
        self._callbacks.elected(leadership)
        return True

    def revoke(self, reason: str) -> bool:
        """Lead no more, and tell.

        Returns:
            False if there was no term.
        """
        granted, self._granted = self._granted, None
        if granted is None:
            return False
        leadership = granted[0]
        self._journal.revoked(leadership.epoch, reason)
        self._ending = (leadership.epoch, self._clock())
        self._callbacks.revoked(leadership, reason)
        return True

    @property
    def overdue(self) -> int | None:
        """The epoch whose end the electable has not returned from in time. Any thread."""
        ending = self._ending
        return None if ending is None or self._clock() - ending[1] < self._patience else ending[0]

    def keep_waiting(self) -> None:
        """Another term waits until the electable has returned."""
        self._kept_waiting = True

    def drained(self, epoch: int) -> bool:
        """The electable has come back from the end of `epoch`. Returns whether a term waits for that."""
        if self._ending is None or self._ending[0] != epoch:
            return False
        self._ending = None
        waited, self._kept_waiting = self._kept_waiting, False
        return waited
