"""The catalog: all pipelines, with the active release and the skipped fire times of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, time, timedelta
from enum import StrEnum

from nimbus.domain.cluster.alerts import NotifyRule
from nimbus.domain.data.publications import Accepted
from nimbus.domain.ids import DatasetName, PipelineName, ReleaseDigest
from nimbus.domain.pipelines.pipeline import Concurrency, PipelineSpec, Schedule, Scheduled
from nimbus.domain.wording import shortened

MAX_LISTED = 20
"""Limit of entries. Each has at most about 0.5 KiB, so the position node of a schedule stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFires:
    """Consecutive fire times that were skipped for one reason."""

    first: datetime
    last: datetime
    count: int
    reason: str
    at: datetime
    """When the last one was skipped."""
    schedule: str = ""
    """Name of their schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skips:
    """Skipped fire times of one pipeline since it was published."""

    total: int = 0
    listed: tuple[SkippedFires, ...] = ()
    """The last entries, oldest first."""

    def with_fires(
        self,
        fires: Sequence[datetime],
        reason: str,
        *,
        after: datetime | None,
        now: datetime,
        schedule: str = "",
    ) -> Skips:
        """The skips with more fire times added.

        Args:
            fires: Consecutive fire times, oldest first.
            reason: Why they start no run.
            after: Position of the schedule so far. If the last entry ends there and has the same reason,
                the entry grows.
            now: The time.
            schedule: Its name.
        """
        if not fires:
            return self
        more = SkippedFires(
            first=fires[0],
            last=fires[-1],
            count=len(fires),
            reason=shortened(reason),
            at=now,
            schedule=schedule,
        )
        listed = self.listed
        same = bool(listed) and (listed[-1].reason, listed[-1].schedule) == (more.reason, schedule)
        if same and listed[-1].last == after:
            more = replace(more, first=listed[-1].first, count=listed[-1].count + more.count)
            listed = listed[:-1]
        return Skips(total=self.total + len(fires), listed=(*listed, more)[-MAX_LISTED:])


class PipelineState(StrEnum):
    """The state that an operator has set. Quarantine is not here: no operator sets it."""

    INACTIVE = "inactive"
    """Published, never activated."""
    ACTIVE = "active"
    PAUSED = "paused"
    """Its schedule does not fire; runs can be started by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Scheduled):
    """What every scheduler knows about a release without its files."""

    description: str = ""
    """Cut to REASON_BYTES. The definition has the full text."""
    tags: tuple[str, ...] = ()
    runbook: str = ""
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
    readers: Mapping[DatasetName, tuple[str, ...]] = field(default_factory=dict)


_PROFILED = tuple(field.name for field in fields(Profile))


def profile_of(spec: PipelineSpec) -> Profile:
    """The profile that the catalog keeps of a definition."""
    same = {name: getattr(spec, name) for name in _PROFILED if hasattr(spec, name)}
    return replace(
        Profile(**same),
        description=shortened(spec.description),
        schedule=None if spec.schedule is None else replace(spec.schedule, parameters={}),
        more_schedules=tuple(replace(schedule, parameters={}) for schedule in spec.more_schedules),
        starts_by_data=spec.start is not None,
        tasks=len(spec.tasks),
        reads=tuple(sorted({read.dataset for read in spec.reads if read.of is None})),
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
    positions: Mapping[str, datetime] = field(default_factory=dict)
    """The same for each schedule with a name; without an entry, it is `schedule_position`."""
    rewound_from: datetime | None = None
    """The position before it was set back: fire times up to here may have runs in history."""
    skips: Skips = Skips()
    """Fire times that started no run."""
    updated_at: datetime

    @property
    def is_scheduled(self) -> bool:
        """True when its schedule fires."""
        is_active, profile = self.state is PipelineState.ACTIVE, self.profile
        return is_active and profile.schedule is not None and not profile.starts_by_data

    def position_of(self, schedule: Schedule) -> datetime | None:
        """All fire times of a schedule up to here are done. None: the pipeline was never activated."""
        return self.positions.get(schedule.name, self.schedule_position)

    @property
    def positions_of_all(self) -> tuple[datetime | None, Mapping[str, datetime]]:
        """What a fire moves."""
        return self.schedule_position, self.positions

    @property
    def furthest(self) -> datetime | None:
        """The latest position of its schedules. In the future: a leader's clock was ahead."""
        return max(filter(None, (self.schedule_position, *self.positions.values())), default=None)

    def moved(self, schedule: Schedule, position: datetime) -> PipelineRecord:
        """The record with another position of a schedule."""
        if not schedule.name:
            return replace(self, schedule_position=position)
        return replace(self, positions={**self.positions, schedule.name: position})

    def fires_after(self, schedule: Schedule, now: datetime) -> datetime:
        """The moment after which a schedule fires next: its position, if a clock was ahead, else `now`."""
        return max(now, self.position_of(schedule) or now)


def followers(records: Iterable[PipelineRecord], calendar: str) -> Iterator[PipelineRecord]:
    """The pipelines that follow a calendar of the cluster."""
    for record in records:
        if any(
            schedule.calendar == calendar and not schedule.of_release for schedule in record.profile.schedules
        ):
            yield record


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
