"""Datasets: named outputs that outlive the runs that published them. Pure.

A task *publishes* its output as a *version* of a dataset, or of one *partition* of it, in the transaction
that closes its attempt. The newest version of a partition is that of the newest run, though an older one ends
later. So a rerun of an old interval replaces what it repeats, and a slow run replaces nothing.

A run's `number` orders runs: leaders count up, each above all its predecessors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from nimbus.domain.cluster.access import AccessDeniedError, AccessRole, Principal
from nimbus.domain.data.publications import (
    KEY_PATTERN,
    Partitioning,
    Publication,
    Version,
    interval_in,
    interval_text,
)
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.intervals import DataInterval, with_span
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun, TaskState

MAX_VERSIONS = 40
"""How many newest versions a record keeps in ZooKeeper, beside those that history does not have yet."""
MAX_CARRIED = 200_000
"""Limit of the bytes of URIs and values in a record, as of `Version.carried_bytes`. 40 versions have half."""
MAX_SPANS = 256
"""Limit of the separate spans of time that a record knows to be published."""


def partition_of(publication: Publication, run: Run) -> str | None:
    """The partition that a run publishes; None: its run has no data interval."""
    match publication.partition:
        case Partitioning.WHOLE:
            return ""
        case Partitioning.KEY:
            return publication.key
        case Partitioning.INTERVAL:
            return None if run.data_interval is None else interval_text(run.data_interval)


def published_by(run: Run, task: TaskRun) -> Iterator[tuple[Publication, Version]]:
    """What a task of a run has published: nothing unless it succeeded in this run."""
    if task.state is not TaskState.SUCCEEDED or task.reused is not None:
        return
    if task.settled is not None and task.spec.kind.uses_worker:
        return  # an operator marked it as succeeded: nothing was made, or checked
    for publication in task.spec.publishes:
        source = task if publication.of is None else run.tasks[publication.of]
        made, partition = source.committed, partition_of(publication, run)
        if made is None or partition is None:
            continue  # an operator marked that one as succeeded
        of = run.id if source.reused is None else source.reused.run
        ended = task.attempts[-1].ended_at if task.attempts else made.ended_at
        yield (
            publication,
            Version(
                partition=partition,
                number=run.number,
                sequence=task.sequence,
                run=run.id,
                task=task.spec.name,
                source=AttemptId(of, source.spec.name, made.number),
                output=made.output,
                at=ended or run.created_at,
                keep=publication.keep,
                keep_versions=publication.keep_versions,
            ),
        )


def versions_of(run: Run) -> Iterator[tuple[Publication, Version]]:
    """All that the tasks of a run have published."""
    if run.tasks.publishes:
        for task in run.tasks.in_order():
            yield from published_by(run, task)


def still_published_by(run: Run, dataset: DatasetName) -> Iterator[str | None]:
    """Partitions of a dataset that a live run may still publish; None: any, its key is not rendered yet."""
    for name, publication in _publications_of(run):
        if publication.dataset == dataset and not run.tasks[name].state.is_final:
            is_known = publication.partition is not Partitioning.KEY or KEY_PATTERN.fullmatch(publication.key)
            yield partition_of(publication, run) if is_known else None


def datasets_of(run: Run) -> set[DatasetName]:
    """The datasets that the tasks of a run publish."""
    return {publication.dataset for _, publication in _publications_of(run)}


def _publications_of(run: Run) -> tuple[tuple[TaskName, Publication], ...]:
    publications = _publications.get(run.tasks.plan)
    if publications is None:
        tasks = run.tasks.in_order() if run.tasks.publishes else ()
        publications = tuple(
            (task.spec.name, publication) for task in tasks for publication in task.spec.publishes
        )
        _publications[run.tasks.plan] = publications
    return publications


_publications: WeakKeyDictionary[object, tuple[tuple[TaskName, Publication], ...]] = WeakKeyDictionary()
"""Publications of plans, which all versions of a run share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How far a pipeline has read with `take: new`."""

    sequence: int
    """The largest one that a run which has succeeded has read. It never falls."""
    run: RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """What ZooKeeper keeps of a dataset. Its size is bounded; history has all versions.

    While a version is not in history, or an older run may still publish its partition, it stays here. So a
    partition that is not here is published by newer runs only.
    """

    name: DatasetName
    pipeline: PipelineName
    """The pipeline that published last."""
    readers: tuple[str, ...] | None = None
    """As its release said at that time: see `nimbus.domain.data.datasets`."""
    owner: str | None = None
    """The pipeline's owner at that time."""
    partition: Partitioning
    published: int = 0
    """How many versions were ever published, also those that an older run published late."""
    versions: tuple[Version, ...] = ()
    """The newest version of each partition that is kept here, in the order of publication."""
    dropped: int = 0
    """The largest sequence of the partitions that history alone has; 0: all are here."""
    longest: timedelta = timedelta(0)
    """The longest interval that was ever published."""
    unstored: tuple[Version, ...] = ()
    """Versions by commands that history may not have yet. The next command stores them there first."""
    spans: tuple[DataInterval, ...] = ()
    """The times for which intervals are published, joined, in order."""
    removing: bool = False
    """True: a command removes it, so no release and no run may begin to use it. Its history may be gone."""
    spans_from: datetime | None = None
    """Earlier spans are not kept; None: all are."""
    taken: Mapping[PipelineName, Taken] = field(default_factory=dict)
    """How far the pipelines with `take: new` have read."""

    def taken_by(self, pipeline: PipelineName) -> int:
        """The sequence up to which a pipeline with `take: new` has read; 0: it has read nothing."""
        return self.taken[pipeline].sequence if pipeline in self.taken else 0

    def has_since(self, sequence: int) -> bool:
        """True when a partition has perhaps changed later; false: none has."""
        return self.dropped > sequence or any(version.sequence > sequence for version in self.versions)

    @property
    def newest(self) -> Version | None:
        """The version that was published last."""
        return self.versions[-1] if self.versions else None

    @property
    def carried_bytes(self) -> int:
        """The size of what its versions carry."""
        return sum(version.carried_bytes for version in self.versions)

    @property
    def last(self) -> Version | None:
        """The version of the last interval, which is always kept here; None: it is not by interval."""
        of_interval = [version for version in self.versions if interval_in(version.partition) is not None]
        return max(of_interval, key=end_of, default=None)

    def version(self, partition: str) -> Version | None:
        """The newest version of a partition; None: it is not kept here."""
        return next((version for version in self.versions if version.partition == partition), None)

    def with_version(self, version: Version, may_drop: Callable[[Version], bool]) -> Dataset:
        """The record after a version is published. An older one than that of the partition is only counted.

        `may_drop`: true for a version that is in history, and that no older run can follow.
        """
        before = self.version(version.partition)
        if before is not None and before.number > version.number:
            return replace(self, published=self.published + 1)
        versions = [version for version in self.versions if version is not before]
        last = self.last
        kept: list[Version] = []
        dropped = self.dropped
        for place, other in enumerate(versions):
            if len(versions) - place < MAX_VERSIONS or other is last or not may_drop(other):
                kept.append(other)
            else:
                dropped = max(1, dropped, other.sequence)
        interval = interval_in(version.partition)
        spans, spans_from = self._with_span(interval)
        return replace(
            self,
            published=self.published + 1,
            versions=(*kept, version),
            dropped=dropped,
            longest=self.longest if interval is None else max(self.longest, interval.end - interval.start),
            spans=spans,
            spans_from=spans_from,
        )

    def _with_span(self, interval: DataInterval | None) -> tuple[tuple[DataInterval, ...], datetime | None]:
        if interval is None or self.partition is not Partitioning.INTERVAL:
            return self.spans, self.spans_from
        spans = with_span(self.spans, interval)
        if len(spans) <= MAX_SPANS:
            return spans, self.spans_from
        return spans[1:], spans[0].end


