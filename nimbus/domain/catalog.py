"""The catalog: all pipelines, with the active release of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from enum import StrEnum

from nimbus.domain.concurrency import Concurrency
from nimbus.domain.growth import brief
from nimbus.domain.ids import DatasetName, PipelineName, ReleaseDigest
from nimbus.domain.notify import NotifyRule
from nimbus.domain.pipeline import PipelineSpec, Schedule
from nimbus.domain.publications import Accepted
from nimbus.domain.skipped import Skips


class PipelineState(StrEnum):
    """The state that an operator has set. Quarantine is not here: no operator sets it."""

    INACTIVE = "inactive"
    """Published, never activated."""
    ACTIVE = "active"
    PAUSED = "paused"
    """Its schedule does not fire; runs can be started by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What every scheduler knows about a release without its files."""

    description: str = ""
    """Cut to REASON_BYTES. The definition has the full text."""
    tags: tuple[str, ...] = ()
    runbook: str = ""
    schedule: Schedule | None = None
    starts_by_data: bool = False
    """True: changes of data start its runs, and not its schedule."""
    tasks: int = 0
    """Number of tasks."""
    concurrency: Concurrency | None = None
    children: tuple[PipelineName, ...] = ()
    """Pipelines whose runs its tasks start."""
    upstream: tuple[PipelineName, ...] = ()
    """Pipelines whose runs its tasks wait for."""
    datasets: tuple[DatasetName, ...] = ()
    """Datasets that its tasks publish, or that come from outside."""
    published_together: tuple[tuple[DatasetName, ...], ...] = ()
    """The datasets of each task that publishes several."""
    accepts: tuple[Accepted, ...] = ()
    """Those that come from outside."""
    reads: tuple[DatasetName, ...] = ()
    """Datasets that its tasks read, besides what its own child runs publish."""
    notify: tuple[NotifyRule, ...] | None = None
    deadline: time | None = None
    fresh: Mapping[DatasetName, timedelta] = field(default_factory=dict)
    """How long after the newest data of a dataset `late` is raised."""
    readers: Mapping[DatasetName, tuple[str, ...]] = field(default_factory=dict)
    """See `PipelineSpec.readers`."""


def profile_of(spec: PipelineSpec) -> Profile:
    """The profile that the catalog keeps of a definition."""
    return Profile(
        description=brief(spec.description),
        tags=spec.tags,
        runbook=spec.runbook,
        schedule=spec.schedule,
        starts_by_data=spec.start is not None,
        tasks=len(spec.tasks),
        concurrency=spec.concurrency,
        children=spec.children,
        upstream=spec.upstream,
        datasets=spec.datasets,
        published_together=spec.published_together,
        reads=tuple(sorted({read.dataset for read in spec.reads if read.of is None})),
        accepts=spec.accepts,
        notify=spec.notify,
        deadline=spec.deadline,
        fresh=spec.fresh,
        readers=spec.readers,
    )


CLOCK_DIFFERENCE = timedelta(seconds=2)
"""Clocks of participants that differ by more are worth a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRecord:
    """One pipeline in the catalog."""

    name: PipelineName
    state: PipelineState
    published: ReleaseDigest
    """The newest release that was published."""
    release: ReleaseDigest | None = None
    """The active release."""
    profile: Profile
    """Profile of the active release; of the newest release while none is active."""
    owner: str | None = None
    """A principal or a team, which may publish and remove it. None: admins alone."""
    pinned: tuple[ReleaseDigest, ...] = ()
    """Releases that backfills under way need."""
    schedule_position: datetime | None = None
    """All fire times up to here are done. The transaction that creates a run moves it."""
    rewound_from: datetime | None = None
    """The position before it was set back: fire times up to here may have runs in history."""
    skips: Skips = Skips()  # noqa: RUF009 - immutable
    """Fire times that started no run."""
    updated_at: datetime

    @property
    def is_scheduled(self) -> bool:
        """True when its schedule fires."""
        is_active, profile = self.state is PipelineState.ACTIVE, self.profile
        return is_active and profile.schedule is not None and not profile.starts_by_data

    def fires_after(self, now: datetime) -> datetime:
        """The moment after which the schedule fires next: its position, if a clock was ahead, else `now`."""
        return now if self.schedule_position is None else max(now, self.schedule_position)


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
    """Releases that a scheduler fetches: the required, the newest published and the pinned ones."""
    records = tuple(records)
    others = (ReleaseOf(r.name, digest) for r in records for digest in (r.published, *r.pinned))
    return required_releases(records) | frozenset(others)
