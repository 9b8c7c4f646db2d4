"""The questions put to the guard: one at a time, and each answer counts for one epoch, or for none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from leader.clock import Clock
from leader.guard import Verdict
from leader.office.ports import GuardPort


class Questions:
    """Asks the guard on behalf of an office. Driver only, but for what `guard` calls back.

    A leader that steps down raises the epoch for its successor, in the transaction that deletes its own
    latch. So the successor may ask its guard as soon as it hears of that, while it takes the lock or, if it
    heard of the deletion alone, while it reads the epoch. The answer counts if the epoch was indeed raised
    for it, and is thrown away if it was not.

    Args:
        guard: May be asked one question at a time.
        report: Puts an answer into the driver's inbox, which calls `answered` with it.
        limit: After which a question without an answer counts as hanging.
    """

    def __init__(
        self, guard: GuardPort, report: Callable[[Verdict], None], clock: Clock, limit: timedelta
    ) -> None:
        self._guard, self._report, self._clock, self._limit = guard, report, clock, limit
        self._asking = False
        self.asked_at = timedelta(0)
        """When the guard was last asked."""
        self._for: int | None = None  # epoch that the question under way is about; None: about none yet
        self._next: int | None = None  # epoch to ask about when the question under way is answered
        self._early = False  # whether the question under way was asked early, for the present claim

    def claim_begins(self) -> None:
        """What was asked early for an earlier claim is old: somebody else may have led since."""
        self._early = False

    def ask_anew(self) -> None:
        """The epoch was raised for us a moment ago: ask, whatever was asked before."""
        self.claim_begins()
        self.ask_early()

    def ask_early(self) -> None:
        """Ask before it is known whether the epoch is ours."""
        if not self._asking:
            self._for = self._next = None
            self._ask()
            self._early = self._asking

    def ask(self, epoch: int, *, early_counts: bool) -> None:
        """Ask about `epoch`; with `early_counts`, a question that is under way will do."""
        if not self._asking:
            self._for, self._next = epoch, None
            self._ask()
        elif early_counts and self._early and self._for is None and self._next is None:
            self._for = epoch
        else:
            self._for, self._next = None, epoch

    def answered(self, verdict: Verdict) -> tuple[int, Verdict] | None:
        """Take the answer to the question under way. Returns the epoch it counts for, and the verdict."""
        self._asking = False
        epoch, self._for = self._for, None
        following, self._next = self._next, None
        if following is not None:
            self.ask(following, early_counts=False)
            return None
        return None if epoch is None else (epoch, verdict)

    @property
    def hangs(self) -> bool:
        """Whether the guard has owed us an answer for so long that asking again is vain."""
        return self._asking and self._clock() - self.asked_at >= self._limit

    def _ask(self) -> None:
        self.asked_at = self._clock()
        self._asking = self._guard.ask(self._report)