def end_of(version: Version) -> tuple[datetime, int]:
    """The order of versions by interval: their ends, then their numbers."""
    interval = interval_in(version.partition)
    assert interval is not None  # noqa: S101 - of a dataset by interval
    return interval.end, version.number


@dataclass(frozen=True, slots=True)
class ReadGrant:
    """The limit of a dataset's readers."""

    dataset: DatasetName
    pipeline: PipelineName
    """The pipeline that says who may read it."""
    owner: str | None
    """Of that pipeline. None: it belongs to admins."""
    readers: tuple[str, ...]
    """Principals and teams that may read it, besides the owner and admins."""

    def check_pipeline(self, name: PipelineName, owner: str | None) -> None:
        """Raise AccessDeniedError if a pipeline may not read. `owner`: None, it belongs to admins."""
        if owner is not None and owner not in (self.owner, *self.readers):
            raise self._denied(f"pipeline {name}, which belongs to {owner},", owner)

    def check_principal(self, principal: Principal) -> None:
        """Raise AccessDeniedError if a principal may not read."""
        is_admin = principal.role is AccessRole.ADMIN
        if not is_admin and not any(principal.owns(name) for name in (self.owner, *self.readers)):
            raise self._denied(principal.name, principal.name)

    def _denied(self, who: str, name: str) -> AccessDeniedError:
        return AccessDeniedError(
            "not_reader",
            f"{who} may not read dataset {self.dataset}: pipeline {self.pipeline} limits its readers. "
            f"{self.owner or 'An admin'} can add {name} to datasets.{self.dataset}.readers there, and "
            "activate that release.",
        )


