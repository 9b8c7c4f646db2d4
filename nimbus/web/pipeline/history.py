"""The last runs of a pipeline, reduced to what its grids show, and its data dates without a run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import islice
from operator import attrgetter
from threading import Lock
from typing import NamedTuple

from nimbus.api.runs.lookup import list_runs
from nimbus.api.services import ApiServices
from nimbus.definition.intervals import intervals_of, last_dates
from nimbus.domain.ids import PipelineName, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.filters import Filter
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.runs.run import ListedRun, Run, RunCause
from nimbus.domain.runs.task_run import TaskRun

MAX_ROWS = 200
STRIP = 20
"""Runs in the grid beside a run."""
_LARGEST, _FEWEST = 100_000, 5
"""Of pipelines with many tasks, fewer runs are read: so many of their tasks, but at least some runs."""
_OLDER = 200
"""Limit of live runs that are read in addition, so that their dates are no gaps."""
_KEPT = 16
_MISSING = "missing"
_YEARS = timedelta(days=3 * 366)
"""How far back dates are looked for."""


class Cell(NamedTuple):
    """One task of one run, or the run itself."""

    state: str
    took_s: float | None = None
    """Seconds that the last attempt computed, or that the run took; None: it has not ended."""
    queued_s: float | None = None
    """Seconds between its opening and its start."""


_NO_RUN = Cell(_MISSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One run, or a data date without one."""

    date: datetime
    run: RunId | None = None
    whole: Cell = _NO_RUN
    cause: RunCause | None = None
    created_at: datetime | None = None
    has_interval: bool = False
    tasks: dict[TaskName, Cell] = field(default_factory=dict)
    earlier: int = 0
    """Number of earlier runs for the same date."""

    @property
    def state(self) -> str:
        """State of the run; `missing`: there is none."""
        return self.whole.state


@dataclass(frozen=True, slots=True)
class Past:
    """The last runs of a pipeline."""

    columns: tuple[Column, ...]
    """In the order of their creation."""
    rows: tuple[TaskName, ...]
    left_out: int
    """Number of tasks that are no row."""
    complete: bool
    """True: history answered."""
    older: tuple[Column, ...] = ()
    """Live runs that were created before those of `columns`."""

    def failed(self, task: TaskName | None = None) -> tuple[int, int, Column | None]:
        """How many of the last runs failed, of how many that ended, and the first of the failed ones."""
        cells = [
            (column, column.whole if task is None else column.tasks.get(task)) for column in self.columns
        ]
        ended = [
            (column, cell.state) for column, cell in cells if cell and cell.state in ("succeeded", "failed")
        ]
        bad = [column for column, state in ended if state == "failed"]
        return len(bad), len(ended), bad[0] if bad else None


