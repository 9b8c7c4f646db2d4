"""With which checkpoint an attempt begins."""

from __future__ import annotations

from collections.abc import Mapping

from nimbus.domain.ids import AttemptId
from nimbus.domain.slots import Slots


def earlier(attempt: AttemptId) -> list[AttemptId]:
    """The attempts of the same task before one, newest first."""
    return [AttemptId(attempt.run, attempt.task, number) for number in range(attempt.number - 1, 0, -1)]


def inherited(slots: Mapping[AttemptId, Slots]) -> str | None:
    """The last checkpoint of some attempts of one task, as JSON; None: they kept none.

    All of them have ended, so none of them can keep another one. What an END brings is newer than what was
    kept while the attempt ran.
    """
    for attempt in sorted(slots, key=lambda one: one.number, reverse=True):
        found = slots[attempt]
        if found.end is not None and found.end.checkpoint is not None:
            return found.end.checkpoint
        if found.checkpoint is not None:
            return found.checkpoint
    return None
