"""The index of a pipeline's data intervals: for each, how its last run ended. Pure.

Runs move to history; this index stays, so that no reader needs to list history. It is bounded: it drops the
oldest page of intervals when it is full, and records from which time on it is complete. Rows are kept in
compressed pages, so that a change writes one small page, and all indexes of a cluster take little room.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nimbus.domain.ids import RunId
from nimbus.domain.intervals import DataInterval
from nimbus.domain.run import RunHeader, RunState

PAGE = 64
"""Limit of the rows of a page."""
MOST_PAGES = 64
"""Limit of a pipeline's pages; together about 80 KiB."""

_FIRST = datetime.min.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_Row = tuple[int, int, str, str, int]
"""End, start, outcome, run, when it ended. Times are microseconds since the year 1."""
_NEVER_STARTED = "never_started"
"""The outcome of a run that was stopped while it was queued."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the last run of a data interval ended."""

    interval: DataInterval
    outcome: RunState
    run: RunId
    at: datetime
    started: bool = True
    """False: the run was stopped while it was queued, so nothing has run for the interval."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in the order of their ends: all from this page's name up to the name of the next page."""

    name: str
    data: bytes
    """The compressed rows. Empty: the page could not be read."""

    def rows(self) -> list[_Row]:
        """The rows. Raises ValueError if they cannot be read."""
        if not self.data:
            return []
        try:
            return [(end, start, outcome, run, at) for end, start, outcome, run, at in self._unpacked()]
        except (zlib.error, TypeError) as exc:
            raise ValueError(f"page {self.name} cannot be read: {exc}") from exc

    def _unpacked(self) -> list[_Row]:
        found: list[_Row] = json.loads(zlib.decompress(self.data))
        return found


@dataclass(frozen=True, slots=True)
class IntervalIndex:
    """The index of one pipeline. It is created when the first run with a data interval ends."""

    begins: datetime
    """The index is complete for intervals that end after this time. About an earlier interval that is not in
    it, nothing is known."""
    longest: timedelta = timedelta(0)
    """The longest interval that was ever added."""
    pages: tuple[Page, ...] = ()

    def overlapping(self, interval: DataInterval) -> Iterator[Ended]:
        """Intervals that share some time with this one, in the order of their ends."""
        start, end = _us(interval.start), _us(interval.end)
        for row in self._rows_after(start):
            if row[0] >= end + self.longest // _MICROSECOND:
                return
            if row[1] < end:
                yield _ended(row)

    def latest_until(self, moment: datetime) -> Ended | None:
        """The interval with the latest end that is not after a moment; of equal ends the latest start."""
        end = _us(moment)
        for page in reversed(self.pages):
            if found := [row for row in page.rows() if row[0] <= end]:
                return _ended(found[-1])
        return None

    def last(self, interval: DataInterval) -> Ended | None:
        """How the last run of this interval, or of a longer one that covers it, ended.

        A run that never started is returned only if there is no other.
        """
        covering = (
            one
            for one in self.overlapping(interval)
            if one.interval.start <= interval.start and one.interval.end >= interval.end
        )
        return max(covering, key=lambda one: (one.started, one.at), default=None)

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
        place = max(bisect_right(self.pages, _name(row), key=lambda page: page.name) - 1, 0)
        rows = self.pages[place].rows() if self.pages else []
        found = bisect_left(rows, row[:2], key=lambda other: other[:2])
        if found < len(rows) and rows[found][:2] == row[:2]:
            if run.started_at is None:
                return self
            del rows[found]
        insort(rows, row)
        is_last = place >= len(self.pages) - 1
        pages = (*self.pages[:place], *_paged(rows, row if is_last else None), *self.pages[place + 1 :])
        return self._bounded(pages, max(self.longest, interval.end - interval.start))

    def _bounded(self, pages: tuple[Page, ...], longest: timedelta) -> IntervalIndex:
        """The index with the oldest page dropped, if there is one too many."""
        if len(pages) <= MOST_PAGES:
            return IntervalIndex(self.begins, longest, pages)
        begins = max(self.begins, _moment(int(pages[1].name.partition("-")[0])))
        return IntervalIndex(begins, longest, pages[1:])

    def _rows_after(self, start_us: int) -> Iterator[_Row]:
        """Rows that end after a moment."""
        first = bisect_right(self.pages, f"{start_us:018d}-~", key=lambda page: page.name) - 1
        for page in self.pages[max(first, 0) :]:
            yield from (row for row in page.rows() if row[0] > start_us)


def _paged(rows: list[_Row], added: _Row | None) -> tuple[Page, ...]:
    """The rows on one page, or on two. `added`: the new row, if it may begin its own page."""
    if len(rows) <= PAGE:
        return (_page(rows),)
    cut = len(rows) - 1 if rows[-1] == added else len(rows) // 2  # dates mostly come in order
    return _page(rows[:cut]), _page(rows[cut:])


def _page(rows: list[_Row]) -> Page:
    return Page(_name(rows[0]), zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1))


def _name(row: _Row) -> str:
    return f"{row[0]:018d}-{row[1]:018d}"


def _ended(row: _Row) -> Ended:
    end, start, outcome, run, at = row
    interval = DataInterval(start=_moment(start), end=_moment(end))
    started = outcome != _NEVER_STARTED
    state = RunState(outcome) if started else RunState.STOPPED
    return Ended(interval, state, RunId(run), _moment(at), started)


def _us(moment: datetime) -> int:
    return (moment - _FIRST) // _MICROSECOND


def _moment(us: int) -> datetime:
    return _FIRST + us * _MICROSECOND
