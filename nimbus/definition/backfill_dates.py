"""The dates of a backfill, with their data intervals, in its order. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from nimbus.definition.cron import fires_after
from nimbus.definition.intervals import dates_between, interval_of, previous_fire
from nimbus.domain.backfill import Backfill, BackfillRequest, Order
from nimbus.domain.intervals import DataInterval
from nimbus.domain.pipeline import Schedule

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
