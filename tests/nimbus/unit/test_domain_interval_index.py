"""The index of intervals: content and limits, for any order in which runs end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId
from nimbus.domain.interval_index import MOST_PAGES, PAGE, IntervalIndex, Page
from nimbus.domain.intervals import DataInterval
from nimbus.domain.pipeline import FailureStrategy, Priority
from nimbus.domain.run import RunCause, RunHeader, RunState

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
EMPTY = IntervalIndex(begins=NOW)


def of_day(day: int, days: int = 1) -> DataInterval:
    return DataInterval(start=NOW + day * DAY, end=NOW + (day + days) * DAY)


def ended(
    interval: DataInterval | None, state: RunState = RunState.SUCCEEDED, name: str = "r", after_s: float = 0
) -> RunHeader:
    return RunHeader(
        id=RunId(name),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.SCHEDULE,
        priority=Priority.LOW,
        failure_strategy=FailureStrategy.END,
        started_at=NOW,
        finished_at=NOW + timedelta(seconds=after_s),
        state=state,
        data_interval=interval,
    )


def outcome(index: IntervalIndex, interval: DataInterval) -> str | None:
    found = index.last(interval)
    return None if found is None else f"{found.outcome} {found.run}"


def test_last_outcome_of_an_interval_takes_the_place_of_the_one_before() -> None:
    index = EMPTY.with_run(ended(of_day(1), RunState.FAILED, "r1")).with_run(ended(of_day(1), name="r2"))

    assert outcome(index, of_day(1)) == "succeeded r2"
    assert outcome(index, of_day(2)) is None


def test_run_that_never_started_takes_no_others_place_but_is_listed() -> None:
    stopped = replace(ended(of_day(1), RunState.STOPPED, "r2"), started_at=None)

    assert outcome(EMPTY.with_run(stopped), of_day(1)) == "stopped r2"
    assert outcome(EMPTY.with_run(ended(of_day(1))).with_run(stopped), of_day(1)) == "succeeded r"


def test_run_that_never_started_is_told_apart_and_hides_no_longer_interval() -> None:
    stopped = replace(ended(of_day(2), RunState.STOPPED, "r2", after_s=9), started_at=None)
    index = EMPTY.with_run(stopped)

    found = index.last(of_day(2))
    assert found is not None
    assert (found.outcome, found.started) == (RunState.STOPPED, False)
    index = index.with_run(ended(of_day(1, days=3), name="range", after_s=1))
    assert outcome(index, of_day(2)) == "succeeded range"
    assert outcome(index.with_run(ended(of_day(2), RunState.STOPPED, "r3")), of_day(2)) == "succeeded range"


def test_run_without_an_interval_changes_nothing() -> None:
    assert EMPTY.with_run(ended(None)) is EMPTY


def test_longer_interval_speaks_for_those_that_it_covers_if_it_ended_later() -> None:
    index = EMPTY.with_run(ended(of_day(2), RunState.FAILED, "day"))
    index = index.with_run(ended(of_day(1, days=3), name="range", after_s=1))
    assert [outcome(index, of_day(day)) for day in (0, 1, 2, 3, 4)] == [
        None,
        "succeeded range",
        "succeeded range",
        "succeeded range",
        None,
    ]

    index = index.with_run(ended(of_day(2), RunState.FAILED, "again", after_s=2))
    assert outcome(index, of_day(2)) == "failed again"


def test_full_index_forgets_the_oldest_page_and_says_from_when_on_it_knows_all() -> None:
    index, total = EMPTY, PAGE * MOST_PAGES + 1
    for day in range(total):
        index = index.with_run(ended(of_day(day)))

    assert len(index.pages) == MOST_PAGES
    assert index.last(of_day(0)) is None
    assert not index.knows(of_day(0))
    assert all(index.last(of_day(day)) or not index.knows(of_day(day)) for day in range(total))
    assert index.last(of_day(total - 1)) is not None
    assert index.knows(of_day(total))


def test_unreadable_page_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="page x cannot be read"):
        Page("x", b"broken").rows()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 3), st.sampled_from(["succeeded", "failed"]))),
    st.integers(0, 400),
    st.integers(1, 3),
)
def test_index_says_what_a_look_at_all_runs_would_in_whatever_order_they_ended(
    runs: list[tuple[int, int, str]], day: int, days: int
) -> None:
    index, latest = EMPTY, {}
    for number, (start, length, state) in enumerate(runs):
        interval = of_day(start, length)
        index = index.with_run(ended(interval, RunState(state), f"r{number}", after_s=number))
        latest[(interval.start, interval.end)] = f"{state} r{number}"

    wanted = of_day(day, days)
    found = [(one.interval.start, one.interval.end) for one in index.overlapping(wanted)]

    overlapping = {key for key in latest if key[0] < wanted.end and key[1] > wanted.start}
    assert found == sorted(overlapping, key=lambda key: (key[1], key[0]))
    covering = [latest[key] for key in overlapping if key[0] <= wanted.start and key[1] >= wanted.end]
    newest = max(covering, key=lambda said: int(said.rpartition("r")[2]), default=None)
    assert outcome(index, wanted) == newest


@pytest.mark.parametrize("days", [range(300), range(300, 0, -1), [n * 7 % 300 for n in range(300)]])
def test_pages_stay_small_and_in_order_whatever_the_order_of_the_dates(days: list[int]) -> None:
    index = EMPTY
    for day in days:
        index = index.with_run(ended(of_day(day)))

    rows = [row for page in index.pages for row in page.rows()]
    assert rows == sorted(rows)
    assert len(rows) == 300
    assert max(len(page.rows()) for page in index.pages) <= PAGE
    assert all(one.name < two.name for one, two in pairwise(index.pages))
    assert len(index.pages) <= 2 * 300 // PAGE
