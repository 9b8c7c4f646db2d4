"""What the API shows of purges."""

from __future__ import annotations

from datetime import datetime

from nimbus.api.models import Model
from nimbus.domain.purge import Said
from nimbus.domain.purge_parts import Part
from nimbus.domain.run import RunState


class PurgedPartModel(Model):
    """A part of a run that is gone, or is about to go."""

    part: Part
    at: datetime
    by: str
    """`retention`, or who asked."""
    why: str


class PlannedPurgeModel(Model):
    """What a purge would do to one run."""

    run_id: str
    pipeline: str
    state: RunState
    finished_at: datetime | None
    parts: list[Part]
    """That would go; those that are gone already are left out."""
    kept: str | None
    """Why it keeps its outputs and its history; null: nothing keeps them."""


class PurgePlanModel(Model):
    """What a purge would do."""

    runs: list[PlannedPurgeModel]
    """Newest first."""
    complete: bool
    """False: there may be more; of a pipeline, the newest 200 runs before the date are looked at."""


def purged_part(part: Part, said: Said) -> PurgedPartModel:
    """A part that is gone, with what is said of it."""
    return PurgedPartModel(part=part, at=said.at, by=said.by, why=said.why)
