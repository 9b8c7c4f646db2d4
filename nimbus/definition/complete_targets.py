"""Which targets of a consumer are due, and what each of them lacks. Pure.

The leader starts what is found here first and lacks nothing; `explain` shows the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from nimbus.definition.cron import next_fire
from nimbus.definition.targets import Target, first_reader_after, grid_of, target_of
from nimbus.domain.datasets import Dataset
from nimbus.domain.due import Due
from nimbus.domain.ids import DatasetName
from nimbus.domain.intervals import DataInterval
from nimbus.domain.pipeline import Schedule
from nimbus.domain.publications import Partitioning, Read
from nimbus.domain.reads import ReadError, missing, missing_times

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Found:
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
) -> Iterator[Found]:
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
        lacking = _lacking(due, Target(), datasets)
        yield lacking or Found(left=due.without(None))
        return
    for extent in due.extents if only is None else only:
        fire = next_fire(schedule, extent.start)
        while fire is not None and (grid := grid_of(schedule, fire)) and grid.start < extent.end:
            after = next_fire(schedule, fire)
            lacking = _lacking(due, target_of(schedule, fire), datasets)
            if fire in live:
                yield Found(grid, is_live=True)
            elif lacking is None and fire > now and not _reads_its_interval(due, datasets):
                yield Found(grid, not_before=fire)
                return
            elif lacking is None:
                left = due.without(grid)
                yield Found(grid, left=left)
                if left is None and after is not None:  # nor may another one before the last of the extent
                    last = next_fire(schedule, extent.end - _MOMENT)
                    after = after if last is None else max(after, last)
            else:
                yield Found(grid, lacking.lacks, lacking.read)
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


def _lacking(due: Due, target: Target, datasets: Mapping[DatasetName, Dataset]) -> Found | None:
    for read in due.reads:
        try:
            lacks = missing(read, target, datasets.get(read.dataset))
        except ReadError as exc:
            lacks = str(exc)
        if lacks:
            return Found(lacks=lacks, read=read)
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
