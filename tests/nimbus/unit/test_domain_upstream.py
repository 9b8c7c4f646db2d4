"""Whether runs of other pipelines have produced the intervals that a run waits for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority
from nimbus.domain.runs.run import RunCause, RunHeader, RunState
from nimbus.domain.starts.upstream import JudgedWait, Upstream, WaitState, judge
from nimbus.domain.starts.waits import SELF, OnFailed, PipelineWait

DAY = datetime(2026, 3, 1, tzinfo=UTC)
ODS = PipelineName("ods")
WAIT = PipelineWait(pipeline=ODS)
HOUR = timedelta(hours=1)


def hours(start: float, end: float) -> DataInterval:
    return DataInterval(start=DAY + start * HOUR, end=DAY + end * HOUR)


def run(
    interval: DataInterval | None,
    state: RunState = RunState.SUCCEEDED,
    *,
    pipeline: str = ODS,
    timezone: str = "UTC",
) -> RunHeader:
    name = "r" if interval is None else f"r-{interval.start:%d%H%M}-{interval.end:%d%H%M}"
    return RunHeader(
        id=RunId(f"{pipeline}-{name}"),
        pipeline=PipelineName(pipeline),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=DAY,
        created_at=DAY,
        cause=RunCause.SCHEDULE,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.CONTINUE,
        started_at=DAY,
        finished_at=DAY if state.is_final else None,
        state=state,
        data_interval=interval,
        timezone=timezone,
    )


def known(*runs: RunHeader, begins: datetime = DAY - timedelta(days=9)) -> Upstream:
    index = IntervalIndex(begins=begins)
    for one in runs:
        index = index.with_run(one)
    return Upstream(index, tuple(one for one in runs if not one.state.is_final))


DAILY = run(hours(0, 24), RunState.RUNNING, pipeline="daily")


def hourly(numbers: Iterable[int], state: RunState = RunState.SUCCEEDED) -> list[RunHeader]:
    return [run(hours(number, number + 1), state) for number in numbers]


def test_hourly_runs_feed_a_daily_one_together() -> None:
    assert judge(WAIT, DAILY, known(*hourly(range(24)))) == JudgedWait(WaitState.MET)


def test_daily_run_feeds_hourly_ones() -> None:
    own = run(hours(5, 6), RunState.RUNNING, pipeline="hourly")

    assert judge(WAIT, own, known(run(hours(0, 24)))) == JudgedWait(WaitState.MET)


def test_what_is_missing_is_named_with_what_became_of_it() -> None:
    upstream = known(
        *hourly([*range(3), *range(4, 6), *range(7, 24)]),
        *hourly([3], RunState.FAILED),
        *hourly([6], RunState.RUNNING),
    )

    found = judge(WAIT, DAILY, upstream)

    assert found.standing is WaitState.OPEN
    assert found.missing == (
        "2026-03-01T03:00+0000 to 2026-03-01T04:00+0000 (run ods-r-010300-010400 failed), "
        "2026-03-01T06:00+0000 to 2026-03-01T07:00+0000 (run ods-r-010600-010700 is running)"
    )


def test_many_gaps_are_counted() -> None:
    found = judge(WAIT, DAILY, known(*hourly(range(0, 24, 2))))

    assert found.missing.endswith("2026-03-01T06:00+0000 (no run), and 9 more")


def test_rerun_that_succeeds_satisfies_a_wait_for_a_failed_run() -> None:
    upstream = known(run(hours(0, 24), RunState.FAILED), run(hours(0, 24)))

    assert judge(WAIT, DAILY, upstream).standing is WaitState.MET


@pytest.mark.parametrize(
    ("on_failed", "standing"), [(OnFailed.WAIT, WaitState.OPEN), (OnFailed.FAIL, WaitState.FAILED)]
)
@pytest.mark.parametrize("ended", [RunState.FAILED, RunState.STOPPED])
def test_failed_run_fails_a_wait_that_asks_for_it(
    on_failed: OnFailed, standing: WaitState, ended: RunState
) -> None:
    wait = PipelineWait(pipeline=ODS, on_failed=on_failed)

    assert judge(wait, DAILY, known(run(hours(0, 24), ended))).standing is standing


def test_failed_run_fails_no_wait_while_another_is_under_way() -> None:
    wait = PipelineWait(pipeline=ODS, on_failed=OnFailed.FAIL)
    upstream = known(run(hours(0, 24), RunState.FAILED), run(hours(0, 24), RunState.QUEUED))

    assert judge(wait, DAILY, upstream).standing is WaitState.OPEN


def test_failure_outside_of_what_is_wanted_fails_no_wait() -> None:
    wait = PipelineWait(pipeline=ODS, on_failed=OnFailed.FAIL)
    upstream = known(*hourly(range(23)), *hourly([24, -1], RunState.FAILED))

    assert judge(wait, DAILY, upstream).standing is WaitState.OPEN


def test_what_lies_before_the_index_is_unknown_and_said_so() -> None:
    found = judge(WAIT, DAILY, known(begins=DAY + 48 * HOUR))

    assert found.missing.endswith("(unknown: before the index of intervals begins)")


def test_pipeline_that_has_ended_no_run_yet_is_said_so() -> None:
    assert judge(WAIT, DAILY, Upstream(None, ())).missing.endswith("(no run of it has ended yet)")
    unknown = Upstream(None, (), exists=False)
    assert judge(WAIT, DAILY, unknown).missing.endswith("(there is no such pipeline, or you may not see it)")


def test_last_counts_back_from_the_end_of_the_interval_on_the_calendar_of_its_zone() -> None:
    """Clocks in Berlin go forward on 29 March 2026, so that day has 23 hours."""
    midnight = datetime(2026, 3, 29, 22, tzinfo=UTC)
    own = run(DataInterval(start=midnight - HOUR, end=midnight), RunState.RUNNING, timezone="Europe/Berlin")
    covered = run(DataInterval(start=midnight - 23 * HOUR, end=midnight))

    assert judge(PipelineWait(pipeline=ODS, last=timedelta(days=1)), own, known(covered)) == JudgedWait(
        WaitState.MET
    )


BEFORE = PipelineWait(pipeline=SELF)


@pytest.mark.parametrize(
    ("earlier", "standing"),
    [
        ([], WaitState.MET),
        ([run(hours(-24, 0))], WaitState.MET),
        ([run(hours(-24, 0), RunState.FAILED)], WaitState.OPEN),
        ([run(hours(-24, 0), RunState.RUNNING)], WaitState.OPEN),
        ([run(hours(-48, -24), RunState.FAILED), run(hours(-24, 0))], WaitState.MET),
        ([run(hours(-72, -48)), run(hours(-48, -24), RunState.FAILED)], WaitState.OPEN),
        ([run(hours(24, 48), RunState.FAILED)], WaitState.MET),
        ([run(None, RunState.RUNNING)], WaitState.MET),
    ],
    ids=[
        "first",
        "succeeded",
        "failed",
        "running",
        "the one before",
        "the latest known",
        "a later one",
        "a run without an interval",
    ],
)
def test_self_waits_for_the_latest_earlier_interval(earlier: list[RunHeader], standing: WaitState) -> None:
    own = run(hours(0, 24), RunState.RUNNING)

    assert judge(BEFORE, own, known(*earlier, own)).standing is standing


def test_self_is_met_for_the_first_run_of_a_pipeline() -> None:
    assert judge(BEFORE, DAILY, Upstream(None, ())) == JudgedWait(WaitState.MET)


def test_run_without_a_data_interval_can_wait_for_nothing() -> None:
    found = judge(WAIT, run(None, RunState.RUNNING), known())

    assert found == JudgedWait(WaitState.FAILED, "its run has no data interval")
