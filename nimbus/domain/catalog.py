"""The catalog: which pipelines there are, and which release of each is the one that runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipeline import PipelineSpec


class PipelineState(StrEnum):
    """What an operator wants of a pipeline. Quarantine is not wanted by anybody, so it is no state here."""

    INACTIVE = "inactive"
    """Published, never activated."""
    ACTIVE = "active"
    PAUSED = "paused"
    """Its schedule does not fire; runs can be started by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRecord:
    """One pipeline in the catalog."""

    name: PipelineName
    state: PipelineState
    published: ReleaseDigest
    """The newest release that was published."""
    published_spec: PipelineSpec
    release: ReleaseDigest | None = None
    """The active release."""
    spec: PipelineSpec | None = None
    """Of the active release."""
    schedule_position: datetime | None = None
    """Fire times up to here are dealt with; moved in the same transaction that creates the run."""
    updated_at: datetime


@dataclass(frozen=True, slots=True, order=True)
class ReleaseOf:
    """A release, by pipeline and digest."""

    pipeline: PipelineName
    digest: ReleaseDigest


def required_releases(records: Iterable[PipelineRecord]) -> frozenset[ReleaseOf]:
    """Releases that a scheduler must hold, verified, before it may lead."""
    return frozenset(
        ReleaseOf(record.name, record.release)
        for record in records
        if record.release is not None and record.state is not PipelineState.INACTIVE
    )


def wanted_releases(records: Iterable[PipelineRecord]) -> frozenset[ReleaseOf]:
    """Releases that a scheduler fetches: the required ones, and those about to be activated."""
    records = tuple(records)
    return required_releases(records) | frozenset(ReleaseOf(r.name, r.published) for r in records)
