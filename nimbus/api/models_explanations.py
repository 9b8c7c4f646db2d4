"""Models of explanations why something is not running."""

from __future__ import annotations

from datetime import datetime

from nimbus.api.models import Model


class ReasonModel(Model):
    """One reason: a condition that is waited for, or a fact."""

    about: str
    """The waiting subject, such as `run`, `task load`, `schedule`, `run flights-20260301t060000z`."""
    why: str
    """The reason, with ids, figures and times, and what would end it."""
    until: datetime | None = None
    """The next time at which this changes by itself; null: it ends by an event."""


class ExplanationModel(Model):
    """Why a run or a pipeline is not running."""

    id: str
    """Id of the run, or name of the pipeline."""
    state: str
    next_change: datetime | None
    """The earliest `until`."""
    reasons: list[ReasonModel]
    more: int
    """Number of left-out reasons. For a task of a run, request that task alone."""


def explanation(name: str, state: str, reasons: list[ReasonModel], most: int) -> ExplanationModel:
    """The answer, with at most `most` reasons."""
    return ExplanationModel(
        id=name,
        state=state,
        next_change=min((one.until for one in reasons if one.until is not None), default=None),
        reasons=reasons[:most],
        more=max(0, len(reasons) - most),
    )
