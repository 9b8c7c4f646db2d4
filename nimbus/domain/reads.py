"""What runs read of datasets: which versions, and when all of them are there. Pure.

A run *pins* versions once, together, when all of its inputs are there. So its tasks, their retries and every
leader read the same bytes, whatever is published meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from nimbus.domain.datasets import Dataset, datasets_of, end_of
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import DatasetName, TaskName
from nimbus.domain.intervals import NO_INTERVAL, DataInterval, gaps, shown
from nimbus.domain.local_dates import earlier
from nimbus.domain.publications import Partitioning, Read, Version, interval_in
from nimbus.domain.run import Run

MOST_PINNED = 1000
"""Limit of the versions of one read."""
MOST_GAPS = 3
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
class Wanted:
    """The partitions that a read needs.

    `interval`: those that overlap it. `key`: this one; empty: the whole dataset, or all keys. `latest`: the
    last interval alone.
    """

    interval: DataInterval | None = None
    key: str = ""
    latest: bool = False


def wanted(read: Read, run: Run, dataset: Dataset) -> Wanted:
    """The partitions that a read of a run needs.

    Raises:
        ReadError: the dataset is divided in another way than the read says.
    """
    if dataset.partition is not Partitioning.INTERVAL:
        said = "key" if dataset.partition is Partitioning.WHOLE and read.key else ""
        said = said or ("last" if read.last is not None else "take: latest" if read.latest else "")
        if said:
            raise ReadError(f"{read.name}: dataset {read.dataset} is not by interval or key, as {said} says")
        return Wanted(key=read.key)
    if read.key:
        raise ReadError(f"{read.name}: dataset {read.dataset} is by interval, so it has no key {read.key}")
    if read.latest:
        return Wanted(latest=True)
    own = run.data_interval
    if own is None:
        raise ReadError(f"{read.name}: dataset {read.dataset} is by interval: {NO_INTERVAL}")
    if read.last is None:
        return Wanted(own)
    return Wanted(DataInterval(start=earlier(own.end, read.last, ZoneInfo(run.timezone)), end=own.end))


def missing(read: Read, run: Run, dataset: Dataset | None) -> str:
    """What a read waits for; empty: nothing. Raises ReadError: see `wanted`."""
    if read.of is not None or (read.optional and dataset is None):
        return ""
    if dataset is None or not dataset.published:
        return f"dataset {read.dataset}: nothing is published"
    asked = wanted(read, run, dataset)
    if read.optional or asked.interval is None:
        return ""  # what was published once stays: see `Dataset`
    known_from = dataset.spans_from  # about earlier times, only a look-up tells
    lacks = [gap for gap in gaps(asked.interval, dataset.spans) if known_from is None or gap.end > known_from]
    if not lacks:
        return ""
    named = [shown(gap, run.timezone) for gap in lacks[:MOST_GAPS]]
    more = [f"and {len(lacks) - MOST_GAPS} more"] if len(lacks) > MOST_GAPS else []
    return f"dataset {read.dataset}: {', '.join([*named, *more])}"


def chosen(
    read: Read, asked: Wanted, versions: Iterable[Version], known_from: datetime | None = None
) -> tuple[Version, ...]:
    """The versions that a read pins, of the newest version of each partition.

    Of overlapping intervals the newest version counts, so no moment is read twice. Empty: something before
    `known_from` is missing, which may never have been published.

    Raises:
        ReadError: two versions overlap in part, or there are too many.
    """
    found = [one for one in versions if asked.key in ("", one.partition)]
    if asked.interval is not None:
        found = list(_without_overlap(read, asked.interval, found))
        lacks = gaps(asked.interval, (interval for one in found if (interval := interval_in(one.partition))))
        if lacks and not read.optional and known_from is not None and lacks[0].start < known_from:
            return ()
        if lacks and not read.optional:
            raise ReadError(
                f"{read.name}: {read.dataset} was published from {lacks[0].start.isoformat()} to "
                f"{lacks[0].end.isoformat()}, and is deleted: run its publisher again for that time"
            )
    if asked.latest and found:
        found = [max(found, key=end_of)]
    if len(found) > MOST_PINNED:
        raise ReadError(
            f"{read.name}: {len(found)} versions of {read.dataset} are too many, {MOST_PINNED} are the most"
        )
    return tuple(sorted(found, key=lambda one: one.partition))


def _without_overlap(read: Read, wanted: DataInterval, versions: Iterable[Version]) -> Iterator[Version]:
    taken: list[tuple[DataInterval, Version]] = []
    for version in sorted(versions, key=lambda one: -one.number):
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
        if len(taken) > MOST_PINNED:
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
    limit of 1 each run reads what the run before it has published.
    """
    found = _apart.get(run.tasks.plan)
    if found is None:
        own = datasets_of(run)
        after = {
            name
            for task in run.tasks.in_order()
            if task.spec.children is not None
            for name in run.tasks.downstream(task.spec.name)
        }
        early = {
            name for task in run.tasks.in_order() if task.spec.name not in after for name in task.spec.uses
        }
        found = frozenset(
            read.name
            for read in run.reads
            if read.dataset in own or read.of is not None or read.name not in early
        )
        _apart[run.tasks.plan] = found
    return found


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
