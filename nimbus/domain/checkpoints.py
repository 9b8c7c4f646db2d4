"""Finds the checkpoint that an attempt starts from."""

from __future__ import annotations

from collections.abc import Mapping

from nimbus.domain.ids import AttemptId
from nimbus.domain.slots import Slots


def earlier(attempt: AttemptId) -> list[AttemptId]:
    """The earlier attempts of the same task, newest first."""
    return [AttemptId(attempt.run, attempt.task, number) for number in range(attempt.number - 1, 0, -1)]


def inherited(slots: Mapping[AttemptId, Slots]) -> str | None:
    """The newest checkpoint of some attempts of one task, as JSON; None: they have none.

    All these attempts have ended, so the answer cannot change. A checkpoint in END is newer than one that was
    stored while the attempt ran.
    """
    for attempt in sorted(slots, key=lambda one: one.number, reverse=True):
        found = slots[attempt]
        if found.end is not None and found.end.checkpoint is not None:
            return found.end.checkpoint
        if found.checkpoint is not None:
            return found.checkpoint
    return None
