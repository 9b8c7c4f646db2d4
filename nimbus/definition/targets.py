"""Targets of a pipeline that starts by data: the intervals between fire times of its schedule. Pure.

Also which targets of a consumer are due, and what each of them lacks: the leader starts what is found here
first and lacks nothing; `explain` shows the others. A consumer may have hundreds of extents, and a dataset
hundreds of gaps. A target that lacked something lacks it until a span is added within what it reads. So after
a publication, only the targets that read it are looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import NamedTuple
from zoneinfo import ZoneInfo

from nimbus.definition.cron import next_fire
from nimbus.definition.intervals import interval_of, previous_fire
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning, Read
from nimbus.domain.data.reads import ReadError, missing, missing_times
from nimbus.domain.ids import DatasetName
from nimbus.domain.pipelines.intervals import DataInterval, earlier, gaps, with_span, within
from nimbus.domain.pipelines.pipeline import Schedule
from nimbus.domain.starts.due import Due

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A run that may be created, on which depends what it would read. See `nimbus.domain.data.reads`."""

    data_interval: DataInterval | None = None
    timezone: str = "UTC"


def target_of(schedule: Schedule, fire: datetime) -> RunTarget:
    """The target of a fire time."""
    return RunTarget(interval_of(schedule, fire), schedule.timezone)


def grid_of(schedule: Schedule, fire: datetime) -> DataInterval | None:
    """The time from the fire time before. These times join without gaps, whatever the data intervals are."""
    start = previous_fire(schedule, fire)
    return None if start is None else DataInterval(start=start, end=fire)


def newest(schedule: Schedule, now: datetime) -> DataInterval | None:
    """The time of the last target that has ended."""
    fire = previous_fire(schedule, now + _MOMENT)
    return None if fire is None else grid_of(schedule, fire)


def overlapping(read: Read, schedule: Schedule, changed: DataInterval) -> DataInterval | None:
    """The time of the targets whose runs read a changed interval; None: there is no such target."""
    first, last = next_fire(schedule, changed.start), last_reader(read, schedule, changed.end)
    start = None if first is None else previous_fire(schedule, first)
    if start is None or first is None or last is None or last < first:
        return None
    return DataInterval(start=start, end=last)


def last_reader(read: Read, schedule: Schedule, end: datetime) -> datetime | None:
    """The last fire time whose run reads data from before `end`."""
    length = read.last or schedule.data_interval
    if length is None:
        return next_fire(schedule, end - _MOMENT)
    # Days have another length when clocks change, so the guess may be a few fire times off.
    fire = previous_fire(schedule, end + length)
    while fire is not None and _start(fire, length, schedule) >= end:
        fire = previous_fire(schedule, fire)
    while fire is not None and (after := next_fire(schedule, fire)) is not None:
        if _start(after, length, schedule) >= end:
            break
        fire = after
    return fire


def first_reader_after(read: Read, schedule: Schedule, end: datetime) -> datetime | None:
    """The first fire time whose run reads only data from `end` on."""
    last = last_reader(read, schedule, end)
    return None if last is None else next_fire(schedule, last)


def _start(fire: datetime, length: timedelta, schedule: Schedule) -> datetime:
    return earlier(fire, length, ZoneInfo(schedule.timezone))


@dataclass(frozen=True, slots=True)
class DueTarget:
    """A target that is due."""

    target: DataInterval | None = None
    """The time from the fire time before to its own; None: the consumer has no schedule."""
    lacks: str = ""
    """What is missing; empty: nothing."""
    read: Read | None = None
    """Which read lacks it."""
    is_live: bool = False
    """True: a run of the target is under way, which must end first."""
    left: Due | None = None
    """What stays due when its run starts; None: it must not start yet, see `Due.without`."""
    not_before: datetime | None = None
    """It is complete, and starts when its time is over: nothing that it must read tells when that is."""


def due_targets(
    due: Due,
    datasets: Mapping[DatasetName, Dataset],
    live: Container[datetime],
    now: datetime,
    only: tuple[DataInterval, ...] | None = None,
) -> Iterator[DueTarget]:
    """Targets that are due, oldest first. Of those that lack the same time, only the first is told.

    Args:
        due: A consumer for which something is due.
        datasets: The datasets that it reads, at least.
        live: Logical dates of the consumer's runs that are under way.
        now: The time.
        only: The parts of the extents that are looked at; None: all.
    """
    schedule = due.schedule
    if schedule is None:
        lacking = _lacking(due, RunTarget(), datasets)
        yield lacking or DueTarget(left=due.without(None))
        return
    for extent in due.extents if only is None else only:
        fire = next_fire(schedule, extent.start)
        while fire is not None and (grid := grid_of(schedule, fire)) and grid.start < extent.end:
            after = next_fire(schedule, fire)
            lacking = _lacking(due, target_of(schedule, fire), datasets)
            if fire in live:
                yield DueTarget(grid, is_live=True)
            elif lacking is None and fire > now and not _reads_its_interval(due, datasets):
                yield DueTarget(grid, not_before=fire)
                return
            elif lacking is None:
                left = due.without(grid)
                yield DueTarget(grid, left=left)
                if left is None and after is not None:  # nor may another one before the last of the extent
                    last = next_fire(schedule, extent.end - _MOMENT)
                    after = after if last is None else max(after, last)
            else:
                yield DueTarget(grid, lacking.lacks, lacking.read)
                complete_from = _complete_from(lacking.read, schedule, fire, datasets)
                if complete_from is None or after is None:
                    return
                after = max(after, complete_from)
            fire = after


