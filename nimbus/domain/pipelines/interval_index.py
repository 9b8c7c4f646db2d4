"""The index of a pipeline's data intervals: for each, how its last run ended. Pure.

Runs move to history; this index stays, so that no reader needs to list history. It is bounded: when it is
full, it joins the oldest intervals that follow one another and ended alike to one row, which names no run. A
later run cuts its own interval out of such a row. Only what still has no room is dropped, oldest first, and
then the index says from which time on it is complete. Rows are kept in compressed pages, so that a change
writes one small page, and all indexes of a cluster take little room.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate, chain

from nimbus.domain.ids import RunId
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.runs.run import RunHeader, RunState

PAGE = 64
"""Limit of the rows of a page."""
FULL_PAGES = 64
"""With more pages than this, rows are joined; together they have about 80 KiB."""
MAX_PAGES = 96
"""Limit of the pages if their rows cannot be joined."""
_JOINED_PAGE = PAGE * 3 // 4
"""Rows of a page after rows were joined, so that the next ones find room."""
_GAIN = 8
"""Rows are joined until there are so many pages less, so that it is done seldom."""

_FIRST = datetime.min.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_Row = tuple[int, int, str, str, int]
"""End, start, outcome, run, when it ended. Times are microseconds since the year 1.

Without a run, it joins several rows. It overlaps no other row.
"""
_NEVER_STARTED = "never_started"
"""The outcome of a run that was stopped while it was queued."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the last run of a data interval ended."""

    interval: DataInterval
    outcome: RunState
    run: RunId | None
    """None: several runs, of intervals that follow one another. Nobody knows which any more."""
    at: datetime
    """The end of the run; of several, the last."""
    started: bool = True
    """False: the run was stopped while it was queued, so nothing has run for the interval."""


@dataclass(frozen=True, slots=True)
class IndexPage:
    """Rows in the order of their ends: all from this page's name up to the name of the next page."""

    name: str
    data: bytes
    """The compressed rows. Empty: the page could not be read."""

    def rows(self) -> list[_Row]:
        """The rows. Raises ValueError if they cannot be read."""
        if not self.data:
            return []
        try:
            return list(_unpacked(self.data))
        except (zlib.error, TypeError) as exc:
            raise ValueError(f"page {self.name} cannot be read: {exc}") from exc


@lru_cache(16)  # a reader asks for date after date, and most are on the page of the one before
def _unpacked(data: bytes) -> tuple[_Row, ...]:
    rows: list[_Row] = json.loads(zlib.decompress(data))
    return tuple((end, start, outcome, run, at) for end, start, outcome, run, at in rows)