class PastRuns:
    """Reads the last runs, and keeps those of the last pipelines that were asked for. Any thread.

    Runs that have ended do not change: only live ones are read again.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[object, tuple[object, Past]] = OrderedDict()

    def of(
        self,
        services: ApiServices,
        pipeline: str,
        most: int = STRIP,
        defined: Sequence[str] = (),
        task: str | None = None,
        read: Collection[Run] = (),
    ) -> Past:
        """The last runs of a pipeline, which the principal may see: at most `most`.

        `defined`: tasks that are rows in any case; `task`: a task that is a row although there are too many;
        `read`: runs that were read just now.
        """
        listed = [run for run in services.reader.run_list().values() if run.pipeline == pipeline]
        place = (pipeline, most, tuple(defined), task)
        newest = frozenset((run.id, run.state) for run in listed)
        with self._lock:
            known, past = self._kept.get(place, (None, None))
        if past is None or known != newest or not past.complete:
            live = [run for run in listed if not run.state.is_final]
            past = _read(services, PipelineName(pipeline), most, defined, task, live)
            with self._lock:
                self._kept[place] = newest, past
                self._kept.move_to_end(place)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            return past
        open_runs = {run.id for run in listed if not run.state.is_final} - {run.id for run in read}
        runs = services.reader.runs(
            [column.run for column in (*past.older, *past.columns) if column.run in open_runs]
        )
        fresh = {run.id: _column(run, past.rows) for run in (*runs.values(), *read)}

        def now(columns: Iterable[Column]) -> tuple[Column, ...]:
            return tuple(fresh.get(column.run or RunId(""), column) for column in columns)

        return replace(past, columns=now(past.columns), older=now(past.older))


def _read(
    services: ApiServices,
    pipeline: PipelineName,
    most: int,
    defined: Iterable[str],
    task: str | None,
    live: Iterable[ListedRun],
) -> Past:
    record = services.reader.pipeline(pipeline)
    tasks = 1 if record is None else max(record.profile.tasks, 1)
    limit = max(_FEWEST, min(most, _LARGEST // tasks))
    page = list_runs(services, Filter(pipeline=pipeline), limit=limit)
    runs = [run for run, _ in reversed(page.rows)]
    # In order of dependence, then the tasks that only the definition or earlier runs have.
    ordered = [task.spec.name for run in runs[-1:] for task in run.tasks.by_depth()]
    names = list(
        dict.fromkeys((*ordered, *map(TaskName, defined), *(name for run in runs for name in run.tasks)))
    )
    rows = names[:MAX_ROWS]
    if task is not None and task in names[MAX_ROWS:]:
        rows[-1] = TaskName(task)
    known = {run.id for run in runs}
    most = max(_FEWEST, min(_OLDER, _LARGEST // tasks))
    newest = nlargest(most, (run for run in live if run.id not in known), key=attrgetter("created_at"))
    others = services.reader.runs(run.id for run in reversed(newest)).values()
    return Past(
        tuple(_column(run, rows) for run in runs),
        tuple(rows),
        len(names) - len(rows),
        page.complete,
        tuple(_column(run, rows) for run in others),
    )


def _column(run: Run, rows: Iterable[TaskName]) -> Column:
    began, ended = run.started_at or run.created_at, run.finished_at
    took_s = None if ended is None else (ended - began).total_seconds()
    return Column(
        date=run.logical_date,
        run=run.id,
        whole=Cell(run.state.value, took_s, (began - run.created_at).total_seconds()),
        cause=run.cause,
        created_at=run.created_at,
        has_interval=run.data_interval is not None,
        tasks={name: _cell(run.tasks[name]) for name in rows if name in run.tasks},
    )


def _cell(task: TaskRun) -> Cell:
    last = task.attempts[-1] if task.attempts else None
    if last is None or last.ended_at is None:
        return Cell(task.state.value)
    began = last.started_at or last.opened_at
    took, queued = last.ended_at - began, began - last.opened_at
    return Cell(task.state.value, took.total_seconds(), queued.total_seconds())


def by_date(
    columns: Iterable[Column],
    record: PipelineRecord | None,
    index: IntervalIndex | None,
    now: datetime,
    most: int,
) -> list[Column]:
    """Runs by their data dates, one for each date, and the dates that have none: the newest `most`.

    `columns`: in the order of their creation; `record`: without a schedule, only intervals of one length tell
    which dates are missing; `index`: how older runs ended.
    """
    by_dates: dict[datetime, Column] = {}
    for column in columns:
        before = by_dates.get(column.date)
        by_dates[column.date] = column if before is None else replace(column, earlier=before.earlier + 1)
    for date, known in expected(record, index, now, most).items():
        if known is not None and date not in by_dates:
            by_dates[date] = known
    return sorted(by_dates.values(), key=lambda column: column.date)[-most:]


def expected(
    record: PipelineRecord | None, index: IntervalIndex | None, now: datetime, most: int
) -> dict[datetime, Column | None]:
    """The last dates of a schedule, each with what is known of its run, oldest first.

    Dates before the first known run are left out. None: the index does not know.
    """
    if record is None or index is None or not index.pages:
        return {}
    ended = index.overlapping(DataInterval(start=now - _YEARS, end=now))
    schedule = record.profile.schedule
    if schedule is None:
        known = [row.interval for row in ended if row.run is not None]
        lengths = {interval.end - interval.start for interval in known}
        ends = [interval.end for interval in known]
        intervals: Sequence[DataInterval] = _regular(ends, lengths.pop(), most) if len(lengths) == 1 else ()
    else:
        until = min(record.position_of(schedule) or now, now) if record.is_scheduled else now
        first = min((row.interval.end for row in islice(ended, 1)), default=now)
        dated = intervals_of(schedule, last_dates(schedule, until, most))
        intervals = [interval for interval in dated if interval.end >= first]
    return {interval.end: _known(index, interval) for interval in intervals}


def _regular(ends: Sequence[datetime], every: timedelta, most: int) -> list[DataInterval]:
    """The last intervals of a pipeline without a schedule, which are equally long. `ends`: in order."""
    count = min((ends[-1] - ends[0]) // every + 1, most)
    dates = [ends[-1] - every * number for number in range(count)][::-1]
    return [DataInterval(start=date - every, end=date) for date in dates]


def _known(index: IntervalIndex, interval: DataInterval) -> Column | None:
    if not index.knows(interval):
        return None
    date = interval.end
    last = index.last(interval)  # also of a longer interval, such as a backfill in one run
    if last is None or not last.started:
        return Column(date=date)
    return Column(date=date, run=last.run, whole=Cell(last.outcome.value), created_at=last.at)


def missing(columns: Iterable[Column]) -> list[tuple[datetime, datetime, int]]:
    """Ranges of dates without a run: first, last and how many."""
    ranges: list[tuple[datetime, datetime, int]] = []
    is_open = False
    for column in columns:
        if column.state == _MISSING:
            first, _, count = ranges.pop() if is_open else (column.date, column.date, 0)
            ranges.append((first, column.date, count + 1))
        is_open = column.state == _MISSING
    return ranges