def _reads_its_interval(due: Due, datasets: Mapping[DatasetName, Dataset]) -> bool:
    """True when a target is complete only with data for all of its time."""
    return any(
        datasets[read.dataset].partition is Partitioning.INTERVAL
        for read in due.reads
        if not (read.optional or read.latest or read.new) and read.dataset in datasets
    )


def _lacking(due: Due, target: RunTarget, datasets: Mapping[DatasetName, Dataset]) -> DueTarget | None:
    for read in due.reads:
        try:
            lacks = missing(read, target, datasets.get(read.dataset))
        except ReadError as exc:
            lacks = str(exc)
        if lacks:
            return DueTarget(lacks=lacks, read=read)
    return None


def _complete_from(
    read: Read | None, schedule: Schedule, fire: datetime, datasets: Mapping[DatasetName, Dataset]
) -> datetime | None:
    """The next fire time that may be complete, after one whose read lacks something; None: there is none."""
    dataset = None if read is None else datasets.get(read.dataset)
    if read is None or dataset is None or not dataset.published:
        return None
    try:
        lacks = missing_times(read, target_of(schedule, fire), dataset)
    except ReadError:
        return None
    # Later targets that read from before the end of the last gap lack a part of it, too.
    place = bisect_right(dataset.spans, lacks[-1].start, key=lambda span: span.start) if lacks else None
    if place is None or place == len(dataset.spans):
        return None
    return first_reader_after(read, schedule, dataset.spans[place].start)


Spans = tuple[DataInterval, ...]
FEW = 32
"""With more changes of a dataset than these, all targets are looked at."""


class _Known(NamedTuple):
    """All that decides whether a read of a dataset lacks something."""

    is_published: bool
    partition: Partitioning | None
    spans: Spans
    spans_from: datetime | None


@dataclass(frozen=True, slots=True)
class KnownLacks:
    """The facts of a look that found no target which may start, because each lacked something."""

    schedule: Schedule | None
    reads: tuple[Read, ...]
    extents: Spans
    known: Mapping[DatasetName, _Known]


def facts_of(due: Due, datasets: Mapping[DatasetName, Dataset]) -> KnownLacks:
    """The facts that decide which due targets lack something."""
    return KnownLacks(
        due.schedule, due.reads, due.extents, {read.dataset: _known(read, datasets) for read in due.reads}
    )


def _known(read: Read, datasets: Mapping[DatasetName, Dataset]) -> _Known:
    dataset = datasets.get(read.dataset)
    if dataset is None:
        return _Known(is_published=False, partition=None, spans=(), spans_from=None)
    return _Known(dataset.published > 0, dataset.partition, dataset.spans, dataset.spans_from)


def changed_since(before: KnownLacks, now: KnownLacks) -> Spans | None:
    """The parts of due extents whose targets may lack nothing now, but did; None: look at all."""
    schedule = now.schedule
    if schedule is None or (before.schedule, before.reads) != (schedule, now.reads):
        return None
    times: list[DataInterval | None] = [*_added(before.extents, now.extents)]
    for read in now.reads:
        was, known = before.known[read.dataset], now.known[read.dataset]
        if was[:2] != known[:2]:
            return None
        changed = [*_added(was.spans, known.spans)]
        if was.spans_from != known.spans_from:
            if was.spans_from is None or known.spans_from is None:
                return None
            changed.append(DataInterval(*sorted((was.spans_from, known.spans_from))))
        if len(changed) > FEW:
            return None
        times += [overlapping(read, schedule, interval) for interval in changed]
    joined: Spans = reduce(with_span, filter(None, times), ())
    return tuple(
        DataInterval(start=max(interval.start, extent.start), end=min(interval.end, extent.end))
        for interval in joined
        for extent in now.extents[within(now.extents, interval)]
        if interval.start < extent.end and extent.start < interval.end
    )


def _added(before: Spans, now: Spans) -> Iterator[DataInterval]:
    """The times of spans that others did not have. Both are in order, and mostly the same objects."""
    known = set(map(id, before))
    for span in now:
        if id(span) not in known:
            yield from gaps(span, before[within(before, span)])
