"""Models of answers about purges."""

from __future__ import annotations

from datetime import datetime

from nimbus.api.models import Model
from nimbus.domain.purge import Said
from nimbus.domain.purge_parts import Part
from nimbus.domain.run import RunState


class PurgedPartModel(Model):
    """A part of a run that is purged, or is being purged."""

    part: Part
    at: datetime
    by: str
    """`retention`, or the name of the requester."""
    why: str


class PlannedPurgeModel(Model):
    """The plan of a purge for one run."""

    run_id: str
    pipeline: str
    state: RunState
    finished_at: datetime | None
    parts: list[Part]
    """Parts that would be deleted, without those that are deleted already."""
    kept: str | None
    """Why its outputs and history are kept; null: they are not."""


class PurgePlanModel(Model):
    """The plan of a purge."""

    runs: list[PlannedPurgeModel]
    """Runs, newest first."""
    complete: bool
    """False: there may be more. For a pipeline, the newest 200 runs before the date are checked."""


def purged_part(part: Part, said: Said) -> PurgedPartModel:
    """A purged part, with its record."""
    return PurgedPartModel(part=part, at=said.at, by=said.by, why=said.why)
