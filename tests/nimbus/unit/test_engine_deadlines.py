"""`deadline`: raised as `late` before and after the end of a run, once each, also if there was no run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from unittest.mock import Mock

import pytest

from nimbus.domain.data.publications import Read
from nimbus.domain.ids import AttemptId, DatasetName, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import DataStart, PipelineSpec, Schedule
from nimbus.domain.pipelines.pipeline_health import PipelineHealth
from nimbus.domain.runs.run import DataCause, RunCause
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.starts.due import consumer_of
from nimbus.engine.leader_term import TIDY_EVERY_S
from nimbus.engine.rules import lateness
from nimbus.engine.rules.lateness import fire_of, first_after, last_until
from nimbus.engine.work_queue import Key
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import NAME, NOW
from tests.nimbus.unit.test_engine_alerts import TOLD, AlertBench

DAILY = Schedule(cron="0 14 * * *", timezone="UTC")
"""The bench begins at 12:00."""
SPEC = replace(TOLD, schedule=DAILY, deadline=time(16))
MISSED, FORETOLD = "late.p.20260301t160000.oncall", "late.p.20260301t160000-soon.oncall"
RUN = RunId("p-20260301t140000z")


def bench_of(spec: PipelineSpec = SPEC, **changes: object) -> AlertBench:
    bench = AlertBench(spec)
    record = replace(active(spec, schedule_position=NOW, updated_at=NOW), **changes)
    bench.cluster.change(pipelines={NAME: record})
    bench.elect(2)
    bench.decide()
    return bench


def later(bench: AlertBench, hours: float, epoch: int | None = None) -> list[str]:
    bench.clocks.pass_s(hours * 3600)
    if epoch is not None:
        bench.elect(epoch)
    bench.decide()
    return sorted(alert for alert in bench.alerts() if alert.startswith("late"))


def know_durations(bench: AlertBench, seconds: float) -> None:
    health = PipelineHealth(name=NAME, durations=(seconds,) * 5)
    bench.cluster.change(health={NAME: health})
    bench.elect(3)


def end(bench: AlertBench, outcome: Outcome) -> None:
    attempt = AttemptId(RUN, TaskName("a"), 1)
    bench.claim(attempt)
    bench.end(attempt, outcome)
    bench.decide()


def test_deadline_is_missed_once_when_its_run_is_under_way() -> None:
    bench = bench_of()
    assert later(bench, 3.99) == []

    assert later(bench, 0.01) == [MISSED]
    assert bench.alerts()[MISSED].about == (
        "pipeline p is late: no run of its last fire time succeeded by its deadline, 2026-03-01 16:00 UTC"
    )
    bench.answer()
    assert later(bench, 2, epoch=3) == []


def test_deadline_is_kept_when_its_run_has_succeeded() -> None:
    bench = bench_of()
    later(bench, 3)
    end(bench, Outcome.SUCCEEDED)

    assert later(bench, 2) == []


def test_deadline_is_missed_when_its_run_has_failed() -> None:
    bench = bench_of()
    later(bench, 3)
    end(bench, Outcome.FAILED)

    assert later(bench, 2) == [MISSED]


BY_DATA = replace(
    SPEC, start=DataStart(), reads=(Read(name="d", dataset=DatasetName("d"), optional=True, starts=True),)
)


def started_by_data(outcome: Outcome) -> AlertBench:
    """What the run of a day reads has changed, so that it starts when its time is over, and it ends."""
    bench = bench_of(BY_DATA)
    fire, due = NOW.replace(hour=14), consumer_of(BY_DATA, None)
    assert due is not None
    day = DataInterval(start=fire - timedelta(days=1), end=fire)
    cause = DataCause(dataset=DatasetName("d"), partition="", number=1, run=RunId("r"), at=NOW)
    bench.cluster.change(due={NAME: due.with_change(cause, [day])})
    later(bench, 3, epoch=3)
    (run,) = bench.term.state.runs.live.values()
    assert run.cause is RunCause.DATA
    attempt = AttemptId(run.id, TaskName("a"), 1)
    bench.claim(attempt)
    bench.end(attempt, outcome)
    bench.decide()
    return bench


def test_deadline_of_a_run_that_data_start_is_kept_or_missed() -> None:
    assert later(started_by_data(Outcome.SUCCEEDED), 1) == []
    assert later(started_by_data(Outcome.FAILED), 1) == [MISSED]


def test_deadline_is_missed_when_no_data_have_started_a_run() -> None:
    bench = bench_of(BY_DATA)
    assert later(bench, 3) == []
    assert not bench.term.state.runs.live

    assert later(bench, 1) == [MISSED]


def test_deadline_of_a_paused_pipeline_is_missed() -> None:
    bench = bench_of(state=PipelineState.PAUSED)

    assert later(bench, 4) == [MISSED]


def test_deadline_is_missed_when_nobody_led_then() -> None:
    bench = bench_of()

    assert later(bench, 7, epoch=3) == [MISSED]


def test_deadline_is_watched_again_when_its_rule_has_failed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as failing:
        failing.setattr(lateness, "watch_deadline", Mock(side_effect=ValueError))
        bench = bench_of(state=PipelineState.PAUSED)  # nothing else writes its record
    assert Key("deadline", NAME) in bench.term.state.work.parked

    bench.clocks.pass_s(TIDY_EVERY_S)
    bench.term.tend()
    assert later(bench, 4) == [MISSED]


def test_deadline_before_the_activation_is_nobodys() -> None:
    bench = bench_of(updated_at=NOW + timedelta(hours=4.5))

    assert later(bench, 5) == []


def test_fire_time_before_the_activation_misses_no_deadline() -> None:
    moved = NOW + timedelta(hours=3)
    bench = bench_of(updated_at=moved, schedule_position=moved)

    assert later(bench, 5) == []


@pytest.mark.parametrize(("took_s", "hours"), [(3600, 3), (1800, 3.5), (3 * 3600, 2)])
def test_deadline_is_foretold_once_when_its_run_has_not_started(took_s: float, hours: float) -> None:
    bench = bench_of(state=PipelineState.PAUSED)
    know_durations(bench, took_s)
    assert later(bench, hours - 0.01) == []

    assert later(bench, 0.01) == [FORETOLD]
    bench.elect(4)
    assert later(bench, 0.1) == [FORETOLD]
    assert later(bench, 4 - hours - 0.1) == [FORETOLD, MISSED]


def test_deadline_is_not_foretold_when_its_run_has_started_in_time() -> None:
    bench = bench_of()
    know_durations(bench, 3600)

    assert later(bench, 2) == []
    assert later(bench, 1.9) == []


def test_deadline_is_about_the_last_fire_time_before_it() -> None:
    zone = "Europe/Berlin"
    weekly, nightly = Schedule(cron="0 6 * * 1", timezone=zone), Schedule(cron="0 23 * * *", timezone=zone)
    tuesday = first_after(weekly, time(7), datetime(2026, 3, 2, 12, tzinfo=UTC))

    assert tuesday == datetime(2026, 3, 3, 6, tzinfo=UTC)
    assert fire_of(weekly, time(7), tuesday) is None
    assert fire_of(weekly, time(7), datetime(2026, 3, 2, 6, tzinfo=UTC)) == datetime(
        2026, 3, 2, 5, tzinfo=UTC
    )
    assert fire_of(nightly, time(7), tuesday) == datetime(2026, 3, 2, 22, tzinfo=UTC)


def test_deadlines_follow_the_clock_of_their_zone() -> None:
    berlin = Schedule(cron="0 6 * * *", timezone="Europe/Berlin")
    before = datetime(2026, 3, 28, 6, tzinfo=UTC)  # the day before the clocks go forward

    assert last_until(berlin, time(7), before) == before
    assert first_after(berlin, time(7), before) == datetime(2026, 3, 29, 5, tzinfo=UTC)
