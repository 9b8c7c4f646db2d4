"""Fire times of the catalog. Pure.

They are computed from a pipeline's position, which does not change between two fires. So the result of
`next_fire` stays the same for many calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import nsmallest
from itertools import islice

from nimbus.definition.cron import fires_after, next_fire
from nimbus.domain.catalog import PipelineRecord, PipelineState


def due(record: PipelineRecord) -> datetime | None:
    """The first unhandled fire time, past or future; None: its schedule does not fire."""
    schedule, position = record.profile.schedule, record.schedule_position
    if schedule is None or position is None or record.state is not PipelineState.ACTIVE:
        return None
    return next_fire(schedule, position)


def upcoming(record: PipelineRecord, now: datetime) -> datetime | None:
    """The next fire time."""
    first = due(record)
    if first is None or first > now or record.profile.schedule is None:
        return first
    return next_fire(record.profile.schedule, now)  # the position is not ahead


def following(record: PipelineRecord, now: datetime, count: int) -> list[datetime]:
    """The next fire times of one pipeline."""
    if due(record) is None or record.profile.schedule is None:
        return []
    return list(islice(fires_after(record.profile.schedule, record.fires_after(now)), count))


def first_of_all(records: Iterable[PipelineRecord], now: datetime, count: int) -> list[tuple[datetime, str]]:
    """The next fire times of the catalog. One pipeline may have several."""
    firsts = ((at, record.name, record) for record in records if (at := upcoming(record, now)) is not None)
    soonest = nsmallest(count, firsts, key=lambda one: one[:2])
    found = ((at, name) for _, name, record in soonest for at in following(record, now, count))
    return nsmallest(count, found)
