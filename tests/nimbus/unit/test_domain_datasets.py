"""Datasets: names of partitions, spans, ages. Their laws: `tests/nimbus/property/test_datasets.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import reduce

import pytest

from nimbus.domain.data.datasets import MAX_SPANS, Dataset, still_published_by, versions_of
from nimbus.domain.data.publications import (
    KEY_PATTERN,
    Partitioning,
    Publication,
    Version,
    interval_in,
    interval_text,
)
from nimbus.domain.ids import (
    AttemptId,
    DatasetName,
    PipelineName,
    ReleaseDigest,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.intervals import DataInterval, with_span
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.run_number import WriteVersionError, next_number, write_version
from nimbus.domain.runs.task_run import Attempt, Outcome, Settlement, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hours(start: float, end: float) -> DataInterval:
    return DataInterval(start=NOW + start * HOUR, end=NOW + end * HOUR)


def version(partition: str = "", number: int = 1, keep: timedelta | None = None) -> Version:
    run = RunId(f"r{number}")
    return Version(
        partition=partition,
        number=number,
        run=run,
        task=TaskName("t"),
        source=AttemptId(run, TaskName("t"), 1),
        output="p/r/t/1",
        at=NOW,
        keep=keep,
    )


def dataset(partition: Partitioning = Partitioning.INTERVAL) -> Dataset:
    return Dataset(name=DatasetName("d"), pipeline=PipelineName("p"), partition=partition)


@pytest.mark.parametrize(
    "interval",
    [
        hours(0, 24),
        DataInterval(
            start=NOW.astimezone(timezone(timedelta(hours=5, minutes=30))), end=NOW + timedelta(seconds=7)
        ),
    ],
)
def test_interval_is_a_name_that_no_key_can_have(interval: DataInterval) -> None:
    text = interval_text(interval)

    assert interval_in(text) == interval
    assert not KEY_PATTERN.fullmatch(text)


@pytest.mark.parametrize("text", ["", "eu", "2026", "a_b", "2026-03-01T00:00:00_2026-03-02T00:00:00"])
def test_other_names_are_no_intervals(text: str) -> None:
    assert interval_in(text) is None


def test_names_of_intervals_have_the_order_of_time() -> None:
    intervals = [hours(number * 700, number * 700 + 1) for number in range(40)]

    assert [interval_text(one) for one in intervals] == sorted(map(interval_text, intervals))


def test_touching_intervals_are_one_span() -> None:
    published = [hours(2, 3), hours(0, 1), hours(1, 2), hours(5, 6), hours(5, 5.5)]
    assert reduce(with_span, published, ()) == (
        hours(0, 3),
        hours(5, 6),
    )


def test_spans_are_bounded_and_say_from_when_they_are_complete() -> None:
    found = dataset()
    for number in range(MAX_SPANS + 10):
        found = found.with_version(
            version(interval_text(hours(2 * number, 2 * number + 1)), number + 1), bool
        )

    assert len(found.spans) == MAX_SPANS
    assert found.spans_from == hours(18, 19).end
    assert found.spans[0] == hours(20, 21)


def test_version_of_an_older_run_is_counted_and_replaces_nothing() -> None:
    newer = dataset(Partitioning.WHOLE).with_version(version(number=2), bool)
    both = newer.with_version(version(number=1), bool)

    assert both == replace(newer, published=2)


@pytest.mark.parametrize(
    ("partition", "keep", "goes"),
    [
        ("", None, False),
        ("", timedelta(days=4), True),
        ("", timedelta(days=6), False),
        (interval_text(hours(-48, -24)), timedelta(days=5.5), True),
        (interval_text(hours(0, 24)), timedelta(days=4.5), False),
    ],
)
def test_partition_may_go_when_its_data_are_older_than_they_are_kept(
    partition: str, keep: timedelta | None, goes: bool
) -> None:
    assert version(partition, keep=keep).may_go(NOW + timedelta(days=5)) is goes


def test_numbers_of_runs_grow_over_leaders_and_fit_into_63_bits() -> None:
    first = next_number(7, 0)
    second = next_number(7, first)
    third = next_number(8, second)

    assert first < second < third < next_number(1 << 30, third) < 1 << 63
    assert [write_version(first, attempt) for attempt in (1, 256)] == [first + 1, second]
    assert write_version(second, 1) > second


def test_attempt_without_a_number_of_its_own_is_refused() -> None:
    with pytest.raises(WriteVersionError, match=r"attempt 257 .* 256 of them in one run"):
        write_version(next_number(1, 0), 257)
    with pytest.raises(WriteVersionError, match="the run has no number"):
        write_version(0, 1)


def checked(state: TaskState, settled: Settlement | None, kind: TaskKind = TaskKind.PYTHON) -> Run:
    """A run whose second task publishes what the first one made."""
    attempt = Attempt(
        number=1,
        worker=WorkerId("w"),
        opened_at=NOW,
        opened_by_epoch=1,
        outcome=Outcome.SUCCEEDED,
        ended_at=NOW,
        output="p/r/load/1",
    )
    load = TaskSpec(name=TaskName("load"), kind=TaskKind.PYTHON, script="l.py")
    publication = Publication(dataset=DatasetName("d"), of=load.name)
    check = replace(load, name=TaskName("check"), kind=kind, needs=(load.name,), publishes=(publication,))
    return Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks=Tasks(
            [
                TaskRun(spec=load, state=TaskState.SUCCEEDED, attempts=(attempt,)),
                TaskRun(spec=check, state=state, settled=settled),
            ]
        ),
    )


def test_check_that_an_operator_marked_publishes_nothing_and_an_approval_does() -> None:
    by_hand = Settlement(at=NOW, by="ann", reason="fine")

    assert list(versions_of(checked(TaskState.SUCCEEDED, by_hand))) == []
    ((_, published),) = versions_of(checked(TaskState.SUCCEEDED, by_hand, TaskKind.APPROVAL))
    assert (published.task, published.output) == ("check", "p/r/load/1")
    assert list(still_published_by(checked(TaskState.WAITING, None), DatasetName("d"))) == [""]
    assert list(still_published_by(checked(TaskState.FAILED, None), DatasetName("d"))) == []