@dataclass(frozen=True, slots=True)
class IntervalIndex:
    """The index of one pipeline. It is created when the first run with a data interval ends."""

    begins: datetime
    """The index is complete for intervals that end after this time. About an earlier interval that is not in
    it, nothing is known."""
    longest: timedelta = timedelta(0)
    """The longest interval that was ever added."""
    pages: tuple[IndexPage, ...] = ()

    def overlapping(self, interval: DataInterval) -> Iterator[Ended]:
        """Intervals that share some time with this one, in the order of their ends."""
        return map(_ended, self._overlapping(_us(interval.start), _us(interval.end)))

    def _overlapping(self, start: int, end: int) -> Iterator[_Row]:
        for row in self._rows_after(start):
            if row[1] < end:
                yield row
            if row[0] >= end + self.longest // _MICROSECOND:
                return  # a joined row may be longer, but none ends between this interval and its end

    def latest_until(self, moment: datetime) -> Ended | None:
        """The interval with the latest end that is not after a moment; of equal ends the latest start.

        Of intervals that are joined, all of those before the moment.
        """
        end = _us(moment)
        after = next(self._rows_after(end), None)
        if after is not None and after[1] < end and not after[3]:
            return _ended((end, *after[1:]))
        for page in reversed(self.pages):
            if rows := [row for row in page.rows() if row[0] <= end]:
                return _ended(rows[-1])
        return None

    def last(self, interval: DataInterval) -> Ended | None:
        """How the last run of this interval, or of a longer one that covers it, ended.

        A run that never started is returned only if there is no other.
        """
        covering = (
            row
            for row in self.overlapping(interval)
            if row.interval.start <= interval.start and row.interval.end >= interval.end
        )
        return max(covering, key=lambda row: (row.started, row.at), default=None)

    def knows(self, interval: DataInterval) -> bool:
        """True when the index is complete for `interval`: if it has no row, no run of it has ended."""
        return interval.end > self.begins

    def with_run(self, run: RunHeader) -> IntervalIndex:
        """The index after a run has ended. A run that never started replaces no other row."""
        interval, at = run.data_interval, run.finished_at
        if interval is None or at is None:
            return self
        never_started = run.started_at is None and run.state is RunState.STOPPED
        outcome = _NEVER_STARTED if never_started else run.state.value
        row: _Row = (_us(interval.end), _us(interval.start), outcome, run.id, _us(at))
        index = replace(self, longest=max(self.longest, interval.end - interval.start))
        for other in self._overlapping(row[1], row[0]):
            if run.started_at is None and (other[:2] == row[:2] or not other[3]):
                return self
            if not other[3]:
                parts = ((min(other[0], row[1]), other[1]), (other[0], max(other[1], row[0])))
                index = index._replaced(
                    other, [(end, start, *other[2:]) for end, start in parts if start < end]
                )
        return index._replaced(row, [row])._bounded()

    def _replaced(self, old: _Row, new: Iterable[_Row]) -> IntervalIndex:
        """The index with these rows in the place of the one of the same interval, if there is one."""
        place = max(bisect_right(self.pages, _name(old), key=lambda page: page.name) - 1, 0)
        rows = self.pages[place].rows() if self.pages else []
        index = bisect_left(rows, old[:2], key=lambda other: other[:2])
        if index < len(rows) and rows[index][:2] == old[:2]:
            del rows[index]
        for row in new:
            insort(rows, row)
        is_last = place >= len(self.pages) - 1
        pages = (*self.pages[:place], *_paged(rows, old if is_last else None), *self.pages[place + 1 :])
        return replace(self, pages=pages)

    def _bounded(self) -> IntervalIndex:
        """The index with its oldest rows joined, if there are too many, or without its oldest page."""
        pages = self.pages if len(self.pages) <= FULL_PAGES else _joined(self.pages)
        if len(pages) <= MAX_PAGES:
            return replace(self, pages=pages)
        begins = max(self.begins, _moment(int(pages[1].name.partition("-")[0])))
        return replace(self, begins=begins, pages=pages[1:])

    def _rows_after(self, start_us: int) -> Iterator[_Row]:
        """Rows that end after a moment."""
        first = bisect_right(self.pages, f"{start_us:018d}-~", key=lambda page: page.name) - 1
        for page in self.pages[max(first, 0) :]:
            yield from (row for row in page.rows() if row[0] > start_us)


def _joined(pages: tuple[IndexPage, ...]) -> tuple[IndexPage, ...]:
    """The pages, of which as many of the oldest as needed are joined; the same if that gains too little."""
    rows = [page.rows() for page in pages]
    starts = [row[1] for row in reversed([*chain(*rows)])]
    rest = reversed([*accumulate(starts, min, initial=starts[0])][:-1])  # the first start after each row
    done: list[_Row] = []
    for place, of_page in enumerate(rows, 1):
        for row, next_start in zip(of_page, rest, strict=False):
            if done and _follows(row, done) and next_start >= row[0]:
                end, _, outcome, _, at = row
                done[-1] = (end, done[-1][1], outcome, "", max(at, done[-1][4]))
            else:
                done.append(row)
        if -(-len(done) // _JOINED_PAGE) <= place - _GAIN:
            parts = range(0, len(done), _JOINED_PAGE)
            return (*(_page(done[at : at + _JOINED_PAGE]) for at in parts), *pages[place:])
    return pages


def _follows(row: _Row, before: list[_Row]) -> bool:
    """True when a row continues the last one before it, which overlaps none of those."""
    last = before[-1]
    is_alone = len(before) == 1 or before[-2][0] <= last[1]
    return is_alone and last[0] == row[1] and last[2] == row[2] != _NEVER_STARTED


def _paged(rows: list[_Row], added: _Row | None) -> tuple[IndexPage, ...]:
    """The rows on one page, or on two. `added`: the new row, if it may begin its own page."""
    if not rows:
        return ()
    if len(rows) <= PAGE:
        return (_page(rows),)
    cut = len(rows) - 1 if rows[-1] == added else len(rows) // 2  # dates mostly come in order
    return _page(rows[:cut]), _page(rows[cut:])


def _page(rows: list[_Row]) -> IndexPage:
    return IndexPage(_name(rows[0]), zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1))


def _name(row: _Row) -> str:
    return f"{row[0]:018d}-{row[1]:018d}"


def _ended(row: _Row) -> Ended:
    end, start, outcome, run, at = row
    interval = DataInterval(start=_moment(start), end=_moment(end))
    started = outcome != _NEVER_STARTED
    state = RunState(outcome) if started else RunState.STOPPED
    return Ended(interval, state, RunId(run) if run else None, _moment(at), started)


def _us(moment: datetime) -> int:
    return (moment - _FIRST) // _MICROSECOND


def _moment(us: int) -> datetime:
    return _FIRST + us * _MICROSECOND
