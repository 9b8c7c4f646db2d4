"""Which targets of a consumer are looked at, when many of them cannot start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from random import Random

from nimbus.definition.targets import changed_since, due_targets, facts_of
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning, Read
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.intervals import DataInterval, with_span, without_span
from nimbus.domain.pipelines.pipeline import DataStart, Schedule
from nimbus.domain.starts.due import MAX_EXTENTS, Due

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
    days = [DataInterval(START + 2 * at * DAY, START + (2 * at + 1) * DAY) for at in range(MAX_EXTENTS)]
    spans = [DataInterval(day.start + MINUTE, day.end - MINUTE) for day in days]

    count = looked_at(Read(name="feed", dataset=FEED, starts=True), "@hourly", days, spans)

    assert count <= 3 * MAX_EXTENTS  # not 24


def test_targets_that_read_the_last_gap_of_one_are_passed_over() -> None:
    spans = [DataInterval(START + at * DAY, START + at * DAY + HOUR) for at in range(256)]
    read = Read(name="feed", dataset=FEED, last=30 * DAY, starts=True)

    count = looked_at(read, "@hourly", [DataInterval(START, START + 256 * DAY)], spans)

    assert count <= 256 / 30 + 2


def complete(due: Due, feed: Dataset, only: tuple[DataInterval, ...] | None = None) -> set[datetime]:
    """The fire times of targets that lack nothing."""
    found = due_targets(due, {FEED: feed}, (), datetime.max.replace(tzinfo=UTC), only)
    return {one.target.end for one in found if one.target is not None and one.read is None}


def some_hours(random: Random, count: int) -> list[DataInterval]:
    return [
        DataInterval(START + at * HOUR, START + (at + 1) * HOUR) for at in random.sample(range(60), count)
    ]


def test_a_second_look_finds_what_a_look_at_all_targets_would() -> None:
    read, again, fewer = Read(name="feed", dataset=FEED, last=2 * HOUR, starts=True), 0, 0
    due = Due(
        pipeline=PipelineName("report"),
        start=DataStart(),
        schedule=Schedule(cron="@hourly", timezone="UTC"),
        reads=(read,),
        changed_at=START,
    )
    feed = Dataset(name=FEED, pipeline=PipelineName("load"), partition=Partitioning.INTERVAL, published=1)
    for seed in range(300):
        random = Random(seed)
        old = replace(feed, spans=reduce(with_span, some_hours(random, 20), ()))
        if random.random() < 0.5:
            old = replace(old, spans=old.spans[1:], spans_from=old.spans[0].end)
        looked = replace(due, extents=reduce(with_span, some_hours(random, 20), ()))
        for fire in complete(looked, old):
            looked = replace(looked, extents=without_span(looked.extents, DataInterval(fire - HOUR, fire)))
        new = replace(old, spans=reduce(with_span, some_hours(random, random.randrange(3)), old.spans))
        if old.spans_from is not None and random.random() < 0.5:
            new = replace(new, spans=new.spans[1:], spans_from=new.spans[0].end)
        now = replace(looked, extents=reduce(with_span, some_hours(random, 1), looked.extents))

        only = changed_since(facts_of(looked, {FEED: old}), facts_of(now, {FEED: new}))

        assert only is not None
        found = complete(now, new, only)
        assert found == complete(now, new), seed
        again += len(found)
        fewer += len(only) < len(now.extents)
    assert again > 100
    assert fewer > 250