def read_grant(
    name: DatasetName, dataset: Dataset | None, pipeline: Callable[[PipelineName], PipelineRecord | None]
) -> ReadGrant | None:
    """The limit of a published dataset's readers; None: everybody may read it, or nothing is published.

    The active release of the pipeline that published last says it, as long as it has the dataset; then the
    release that was active at the last publication, and the owner of that time, because another pipeline may
    have the name of a removed one.
    """
    if dataset is None:
        return None
    record, readers, owner = pipeline(dataset.pipeline), dataset.readers, dataset.owner
    if record is not None and _has(record, name):
        readers, owner = record.profile.readers.get(name), record.owner
    return None if readers is None else ReadGrant(name, dataset.pipeline, owner, readers)


def first_grant(name: DatasetName, records: Iterable[PipelineRecord]) -> ReadGrant | None:
    """The limit of the readers of a dataset of which nothing is published yet."""
    for record in records:
        if _has(record, name) and (readers := record.profile.readers.get(name)) is not None:
            return ReadGrant(name, record.name, record.owner, readers)
    return None


def _has(record: PipelineRecord, name: DatasetName) -> bool:
    return record.state is not PipelineState.INACTIVE and name in record.profile.datasets


def newest_data(dataset: Dataset | None) -> datetime | None:
    """The end of the last interval; of a dataset without intervals, its last publication. None: nothing.

    A withdrawal is no publication: its content is as old as it was.
    """
    if dataset is None:
        return None
    if (last := dataset.last) is not None:
        return end_of(last)[0]
    return max((version.made_at for version in dataset.versions), default=None)


def late_from(record: PipelineRecord, name: DatasetName, newest: datetime | None) -> datetime | None:
    """When a dataset becomes late; None: never, its pipeline does not say `fresh`.

    `newest`: as `newest_data` says; None: the time counts from the last change of the pipeline.
    """
    fresh: timedelta | None = record.profile.fresh.get(name)
    return None if fresh is None else (newest or record.updated_at) + fresh


def first_late_from(
    records: Iterable[PipelineRecord], name: DatasetName, newest: datetime | None
) -> datetime | None:
    """As `late_from`, of the pipeline by which the dataset becomes late first."""
    moments = (late_from(record, name, newest) for record in records)
    return min((at for at in moments if at is not None), default=None)
