"""The confirmed term: granted, revoked, and drained when the electable has come back from its end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from leader.clock import Clock
from leader.journal import Journal
from leader.office.ports import NotifierPort
from leader.protocol.terms import Leadership
from leader.tenure import ZERO, Tenure


class ConfirmedTerm:
    """See the module. Driver only, but for `leadership`, `age` and `granted`.

    Args:
        patience: How long an electable may take for the end of a term before it is given no other.
    """

    def __init__(
        self, tenure: Tenure, notifier: NotifierPort, journal: Journal, clock: Clock, patience: timedelta
    ) -> None:
        self._tenure, self._notifier, self._journal, self._clock = tenure, notifier, journal, clock
        self._patience = patience
        self.granted: Leadership | None = None
        """The term, whether it stands at this moment or not."""
        self._gained_at = self._granted_at = ZERO
        self._ending: tuple[int, timedelta] | None = None  # the last term, while its end is being told; since
        self._kept_waiting = False  # by that

    def leadership(self) -> Leadership | None:
        """The leadership, if it certainly stands at this moment. No I/O; any thread."""
        granted = self.granted
        return granted if granted is not None and self._tenure.stands() else None

    def age(self) -> timedelta | None:
        """Time since it was confirmed."""
        return None if self.granted is None else self._clock() - self._granted_at

    def lock_gained(self) -> None:
        """From here on the grant is timed."""
        self._gained_at = self._clock()

    def grant(self, leadership: Leadership) -> bool:
        """Lead, and tell. False if the lock does not stand any more."""
        if not self._tenure.stands():
            return False
        self.granted, self._granted_at = leadership, self._clock()
        self._journal.granted(leadership.epoch, self._granted_at - self._gained_at)
        self._notifier.elected(leadership)
        return True

    def revoke(self, reason: str, done: Callable[[int], None]) -> bool:
        """Lead no more, and tell; `done` is called with the epoch when the electable has come back.

        Returns:
            False if there was no term.
        """
        leadership, self.granted = self.granted, None
        if leadership is None:
            return False
        self._journal.revoked(leadership.epoch, reason)
        self._ending = (leadership.epoch, self._clock())
        self._notifier.revoked(leadership, reason, lambda: done(leadership.epoch))
        return True

    def hangs(self) -> bool:
        """Whether the electable would not hear that it leads, so that another term must wait for it."""
        late = self._ending is not None and self._clock() - self._ending[1] >= self._patience
        self._kept_waiting |= late
        return late

    def drained(self, epoch: int) -> bool:
        """The electable has come back from the end of `epoch`. Returns whether a term waits for that."""
        if self._ending is None or self._ending[0] != epoch:
            return False
        self._ending = None
        waited, self._kept_waiting = self._kept_waiting, False
        return waited
