"""The dates of a backfill, with their data intervals, and those of the pipelines that wait for it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from itertools import islice, takewhile
from types import MappingProxyType
from zoneinfo import ZoneInfo

from nimbus.definition.cron import fires_after
from nimbus.definition.intervals import dates_between, interval_of, previous_fire
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.backfill import MAX_DATES, Backfill, BackfillRequest, Order
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec, Schedule
from nimbus.domain.starts.upstream import wanted
from nimbus.domain.starts.waits import PipelineWait

_MICROSECOND = timedelta(microseconds=1)


def dates_left(backfill: Backfill) -> Iterator[datetime]:
    """Dates that are not done yet, next one first; in UTC."""
    request = backfill.request
    newest_first = request.order is Order.NEWEST and not request.as_one_run
    find = _backward if newest_first else _forward
    return find(backfill.schedule, request, backfill.position)


def interval_of_date(backfill: Backfill, date: datetime) -> DataInterval | None:
    """The data interval that ends at a date."""
    if backfill.schedule is not None:
        return interval_of(backfill.schedule, date)
    every = backfill.request.every or timedelta(days=1)
    return DataInterval(start=date - every, end=date)


def whole_range(backfill: Backfill) -> DataInterval | None:
    """From the start of the first date's interval to the last date; None: there is no date."""
    request, schedule = backfill.request, backfill.schedule
    first = next(_forward(schedule, request, None), None)
    last = next(_backward(schedule, request, None), None)
    if first is None or last is None:
        return None
    interval = interval_of_date(backfill, first)
    return None if interval is None else DataInterval(start=interval.start, end=last)


def count_dates(schedule: Schedule | None, request: BackfillRequest, most: int) -> int:
    """Number of dates in a range, at most `most`."""
    if schedule is not None:
        return len(dates_between(schedule, request.first, request.last, most))
    return min((request.last - request.first) // (request.every or timedelta(days=1)) + 1, most)


def _forward(
    schedule: Schedule | None, request: BackfillRequest, position: datetime | None
) -> Iterator[datetime]:
    if schedule is None:
        every = request.every or timedelta(days=1)
        date = request.first if position is None else position + every
        while date <= request.last:
            yield date.astimezone(UTC)
            date += every
        return
    after = request.first - _MICROSECOND if position is None else position
    yield from takewhile(lambda fire: fire <= request.last, fires_after(schedule, after))


def _backward(
    schedule: Schedule | None, request: BackfillRequest, position: datetime | None
) -> Iterator[datetime]:
    if schedule is None:
        every = request.every or timedelta(days=1)
        newest = request.first + (request.last - request.first) // every * every
        date = newest if position is None else position - every
        while date >= request.first:
            yield date.astimezone(UTC)
            date -= every
        return
    before = request.last + _MICROSECOND if position is None else position
    while (fire := previous_fire(schedule, before)) is not None and fire >= request.first:
        yield fire
        before = fire


_NONE: Mapping[DatasetName, PipelineName] = MappingProxyType({})


def downstream_of(
    origin: PipelineName, waits: Mapping[PipelineName, Iterable[PipelineName]]
) -> tuple[PipelineName, ...]:
    """Pipelines that wait for `origin`, directly or not; each after all that it waits for.

    `waits`: for each pipeline, those that it waits for, or reads data of. Raises RefusedError: some pipelines
    wait for each other.
    """
    reached = new = {origin}
    while new:
        new = {name for name, awaited in waits.items() if not new.isdisjoint(awaited)} - reached
        reached = reached | new
    graph = {name: reached.intersection(waits.get(name, ())) for name in sorted(reached)}
    try:
        return tuple(TopologicalSorter(graph).static_order())[1:]
    except CycleError as exc:
        named = ", ".join(sorted(set(exc.args[1])))
        raise RefusedError("wait_cycle", f"these pipelines wait for each other: {named}.") from exc


def awaiting_dates(
    spec: PipelineSpec,
    spans: Mapping[PipelineName, DataInterval],
    until: datetime,
    publishers: Mapping[DatasetName, PipelineName] = _NONE,
) -> tuple[datetime, datetime] | None:
    """The first and the last date of a pipeline whose run waits for a part of `spans`.

    Args:
        spec: Its definition.
        spans: For each pipeline that it may wait for, the time for which runs are created.
        until: Limit of dates. No span ends later.
        publishers: The pipelines that publish datasets by interval. A read waits as for their runs.

    Returns:
        Fire times, both included; None: no run waits for any span, or there is no schedule.
    """
    schedule = spec.schedule
    waits = [wait for task in spec.tasks for wait in task.waits_for if isinstance(wait, PipelineWait)]
    waits += [
        PipelineWait(pipeline=publishers[read.dataset], last=read.last)
        for read in spec.reads
        if read.dataset in publishers and not (read.latest or read.new or read.of)
    ]
    awaited = [
        dates
        for wait in waits
        if schedule is not None
        and wait.pipeline in spans
        and (dates := _awaiting(schedule, wait, spans[wait.pipeline], until)) is not None
    ]
    return (min(first for first, _ in awaited), max(last for _, last in awaited)) if awaited else None


def _awaiting(
    schedule: Schedule, wait: PipelineWait, span: DataInterval, until: datetime
) -> tuple[datetime, datetime] | None:
    zone = ZoneInfo(schedule.timezone)

    def awaits(date: datetime) -> bool:
        """True when the run of a date, which is after the start of the span, waits for a part of it."""
        own = interval_of(schedule, date) if date <= until else None
        return own is not None and wanted(wait, own, zone).start < span.end

    first = next(takewhile(awaits, fires_after(schedule, span.start)), None)
    if first is None:
        return None
    within = max(first, previous_fire(schedule, span.end + _MICROSECOND) or first)  # all up to here wait
    beyond = islice(takewhile(awaits, fires_after(schedule, within)), MAX_DATES)
    return first, next(iter(deque(beyond, maxlen=1)), within)
