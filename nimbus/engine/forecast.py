"""Forecast of schedules: each fire, its run, and when the run starts and ends. Pure.

Fires come from the rules of `nimbus.definition.cron`, and room from the queue that the leader uses. A run
takes its expected duration. Waits for slots and pools count only as far as they are part of that expectation.
Runs that people start by hand are not predicted.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile

from nimbus.definition.cron import fires_after
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.pipeline import Concurrency, Priority, Schedule, WhenFull
from nimbus.domain.runs.run import Places, RunCause, RunState
from nimbus.engine.run_queue import RunQueue

_Fire = tuple[datetime, PipelineName, str]
"""A fire time, with its pipeline and schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The input of a forecast about one schedule of a pipeline."""

    name: PipelineName
    schedule: Schedule
    duration: timedelta
    """Expected time of each of its runs, from start to end."""
    concurrency: Concurrency | None = None
    priority: Priority = Priority.MEDIUM
    position: datetime | None = None
    """Fire times up to here are done already, although they are in the future."""


class Fate(StrEnum):
    """The result of a fire."""

    RUNS = "runs"
    SKIPPED = "skipped"
    """The fire starts no run, because of `when_full: skip`."""
    REPLACED = "replaced"
    """Its run is stopped, before or after its start, because of `when_full: replace`."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """One fire, and its run."""

    pipeline: PipelineName
    fire: datetime
    fate: Fate
    started_at: datetime | None = None
    ended_at: datetime | None = None
    schedule: str = ""

    @property
    def waited(self) -> timedelta:
        """Time that the run waits for room before its start."""
        return timedelta(0) if self.started_at is None else self.started_at - self.fire


@dataclass(slots=True, eq=False)
class _Run:
    """A run, with the fields that `RunQueue` needs."""

    id: RunId
    pipeline: PipelineName
    priority: Priority
    created_at: datetime
    schedule: str
    state: RunState = RunState.RUNNING
    started_at: datetime | None = None
    cause: RunCause = RunCause.SCHEDULE
    parent: None = None
    backfill: None = None

    @property
    def holds(self) -> Places:
        """A prediction knows nothing of waits."""
        return Places.NONE if self.state is RunState.QUEUED else Places.ALL


def forecast(
    pipelines: Sequence[Expected], after: datetime, until: datetime, *, max_running: int | None = None
) -> Iterator[Forecast]:
    """Every fire after `after` and up to `until`, in the order in which their results are known.

    Args:
        pipelines: Schedules that fire. Those of one pipeline differ in nothing else.
        after: Aware. No run is under way then.
        until: Aware. Runs that fired before may end later.
        max_running: `runs.max_running` of the cluster; None: any number.
    """
    return _Foreseeing({record.name: record for record in pipelines}, max_running).all(
        pipelines, after, until
    )


class _Foreseeing:
    def __init__(self, pipelines: dict[PipelineName, Expected], max_running: int | None) -> None:
        self._pipelines = pipelines
        self._limits = {
            name: record.concurrency.limit
            for name, record in pipelines.items()
            if record.concurrency is not None
        }
        self._queue = RunQueue(self._limits.get, max_running)
        self._ends: list[tuple[datetime, int, _Run]] = []
        self._open: defaultdict[PipelineName, deque[_Run]] = defaultdict(deque)
        self._runs: dict[RunId, _Run] = {}
        self._count = 0

    def all(self, schedules: Collection[Expected], after: datetime, until: datetime) -> Iterator[Forecast]:
        """Fires and ends, in the order of their times; of the same time, ends first."""
        for fire, name, schedule in _fires(schedules, after, until):
            yield from self._ended(fire)
            yield from self._fired(self._pipelines[name], schedule, fire)
        yield from self._ended(None)

    def _ended(self, now: datetime | None) -> Iterator[Forecast]:
        """Close the runs that end up to `now`; None: all that are left."""
        while self._ends and (now is None or self._ends[0][0] <= now):
            at, _, run = heapq.heappop(self._ends)
            if run.state is not RunState.STOPPED:  # else it was replaced before
                self._close(run)
                yield Forecast(run.pipeline, run.created_at, Fate.RUNS, run.started_at, at, run.schedule)
                self._start_queued(at)

    def _fired(self, expected: Expected, schedule: str, fire: datetime) -> Iterator[Forecast]:
        open_runs, concurrency = self._open[expected.name], expected.concurrency
        is_full = concurrency is not None and len(open_runs) >= concurrency.limit
        if is_full and concurrency is not None and concurrency.when_full is WhenFull.SKIP:
            yield Forecast(expected.name, fire, Fate.SKIPPED, schedule=schedule)
            return
        self._count += 1
        run = _Run(RunId(f"{self._count:012d}"), expected.name, expected.priority, fire, schedule)
        if self._queue.has_room(expected.name):
            self._start(run, fire)
        else:
            run.state = RunState.QUEUED
            self._runs[run.id] = run
            self._queue.put(run)
            if is_full and concurrency is not None and concurrency.when_full is WhenFull.REPLACE:
                yield self._replaced(open_runs, fire)
        open_runs.append(run)
        self._start_queued(fire)

    def _replaced(self, open_runs: deque[_Run], now: datetime) -> Forecast:
        """Stop the oldest queued run; without any, the oldest running one."""
        run = next((run for run in open_runs if run.state is RunState.QUEUED), open_runs[0])
        self._close(run)
        run.state = RunState.STOPPED
        return Forecast(run.pipeline, run.created_at, Fate.REPLACED, run.started_at, now, run.schedule)

    def _close(self, run: _Run) -> None:
        self._open[run.pipeline].remove(run)
        self._queue.discard(run.id)
        self._runs.pop(run.id, None)

    def _start_queued(self, now: datetime) -> None:
        while self._runs and (first := self._queue.first()) is not None:
            self._start(self._runs.pop(first), now)

    def _start(self, run: _Run, now: datetime) -> None:
        run.state, run.started_at = RunState.RUNNING, now
        self._queue.put(run)
        heapq.heappush(self._ends, (now + self._pipelines[run.pipeline].duration, int(run.id), run))


def _fires(pipelines: Collection[Expected], after: datetime, until: datetime) -> Iterator[_Fire]:
    """All fires in order; at the same time, by name. Equal schedules are computed once."""
    alike: defaultdict[tuple[object, ...], list[Expected]] = defaultdict(list)
    for record in pipelines:
        alike[record.schedule.times, record.schedule.days].append(record)
    fires = heapq.merge(*(_fires_of(group, after, until) for group in alike.values()))
    done = {
        (record.name, record.schedule.name): record.position
        for record in pipelines
        if record.position is not None
    }
    yield from (fire for fire in fires if fire[1:] not in done or fire[0] > done[fire[1:]])


def _fires_of(alike: Sequence[Expected], after: datetime, until: datetime) -> Iterator[_Fire]:
    names = sorted((record.name, record.schedule.name) for record in alike)
    for fire in takewhile(lambda fire: fire <= until, fires_after(alike[0].schedule, after)):
        for name in names:
            yield fire, *name
