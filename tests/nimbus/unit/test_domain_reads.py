"""What runs read of datasets: which versions, what is missing, and what can never be read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import (
    OutsideData,
    Partitioning,
    Publication,
    Read,
    Version,
    interval_text,
)
from nimbus.domain.data.reads import (
    Partitions,
    ReadError,
    awaits_inputs,
    chosen,
    input_names,
    missing,
    to_pin,
    wanted,
)
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.children import ChildSpec
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import Run, RunCause

DAY = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURS, RATES, KEYS = DatasetName("hours"), DatasetName("rates"), DatasetName("keys")
FAN = ChildSpec(pipeline=PipelineName("part"))
READ = Read(name="hours", dataset=HOURS)


def hours(start: float, end: float) -> DataInterval:
    return DataInterval(start=DAY + start * HOUR, end=DAY + end * HOUR)


def version(partition: str | DataInterval, number: int = 1) -> Version:
    run = RunId(f"r{number}")
    return Version(
        partition=partition if isinstance(partition, str) else interval_text(partition),
        number=number,
        run=run,
        task=TaskName("t"),
        source=AttemptId(run, TaskName("t"), 1),
        output=f"p/{run}/t/1",
        at=DAY,
    )


def dataset(partition: Partitioning, *versions: Version) -> Dataset:
    found = Dataset(name=HOURS, pipeline=PipelineName("p"), partition=partition)
    for one in versions:
        found = found.with_version(one, lambda _: False)
    return found


def by_hour(*numbers: int) -> Dataset:
    versions = (version(hours(number, number + 1), number + 1) for number in numbers)
    return dataset(Partitioning.INTERVAL, *versions)


def run(interval: DataInterval | None = None, *reads: Read, zone: str = "UTC") -> Run:
    first = TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py", uses=("hours",))
    own = replace(
        first, name=TaskName("b"), uses=("state",), publishes=(Publication(dataset=DatasetName("state")),)
    )
    spec = PipelineSpec(
        name=PipelineName("p"),
        schedule=Schedule(cron="0 0 * * *", timezone=zone),
        reads=reads,
        tasks=(
            first,
            own,
            replace(first, name=TaskName("c"), uses=("hours", "state")),
            replace(first, name=TaskName("d"), uses=("rates",)),
            replace(first, name=TaskName("fan"), kind=TaskKind.PIPELINE, uses=(), children=FAN),
            replace(first, name=TaskName("sum"), uses=("parts",), needs=(TaskName("fan"),)),
        ),
    )
    draft = Draft(
        id=RunId("r"),
        pipeline=spec.name,
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=DAY,
        data_interval=interval,
        cause=RunCause.MANUAL,
        asked_at=DAY,
    )
    return new_run(spec, draft)


def lacks(read: Read, found: Dataset | None, interval: DataInterval | None = None) -> str:
    return missing(read, run(interval), found)


def test_read_by_interval_is_complete_when_the_interval_is_covered() -> None:
    assert lacks(READ, by_hour(*range(24)), hours(0, 24)) == ""
    assert lacks(READ, by_hour(*range(24)), hours(3, 4)) == ""
    assert lacks(READ, by_hour(*range(22), 23), hours(0, 24)) == (
        "dataset hours: 2026-03-01T22:00+0000 to 2026-03-01T23:00+0000"
    )
    assert lacks(replace(READ, optional=True), by_hour(1), hours(0, 24)) == ""


def test_days_of_a_clock_change_have_23_hours() -> None:
    zone = "Europe/Berlin"
    end = datetime.fromisoformat("2026-03-30T00:00+02:00")
    day = DataInterval(start=datetime.fromisoformat("2026-03-29T00:00+01:00"), end=end)
    start = int((day.start - DAY) / HOUR)
    found = by_hour(*range(start, start + 23))

    assert missing(READ, run(day, zone=zone), found) == ""
    last_hour = DataInterval(start=end - HOUR, end=end)
    assert wanted(replace(READ, last=timedelta(days=1)), run(last_hour, zone=zone), found).interval == day


def test_time_before_the_interval_is_counted_from_its_end() -> None:
    last = replace(READ, last=timedelta(hours=3))

    assert wanted(last, run(hours(9, 10)), by_hour(1)) == Partitions(hours(7, 10))


def test_what_was_never_published_is_missing_unless_it_is_optional() -> None:
    assert lacks(READ, None, hours(0, 1)) == "dataset hours: nothing is published"
    assert lacks(replace(READ, optional=True), None, hours(0, 1)) == ""


@pytest.mark.parametrize(
    ("read", "found", "interval", "said"),
    [
        (READ, by_hour(1), None, "has no data interval"),
        (replace(READ, key="eu"), by_hour(1), hours(0, 1), "is by interval, so it has no key eu"),
        (replace(READ, latest=True), dataset(Partitioning.KEY, version("eu")), None, "take: latest"),
        (replace(READ, last=HOUR), dataset(Partitioning.WHOLE, version("")), hours(0, 1), "last"),
        (replace(READ, key="eu"), dataset(Partitioning.WHOLE, version("")), None, "key"),
    ],
)
def test_read_that_does_not_fit_its_dataset_can_never_be_met(
    read: Read, found: Dataset, interval: DataInterval | None, said: str
) -> None:
    with pytest.raises(ReadError, match=said):
        lacks(read, found, interval)


def picked(read: Read, asked: Partitions, *versions: Version) -> list[int]:
    return [one.number for one in chosen(read, asked, versions)]


def test_whole_interval_and_key_are_chosen_in_the_order_of_partitions() -> None:
    day = [version(hours(number, number + 1), 30 - number) for number in (2, 0, 1, 5)]

    assert picked(READ, Partitions(hours(0, 3)), *day) == [30, 29, 28]
    assert picked(READ, Partitions(latest=True), *day) == [25]
    assert picked(READ, Partitions(), version("us", 2), version("eu", 1)) == [1, 2]
    assert picked(READ, Partitions(key="us"), version("us", 2), version("eu", 1)) == [2]


def test_newer_versions_replace_older_ones_that_they_cover() -> None:
    year, first, second = version(hours(0, 24), 1), version(hours(0, 12), 2), version(hours(12, 24), 3)

    assert picked(READ, Partitions(hours(0, 24)), year, first, second) == [2, 3]
    assert picked(READ, Partitions(hours(0, 24)), replace(year, number=9), first, second) == [9]


def test_versions_that_overlap_in_part_are_refused_as_data_would_be_read_twice() -> None:
    with pytest.raises(ReadError, match="overlap in part"):
        picked(READ, Partitions(hours(0, 24)), version(hours(0, 24), 1), version(hours(5, 6), 2))


def test_published_time_whose_versions_are_deleted_is_refused() -> None:
    with pytest.raises(ReadError, match="is deleted: run its publisher again for that time"):
        picked(READ, Partitions(hours(0, 2)), version(hours(0, 1), 1))
    assert picked(replace(READ, optional=True), Partitions(hours(0, 2)), version(hours(0, 1), 1)) == [1]


def test_too_many_versions_are_refused() -> None:
    with pytest.raises(ReadError, match="1001 versions"):
        picked(READ, Partitions(), *(version(f"k{number:04}", number) for number in range(1001)))


def test_inputs_of_a_run_are_pinned_together_and_what_it_publishes_itself_apart() -> None:
    state, rates = Read(name="state", dataset=DatasetName("state")), Read(name="rates", dataset=RATES)
    found = run(hours(0, 1), READ, rates, state)

    assert to_pin(found, TaskName("a")) == (READ, rates)
    assert to_pin(found, TaskName("b")) == (state,)
    assert to_pin(found, TaskName("c")) == (READ, rates)
    assert [awaits_inputs(found, TaskName(name)) for name in "abc"] == [True, False, True]
    pinned = replace(found, pins={"hours": (version(hours(0, 1)),), "rates": ()})
    assert to_pin(pinned, TaskName("a")) == ()
    assert to_pin(pinned, TaskName("c")) == (state,)
    assert not awaits_inputs(pinned, TaskName("c"))
    assert input_names(pinned.pins, ("hours", "state", "rates")) == {"hours:0": "p/r1/t/1"}


def test_what_child_runs_publish_is_pinned_after_them_and_holds_nobody_up() -> None:
    parts = Read(name="parts", dataset=DatasetName("parts"))
    found = run(hours(0, 1), READ, parts)

    assert to_pin(found, TaskName("a")) == (READ,)
    assert to_pin(found, TaskName("sum")) == (parts,)
    assert not awaits_inputs(found, TaskName("sum"))


def test_time_before_the_known_spans_is_looked_up_instead_of_missing() -> None:
    found = replace(by_hour(5), spans_from=DAY + 4 * HOUR)

    assert lacks(READ, found, hours(3, 4)) == ""
    assert lacks(READ, found, hours(4, 6)) == "dataset hours: 2026-03-01T04:00+0000 to 2026-03-01T05:00+0000"
    assert chosen(READ, Partitions(hours(3, 4)), (), found.spans_from) == ()
    early = version(hours(3, 4))
    assert chosen(READ, Partitions(hours(3, 4)), (early,), found.spans_from) == (early,)


def test_read_of_more_data_from_outside_than_a_transaction_holds_is_refused() -> None:
    def from_outside(count: int) -> list[Version]:
        outside = OutsideData(uri=f"s3://in/{'x' * 1900}", value={"y": "z" * 80})
        return [replace(version(f"k{number}"), outside=outside) for number in range(count)]

    read = Read(name="landing", dataset=KEYS)

    assert len(chosen(read, Partitions(), from_outside(200))) == 200
    with pytest.raises(ReadError, match="landing: the URIs and values of 500 versions of keys have 1001500 "):
        chosen(read, Partitions(), from_outside(500))
