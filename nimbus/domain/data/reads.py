"""What runs read of datasets: which versions, and when all of them are there. Pure.

A run *pins* versions once, together, when all of its inputs are there. So its tasks, their retries and every
leader read the same bytes, whatever is published meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Protocol
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from nimbus.domain.data.datasets import Dataset, end_of
from nimbus.domain.data.publications import Partitioning, Read, Version, interval_in
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import DatasetName, TaskName
from nimbus.domain.pipelines.intervals import NO_INTERVAL, DataInterval, earlier, gaps, shown, within
from nimbus.domain.runs.run import Places, Run, RunHeader
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.runs.tasks import Tasks

MAX_PINNED = 1000
"""Limit of the versions of one read."""
MAX_CARRIED = 600_000
"""Limit of what the versions of one read carry, in bytes: a transaction, which may have 1 MB, pins all."""
MAX_GAPS = 3
"""How many gaps a text names. It only counts the others."""


class ReadError(NimbusError):
    """A read can never be met as it is."""

    code = "bad_read"


@dataclass(frozen=True, slots=True)
class Lacking:
    """A look-up found no version of a read that is not optional: of a key that nobody has published yet."""

    published: Mapping[DatasetName, int]
    """How often each dataset had been published. A further publication lets the look-up be repeated."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions that a read needs.

    `interval`: those that overlap it. `key`: this one; empty: the whole dataset, or all keys. `latest`: the
    last interval alone. `since`: those that have changed after this sequence.
    """

    interval: DataInterval | None = None
    key: str = ""
    latest: bool = False
    since: int | None = None


class ReadingRun(Protocol):
    """What decides which partitions a read needs: a run, or one that may be created."""

    @property
    def data_interval(self) -> DataInterval | None: ...  # noqa: D102
    @property
    def timezone(self) -> str: ...  # noqa: D102


def wanted(read: Read, run: ReadingRun, dataset: Dataset) -> Partitions:
    """The partitions that a read of a run needs.

    Raises ReadError: the dataset is divided in another way than the read says.
    """
    if dataset.partition is not Partitioning.INTERVAL:
        said = "key" if dataset.partition is Partitioning.WHOLE and read.key else ""
        said = said or ("last" if read.last is not None else "take: latest" if read.latest else "")
        if said:
            raise ReadError(f"{read.name}: dataset {read.dataset} is not by interval or key, as {said} says")
        return Partitions(key=read.key)
    if read.key:
        raise ReadError(f"{read.name}: dataset {read.dataset} is by interval, so it has no key {read.key}")
    if read.latest:
        return Partitions(latest=True)
    own = run.data_interval
    if own is None:
        raise ReadError(f"{read.name}: dataset {read.dataset} is by interval: {NO_INTERVAL}")
    if read.last is None:
        return Partitions(own)
    return Partitions(DataInterval(start=earlier(own.end, read.last, ZoneInfo(run.timezone)), end=own.end))


def missing(read: Read, run: ReadingRun, dataset: Dataset | None) -> str:
    """What a read waits for; empty: nothing. Raises ReadError: see `wanted`."""
    if read.of is not None or read.new or (read.optional and dataset is None):
        return ""
    if dataset is None or not dataset.published:
        return f"dataset {read.dataset}: nothing is published"
    lacks = missing_times(read, run, dataset)
    if not lacks:
        return ""
    named = [shown(gap, run.timezone) for gap in lacks[:MAX_GAPS]]
    more = [f"and {len(lacks) - MAX_GAPS} more"] if len(lacks) > MAX_GAPS else []
    return f"dataset {read.dataset}: {', '.join([*named, *more])}"


def missing_times(read: Read, run: ReadingRun, dataset: Dataset) -> tuple[DataInterval, ...]:
    """The times that a read of a published dataset waits for. Raises ReadError: see `wanted`."""
    asked = wanted(read, run, dataset)
    if read.optional or asked.interval is None:
        return ()  # what was published once stays: see `Dataset`
    known_from = dataset.spans_from  # about earlier times, only a look-up tells
    lacks = gaps(asked.interval, dataset.spans[within(dataset.spans, asked.interval)])
    return tuple(gap for gap in lacks if known_from is None or gap.end > known_from)


def chosen(
    read: Read, asked: Partitions, versions: Iterable[Version], known_from: datetime | None = None
) -> tuple[Version, ...]:
    """The versions that a read pins, of the newest version of each partition.

    Of overlapping intervals the newest version counts, so no moment is read twice. Empty: something before
    `known_from` is missing, which may never have been published.

    Raises ReadError: two versions overlap in part, or there are too many.
    """
    chosen = [version for version in versions if asked.key in ("", version.partition)]
    if asked.interval is not None:
        chosen = list(_without_overlap(read, asked.interval, chosen))
        lacks = gaps(
            asked.interval, (interval for version in chosen if (interval := interval_in(version.partition)))
        )
        if lacks and not read.optional and known_from is not None and lacks[0].start < known_from:
            return ()
        if lacks and not read.optional:
            raise ReadError(
                f"{read.name}: {read.dataset} was published from {lacks[0].start.isoformat()} to "
                f"{lacks[0].end.isoformat()}, and is deleted: run its publisher again for that time"
            )
    if asked.latest and chosen:
        chosen = [max(chosen, key=end_of)]
    if len(chosen) > MAX_PINNED:
        raise ReadError(
            f"{read.name}: {len(chosen)} versions of {read.dataset} are too many, {MAX_PINNED} are the most"
        )
    if (size := sum(version.carried_bytes for version in chosen)) > MAX_CARRIED:
        raise ReadError(
            f"{read.name}: the URIs and values of {len(chosen)} versions of {read.dataset} have {size} "
            f"bytes, {MAX_CARRIED} are the most: read fewer, or publish them with shorter ones"
        )
    return tuple(sorted(chosen, key=lambda version: version.partition))


def portion(versions: Iterable[Version]) -> tuple[Version, ...]:
    """What a read with `take: new` pins: as much as a read may have. The next run reads the others.

    `versions`: in the order of their sequences. So what is left has larger ones than what is pinned.
    """
    taken: list[Version] = []
    size = 0
    for version in islice(versions, MAX_PINNED):
        size += version.carried_bytes
        if size > MAX_CARRIED:
            break
        taken.append(version)
    return tuple(sorted(taken, key=lambda version: version.partition))


def reads_new(run: RunHeader) -> bool:
    """True when a run has begun with what is new: only its end tells whether that is new for others."""
    return run.holds is not Places.NONE and any(read.new and read.name in run.pins for read in run.reads)


def taken_by(run: Run) -> Iterator[tuple[DatasetName, int]]:
    """How far a run with `take: new` has read, if it succeeds: what only skipped tasks use does not count."""
    for read in run.reads:
        pins = run.pins.get(read.name) if read.new else None
        if pins and any(
            task.state is TaskState.SUCCEEDED and read.name in task.spec.uses for task in run.tasks.in_order()
        ):
            yield read.dataset, max(version.sequence for version in pins)


def _without_overlap(read: Read, wanted: DataInterval, versions: Iterable[Version]) -> Iterator[Version]:
    taken: list[tuple[DataInterval, Version]] = []
    for version in sorted(versions, key=lambda version: -version.number):
        interval = interval_in(version.partition)
        if interval is None or interval.start >= wanted.end or interval.end <= wanted.start:
            continue
        newer = [other for other, _ in taken if other.start < interval.end and interval.start < other.end]
        if not gaps(interval, newer):
            continue  # newer versions have replaced all of it
        if newer:
            raise ReadError(
                f"{read.name}: versions of {read.dataset} overlap in part, so that data would be read twice: "
                f"{version.partition} of run {version.run} and newer ones. Publish all of it by one run"
            )
        taken.append((interval, version))
        yield version
        if len(taken) > MAX_PINNED:
            return


def to_pin(run: Run, task: TaskName) -> tuple[Read, ...]:
    """The reads that must be pinned next, before a ready task may begin; empty: it may.

    Those that `pinned_apart` does not name come first, all of the run together.
    """
    uses = run.tasks[task].spec.uses
    unpinned = tuple(read for read in run.reads if read.name in uses and read.name not in run.pins)
    apart = pinned_apart(run) if unpinned else frozenset()
    if all(read.name in apart for read in unpinned):
        return unpinned
    return tuple(read for read in run.reads if read.name not in apart and read.name not in run.pins)


def awaits_inputs(run: Run, task: TaskName) -> bool:
    """True when a ready task waits for data of others: it needs no place until they are pinned."""
    reads = to_pin(run, task)
    return bool(reads) and reads[0].name not in pinned_apart(run)


def pinned_apart(run: Run) -> frozenset[str]:
    """Reads that are pinned only when a task that uses them is ready.

    The run itself or its child runs may publish them: they are of datasets that its tasks publish, have `of`,
    or are used only after child runs. And they are pinned only while the run has its place, so that with a
    limit of 1 each run reads what the run before it has published, and with `take: new`, what it has left.
    """
    apart = _apart.get(run.tasks.plan)
    if apart is None:
        apart = _apart[run.tasks.plan] = read_apart(run.tasks, run.reads)
    return apart


def read_apart(tasks: Tasks, reads: Iterable[Read]) -> frozenset[str]:
    """As `pinned_apart`, of the tasks and reads of a pipeline."""
    own = {publication.dataset for task in tasks.in_order() for publication in task.spec.publishes}
    after = {
        name
        for task in tasks.in_order()
        if task.spec.children is not None
        for name in tasks.downstream(task.spec.name)
    }
    early = {name for task in tasks.in_order() if task.spec.name not in after for name in task.spec.uses}
    return frozenset(
        read.name
        for read in reads
        if read.dataset in own or read.of is not None or read.new or read.name not in early
    )


_apart: WeakKeyDictionary[object, frozenset[str]] = WeakKeyDictionary()
"""By plan, which all versions of a run share."""


def input_names(pins: Mapping[str, tuple[Version, ...]], uses: Iterable[str]) -> dict[str, str]:
    """The outputs of pinned versions, by a name that no task can have: `read:place`."""
    return {
        f"{name}:{place}": version.output
        for name in uses
        for place, version in enumerate(pins.get(name, ()))
        if version.output is not None
    }
