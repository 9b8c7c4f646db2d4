"""The index of intervals: content and limits, for any order in which runs end."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId
from nimbus.domain.pipelines import interval_index
from nimbus.domain.pipelines.interval_index import FULL_PAGES, PAGE, IndexPage, IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority
from nimbus.domain.runs.run import RunCause, RunHeader, RunState
from nimbus.domain.starts.upstream import Upstream, WaitState, judge
from nimbus.domain.starts.waits import OnFailed, PipelineWait
from tests.nimbus.simulation.mutant import replaced

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


def test_pages_are_unpacked_once_for_all_dates_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    index = EMPTY
    for day in range(200):
        index = index.with_run(ended(of_day(day), name=f"r{day}"))
    unpacked: list[bytes] = []
    decompress = zlib.decompress
    monkeypatch.setattr(zlib, "decompress", lambda data: unpacked.append(data) or decompress(data))
    interval_index._unpacked.cache_clear()

    found = [index.last(of_day(day)) for day in range(200)]

    assert [one and one.run for one in found] == [f"r{day}" for day in range(200)]
    assert sorted(unpacked) == sorted(page.data for page in index.pages)


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


def test_index_that_cannot_join_forgets_the_oldest_page_and_says_from_when_on_it_knows_all() -> None:
    index, total = EMPTY, PAGE * 3 + 1
    with replaced(interval_index, FULL_PAGES=2, MAX_PAGES=3):
        for day in range(total):
            index = index.with_run(ended(of_day(2 * day)))

    assert len(index.pages) == 3
    assert index.last(of_day(0)) is None
    assert not index.knows(of_day(0))
    assert all(index.last(of_day(2 * day)) or not index.knows(of_day(2 * day)) for day in range(total))
    assert index.last(of_day(2 * total - 2)) is not None
    assert index.knows(of_day(2 * total))


HOUR = timedelta(hours=1)
BACKFILLED = 4_000
ORDERS: dict[str, Callable[[], list[int]]] = {
    "oldest first": lambda: [*range(BACKFILLED)],
    "newest first": lambda: [*range(BACKFILLED)][::-1],
    "every second, then the others": lambda: [*range(0, BACKFILLED, 2), *range(1, BACKFILLED, 2)],
    "at random": lambda: Random(1).sample(range(BACKFILLED), BACKFILLED),
}


def of_hour(hour: int) -> DataInterval:
    return DataInterval(start=NOW + hour * HOUR, end=NOW + (hour + 1) * HOUR)


@cache
def full() -> IntervalIndex:
    """An index of as many newer hours as once filled it."""
    index = EMPTY
    for hour in range(BACKFILLED, BACKFILLED + PAGE * FULL_PAGES):
        index = index.with_run(ended(of_hour(hour), name=f"sales-{hour:06}"))
    return index


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, marks=() if order == "at random" else pytest.mark.thorough, id=order)
        for order in ORDERS
    ],
)
def test_each_wait_for_thousands_of_backfilled_hours_is_answered_whatever_their_order(order: str) -> None:
    index, random, states = full(), Random(2), dict[int, RunState]()
    hours = ORDERS[order]()
    for number, hour in enumerate([*hours, *random.sample(hours, 800)]):
        states[hour] = RunState.FAILED if random.random() < 0.2 else RunState.SUCCEEDED
        index = index.with_run(ended(of_hour(hour), states[hour], f"backfill-{number:06}", after_s=number))

    assert sum(len(page.data) for page in index.pages) < 60_000
    wait = PipelineWait(pipeline=PipelineName("p"), on_failed=OnFailed.FAIL)
    met, failed = (
        {h for h, state in states.items() if state is wanted}
        for wanted in (RunState.SUCCEEDED, RunState.FAILED)
    )
    answers = {
        hour: judge(wait, ended(of_hour(hour), RunState.RUNNING), Upstream(index, ())).standing
        for hour in range(BACKFILLED)
    }
    assert {hour for hour, said in answers.items() if said is WaitState.MET} == met
    assert {hour for hour, said in answers.items() if said is WaitState.FAILED} == failed


LAW = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 3), st.sampled_from(["succeeded", "failed", "never"])),
    max_size=120,
)


def check_joined(runs: list[tuple[int, int, str]]) -> None:
    """A time has succeeded if its last run did, and only if a run of it did that was not repeated since."""
    index, last_of, last_at = EMPTY, dict[DataInterval, bool](), dict[int, bool]()
    small = {"PAGE": 4, "_JOINED_PAGE": 3, "_GAIN": 1, "FULL_PAGES": 2, "MAX_PAGES": 99}
    with replaced(interval_index, **small):
        for number, (start, length, state) in enumerate(runs):
            run = ended(of_hour(start), after_s=number, name=f"r{number}")
            interval = DataInterval(start=NOW + start * HOUR, end=NOW + (start + length) * HOUR)
            run = replace(run, data_interval=interval)
            if state == "never":
                index = index.with_run(replace(run, state=RunState.STOPPED, started_at=None))
                continue
            index = index.with_run(replace(run, state=RunState(state)))
            last_of[interval] = state == "succeeded"
            last_at.update(dict.fromkeys(range(start, start + length), state == "succeeded"))
    for hour in range(64):
        found = [*index.overlapping(of_hour(hour))]
        succeeded = any(one.outcome is RunState.SUCCEEDED for one in found)
        stands = any(ok and one.start <= of_hour(hour).start < one.end for one, ok in last_of.items())
        assert last_at.get(hour, False) <= succeeded <= stands, hour
        assert any(one.started for one in found) == (hour in last_at), hour
        before = index.latest_until(of_hour(hour).start)
        assert (before is None) or before.interval.end <= of_hour(hour).start
        if all(length == 1 and state != "never" for _, length, state in runs):
            earlier = max((other for other in last_at if other < hour), default=None)
            assert (None if before is None else before.interval.end) == (
                None if earlier is None else of_hour(earlier).end
            )
    rows = [row for page in index.pages for row in page.rows()]
    assert rows == sorted(rows)


@settings(deadline=None)
@given(LAW)
def test_joined_rows_say_of_each_time_what_its_runs_did(runs: list[tuple[int, int, str]]) -> None:
    check_joined(runs)


BUGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a rerun cuts nothing out": (
        IntervalIndex, {"_overlapping": lambda self, start, end: iter(())}
    ),
    "what ended otherwise is joined": (
        interval_index, {"_follows": lambda row, before: before[-1][0] == row[1]}
    ),
    "rows with a gap between them are joined": (
        interval_index, {"_follows": lambda row, before: before[-1][2] == row[2]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_law_of_joined_rows_finds_bugs(bug: str) -> None:
    owner, functions = BUGS[bug]
    random = Random(3)
    cases = (
        [(random.randrange(20), 1, random.choice(["succeeded", "failed"])) for _ in range(60)]
        for _ in range(40)
    )
    with replaced(owner, **functions), pytest.raises(AssertionError):
        for runs in cases:
            check_joined(runs)


def test_unreadable_page_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="page x cannot be read"):
        IndexPage("x", b"broken").rows()


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
