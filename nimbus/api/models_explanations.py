"""Answers about why something is not running, as models."""

from __future__ import annotations

from datetime import datetime

from nimbus.api.models import Model


class ReasonModel(Model):
    """One thing that is waited for, or that is so."""

    about: str
    """What waits, such as `run`, `task load`, `schedule`, `run flights-20260301t060000z`."""
    why: str
    """With ids, figures and times, and what would end it."""
    until: datetime | None = None
    """The next time at which that changes by itself; null: an event ends it, not a time."""


class ExplanationModel(Model):
    """Why a run or a pipeline is not running."""

    id: str
    """Of the run, or the name of the pipeline."""
    state: str
    next_change: datetime | None
    """The earliest `until`."""
    reasons: list[ReasonModel]
    more: int
    """Reasons that are left out; of tasks of a run, ask for one."""


def explanation(name: str, state: str, reasons: list[ReasonModel], most: int) -> ExplanationModel:
    """The answer, with so many reasons at most."""
    return ExplanationModel(
        id=name,
        state=state,
        next_change=min((one.until for one in reasons if one.until is not None), default=None),
        reasons=reasons[:most],
        more=max(0, len(reasons) - most),
    )
