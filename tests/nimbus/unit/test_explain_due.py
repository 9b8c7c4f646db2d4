"""Why data start no run of a pipeline: what `nimbus explain` says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nimbus.api.explain.data import DatasetView, DueView, why_no_start
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning, Read
from nimbus.domain.ids import DatasetName, PipelineName, ReleaseDigest, RunId
from nimbus.domain.pipelines.catalog import Profile
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    Concurrency,
    DataStart,
    FailureStrategy,
    Priority,
    Schedule,
    StartWhen,
)
from nimbus.domain.runs.run import DataCause, Run, RunCause
from nimbus.domain.starts.due import Due, RefusedStart

DAY = timedelta(days=1)
NOW = datetime(2026, 3, 3, 6, tzinfo=UTC)
MIDNIGHT = datetime(2026, 3, 3, tzinfo=UTC)
FEED = DatasetName("feed")
LOAD = PipelineName("load")
DAILY = Due(
    pipeline=PipelineName("report"),
    start=DataStart(),
    schedule=Schedule(cron="@daily", timezone="UTC"),
    reads=(Read(name="feed", dataset=FEED, starts=True),),
)
PROFILE = Profile(starts_by_data=True)


def feed(*days: int) -> DatasetView:
    """A dataset of which these days before midnight are published, and a run of its publisher."""
    spans = tuple(
        DataInterval(MIDNIGHT - day * DAY, MIDNIGHT - (day - 1) * DAY) for day in sorted(days)[::-1]
    )
    known = Dataset(name=FEED, pipeline=LOAD, partition=Partitioning.INTERVAL, published=1, spans=spans)
    return DatasetView(known, (LOAD,), (RunId("load-1"),))


def due(*days: int, of: Due = DAILY, at: datetime = NOW - DAY) -> Due:
    spans = [DataInterval(MIDNIGHT - day * DAY, MIDNIGHT - (day - 1) * DAY) for day in days]
    cause = DataCause(dataset=FEED, partition="", number=1, run=RunId("load-0"), at=at)
    return of.with_change(cause, spans if of.schedule else ())


def run(cause: RunCause, date: datetime) -> Run:
    return Run(
        id=RunId("report-1"),
        pipeline=DAILY.pipeline,
        release=ReleaseDigest("1" * 64),
        parameters={},
        logical_date=date,
        created_at=NOW,
        cause=cause,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
    )


def told(
    due: Due, view: DatasetView, *live: Run, profile: Profile = PROFILE, held: bool = False
) -> list[str]:
    known = DueView(due=due, datasets={FEED: view}, live=live)
    return list(why_no_start(known, profile, NOW, is_held=held))


def test_pipeline_of_which_nothing_changed_says_when_it_last_did() -> None:
    (why,) = told(replace(due(1).dropped(), started_at=NOW), feed(1))

    assert why == (
        "nothing is due: feed did not change since; the last start was at 2026-03-03 06:00:00Z, "
        "the last change at 2026-03-02 06:00:00Z"
    )


def test_target_with_a_gap_names_it_and_the_run_that_would_publish() -> None:
    assert told(due(1, 2), feed(1)) == [
        (
            "2026-03-01T00:00+0000 to 2026-03-02T00:00+0000: waits for dataset feed: "
            "2026-03-01T00:00+0000 to 2026-03-02T00:00+0000 (load publishes it: load-1 under way)"
        ),
        "2026-03-02T00:00+0000 to 2026-03-03T00:00+0000: is complete: the leader starts its run next",
    ]


def test_complete_target_of_a_held_pipeline_waits_for_its_turn() -> None:
    (why,) = told(due(1), feed(1), held=True)

    assert why.endswith("is complete, and waits for its turn")


def test_target_with_a_live_run_and_a_full_pipeline_say_so() -> None:
    full, live = told(due(1), feed(1), run(RunCause.DATA, MIDNIGHT))

    assert full == "what is due waits for the end of a run: report-1 under way, and no more may be at once"
    assert "a run of it is under way, and another one follows" in live


def test_limit_of_the_pipeline_counts_all_of_its_runs() -> None:
    limited = replace(PROFILE, concurrency=Concurrency(limit=2))
    by_hand = run(RunCause.MANUAL, NOW)

    assert len(told(due(1), feed(1), by_hand, profile=limited)) == 1
    assert len(told(due(1), feed(1), by_hand, by_hand, profile=limited)) == 2
    assert len(told(due(1), feed(1), by_hand)) == 1


def test_settle_and_a_refusal_say_until_when() -> None:
    settling = replace(DAILY, start=DataStart(settle=timedelta(minutes=10)))
    (until, _) = told(due(1, of=settling, at=NOW), feed(1))
    (refused, _) = told(replace(due(1), refused=RefusedStart(why="no variable x", at=NOW)), feed(1))

    assert until.startswith("starts nothing before 2026-03-03 06:10:00Z: settle is 0:10:00; the last change")
    assert refused.startswith("starts nothing before 2026-03-03 06:01:00Z: refused: no variable x")


def test_pipeline_that_waits_for_all_names_those_that_did_not_change() -> None:
    other = Read(name="x", dataset=DatasetName("x"), starts=True)
    both = replace(DAILY, schedule=None, reads=(*DAILY.reads, other), start=DataStart(when=StartWhen.ALL))

    assert told(due(of=both), feed(1)) == ["waits for a change of x (`data: all`); none was started yet"]
