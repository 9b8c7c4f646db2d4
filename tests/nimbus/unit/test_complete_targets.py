"""Which targets of a consumer are looked at, when many of them cannot start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nimbus.definition.complete_targets import due_targets
from nimbus.domain.datasets import Dataset
from nimbus.domain.due import MOST_EXTENTS, Due
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.intervals import DataInterval
from nimbus.domain.pipeline import DataStart, Schedule
from nimbus.domain.publications import Partitioning, Read

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FEED = DatasetName("feed")


def looked_at(read: Read, cron: str, extents: list[DataInterval], spans: list[DataInterval]) -> int:
    """How many targets are looked at before it is known that none may start."""
    due = Due(
        pipeline=PipelineName("report"),
        start=DataStart(),
        schedule=Schedule(cron=cron, timezone="UTC"),
        reads=(read,),
        extents=tuple(extents),
        changed_at=START,
    )
    feed = Dataset(
        name=FEED,
        pipeline=PipelineName("load"),
        partition=Partitioning.INTERVAL,
        published=1,
        spans=tuple(spans),
    )
    found = list(due_targets(due, {FEED: feed}, (), datetime.max.replace(tzinfo=UTC)))
    assert all(one.left is None for one in found)
    return len(found)


def test_targets_inside_full_extents_are_not_looked_at_one_by_one() -> None:
    days = [DataInterval(START + 2 * at * DAY, START + (2 * at + 1) * DAY) for at in range(MOST_EXTENTS)]
    spans = [DataInterval(day.start + MINUTE, day.end - MINUTE) for day in days]

    count = looked_at(Read(name="feed", dataset=FEED, starts=True), "@hourly", days, spans)

    assert count <= 3 * MOST_EXTENTS  # not 24


def test_targets_that_read_the_last_gap_of_one_are_passed_over() -> None:
    spans = [DataInterval(START + at * DAY, START + at * DAY + HOUR) for at in range(256)]
    read = Read(name="feed", dataset=FEED, last=30 * DAY, starts=True)

    count = looked_at(read, "@hourly", [DataInterval(START, START + 256 * DAY)], spans)

    assert count <= 256 / 30 + 2
