"""Finds pipelines that wait for runs of another one, or read what it publishes, and their dates. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from itertools import islice, takewhile
from types import MappingProxyType
from zoneinfo import ZoneInfo

from nimbus.definition.cron import fires_after
from nimbus.definition.intervals import interval_of, previous_fire
from nimbus.domain.backfill import MOST_DATES
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.intervals import DataInterval
from nimbus.domain.pipeline import PipelineSpec, Schedule
from nimbus.domain.upstream import wanted
from nimbus.domain.waits import PipelineWait

_NONE: Mapping[DatasetName, PipelineName] = MappingProxyType({})
_MICROSECOND = timedelta(microseconds=1)


def downstream_of(
    origin: PipelineName, waits: Mapping[PipelineName, Iterable[PipelineName]]
) -> tuple[PipelineName, ...]:
    """Pipelines that wait for `origin`, directly or not; each after all that it waits for.

    Args:
        origin: A pipeline.
        waits: For each pipeline, those that it waits for, or reads data of.

    Raises:
        RefusedError: some pipelines wait for each other.
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
    found = [
        dates
        for wait in waits
        if schedule is not None
        and wait.pipeline in spans
        and (dates := _awaiting(schedule, wait, spans[wait.pipeline], until)) is not None
    ]
    return (min(first for first, _ in found), max(last for _, last in found)) if found else None


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
    beyond = islice(takewhile(awaits, fires_after(schedule, within)), MOST_DATES)
    return first, next(iter(deque(beyond, maxlen=1)), within)
