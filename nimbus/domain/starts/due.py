"""Starts by data: what has changed for a consumer since its last runs. Pure.

A *consumer* is a pipeline whose runs a change of the datasets that it reads starts. With a schedule, the
intervals between its fire times are the *targets*: a change makes those due whose run reads the changed data.
Without one, the datasets that changed are kept.

There is no queue of events: many changes of a target make it due once, and it stays due until a run of it is
created, in the same transaction, or an operator drops it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from itertools import pairwise

from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Read, Version
from nimbus.domain.data.reads import read_apart
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.catalog import Profile
from nimbus.domain.pipelines.intervals import DataInterval, with_span, without_span
from nimbus.domain.pipelines.pipeline import DataStart, PipelineSpec, Schedule, StartWhen
from nimbus.domain.runs.run import DataCause, ListedRun, Run, RunCause
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.runs.tasks import Tasks

MAX_EXTENTS = 256
"""Limit of the separate spans of time in which targets are due."""
MAX_CAUSES = 20
"""How many changes a consumer and its runs know. Older ones are only counted."""
TRY_AGAIN = timedelta(minutes=1)
"""Pause after a run could not be created."""
MAX_CONSUMERS = 100
"""Limit of the consumers of the datasets of a task: its transaction, which has 1 MB, writes them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedStart:
    """Why the last try to create a run failed. It is repeated after a while."""

    why: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A consumer: when it starts, and what is due. Its size is bounded."""

    pipeline: PipelineName
    start: DataStart
    schedule: Schedule | None = None
    """Its fire times are the ends of targets. None: there are no targets."""
    reads: tuple[Read, ...] = ()
    """What must be there before a run starts. The keys are templates."""
    extents: tuple[DataInterval, ...] = ()
    """The targets that are due, joined: each is the time from the fire time before it to its own."""
    changed: tuple[DatasetName, ...] = ()
    """Without a schedule: the datasets that have changed since the last start."""
    changed_at: datetime | None = None
    """The last change."""
    causes: tuple[DataCause, ...] = ()
    """The last changes that made due what is due now, oldest first."""
    more_causes: int = 0
    """How many older ones there were."""
    starts: int = 0
    """How many runs were started or refused. The next one's number is part of the id of its run."""
    started_at: datetime | None = None
    """The last start."""
    refused: RefusedStart | None = None

    @property
    def starting(self) -> tuple[Read, ...]:
        """The reads whose changes start runs."""
        return tuple(read for read in self.reads if read.starts)

    def starts_on(self, dataset: DatasetName) -> bool:
        """True when changes of a dataset start its runs."""
        return any(read.dataset == dataset for read in self.starting)

    @property
    def is_due(self) -> bool:
        """True when something is due, whether or not its inputs are complete."""
        if self.schedule is not None or self.start.when is StartWhen.ANY:
            return bool(self.extents or self.changed)
        return {read.dataset for read in self.starting} <= set(self.changed)

    @property
    def may_start_at(self) -> datetime:
        """The earliest start of what is due."""
        assert self.changed_at is not None  # noqa: S101 - something is due
        settled = self.changed_at + (self.start.settle or timedelta(0))
        return settled if self.refused is None else max(settled, self.refused.at + TRY_AGAIN)

    def dated_by(self, now: datetime) -> Due:
        """The consumer without times that are still to come: the clock of an earlier leader was ahead."""
        refused = None if self.refused is None else replace(self.refused, at=min(now, self.refused.at))
        changed_at = None if self.changed_at is None else min(now, self.changed_at)
        return replace(self, changed_at=changed_at, refused=refused)

    def with_change(self, cause: DataCause, targets: Iterable[DataInterval]) -> Due:
        """The consumer after a change of a dataset, with the time of the targets that this makes due.

        If there would be too many extents, the closest are joined: more targets are due, none is lost.
        """
        extents = reduce(with_span, targets, self.extents)
        while len(extents) > MAX_EXTENTS:
            between = [after.start - extent.end for extent, after in pairwise(extents)]
            place = between.index(min(between))
            joined = DataInterval(start=extents[place].start, end=extents[place + 1].end)
            extents = (*extents[:place], joined, *extents[place + 2 :])
        changed = self.changed
        if self.schedule is None and cause.dataset not in changed:
            changed = (*changed, cause.dataset)
        causes = (*self.causes, cause)
        return replace(
            self,
            extents=extents,
            changed=changed,
            changed_at=cause.at if self.changed_at is None else max(cause.at, self.changed_at),
            causes=causes[-MAX_CAUSES:],
            more_causes=self.more_causes + max(0, len(causes) - MAX_CAUSES),
        )

    def without(self, target: DataInterval | None) -> Due | None:
        """The consumer when a target is no longer due; None: what is left has too many extents.

        Then only targets at the ends of extents may start first: joining others would make targets due again
        that have just started, and so for ever.
        """
        if target is None:
            return self.dropped()
        extents = without_span(self.extents, target)
        if len(extents) > max(MAX_EXTENTS, len(self.extents)):
            return None
        return self.dropped() if not extents else replace(self, extents=extents)

    def without_change(self, dataset: DatasetName) -> Due:
        """The consumer when a run has read all changes of a dataset. What is due by intervals stays due."""
        if dataset not in self.changed:
            return self
        changed = tuple(name for name in self.changed if name != dataset)
        causes = tuple(cause for cause in self.causes if cause.dataset != dataset)
        return replace(self, changed=changed, causes=causes) if changed else self.dropped()

    def dropped(self) -> Due:
        """The consumer with nothing due."""
        return replace(self, extents=(), changed=(), causes=(), more_causes=0, refused=None)

    def started(self, left: Due, now: datetime) -> Due:
        """The consumer after the start of a run, with what is left due."""
        return replace(left, starts=self.starts + 1, started_at=now, refused=None)


def consumer_of(spec: PipelineSpec, before: Due | None) -> Due | None:
    """The consumer of an activated release; None: it does not start by data.

    What is due stays due, unless the release has a schedule and the one before had none, or the other way.
    """
    if spec.start is None:
        return None
    apart = read_apart(Tasks(TaskRun(spec=task) for task in spec.tasks), spec.reads)
    due = before or Due(pipeline=spec.name, start=spec.start)
    if (due.schedule is None) is not (spec.schedule is None):
        due = due.dropped()
    reads = tuple(read for read in spec.reads if read.starts or read.name not in apart)
    return replace(due, start=spec.start, schedule=spec.schedule, reads=reads, refused=None)


def changes(dataset: Dataset, before: Dataset | None) -> Iterator[Version]:
    """The versions to which partitions of a dataset point now, and did not before.

    None is one that an older run published too late, nor one that a dataset no longer keeps.
    """
    known = {} if before is None else {version.partition: version for version in before.versions}
    for version in dataset.versions:
        was = known.get(version.partition)
        if was is not version and was != version:
            yield version


def cause_of(dataset: DatasetName, version: Version, now: datetime) -> DataCause:
    """A change, as consumers and their runs know it."""
    return DataCause(
        dataset=dataset, partition=version.partition, number=version.number, run=version.run, at=now
    )


def has_room(live: Sequence[Run | ListedRun], profile: Profile) -> bool:
    """True when one more run of a pipeline may start by data. Without a limit, one may be under way."""
    if profile.concurrency is not None:
        return len(live) < profile.concurrency.limit
    return all(run.cause is not RunCause.DATA for run in live)
