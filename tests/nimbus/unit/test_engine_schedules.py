"""Fire times: data intervals of their runs, catch-up within a window, and the list of skipped ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.domain.commands import RewindSchedule, StartRun
from nimbus.domain.ids import PipelineName, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import CatchUp, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run
from nimbus.engine.decision import BuildRun
from nimbus.engine.report import standing
from nimbus.engine.rules.schedules import MAX_AT_ONCE, MISFIRE_GRACE
from nimbus.engine.state import State
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import Bench
from tests.nimbus.unit.test_engine_concurrency import decide_all, submit

NAME = PipelineName("p")
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURLY = Schedule(cron="0 * * * *", timezone="UTC", catchup=CatchUp.ALL)
DATES = "{{ data_interval_start }}/{{ data_interval_end }}/{{ tz }}"


def bench_of(
    schedule: Schedule | None,
    *args: str,
    position: datetime = NOW,
    cluster_schema: int = 2,
    interval_files: tuple[str, ...] = (),
) -> Bench:
    task = TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py", args=args)
    bench = Bench()
    record = active(
        PipelineSpec(name=NAME, schedule=schedule, tasks=(task,), interval_files=interval_files),
        schedule_position=position,
        updated_at=NOW,
    )
    bench.cluster.change(schema=cluster_schema, pipelines={NAME: record})
    bench.clocks.wall = position
    bench.elect(2)
    return bench


def runs_at(bench: Bench, now: datetime) -> list[Run]:
    """All runs, after the leader has read the clock."""
    bench.clocks.pass_s((now - bench.clocks.wall).total_seconds())
    bench.elect(bench.term.state.epoch + 1)  # as a successor, which finds the missed fire times
    bench.decide()
    return sorted(bench.cluster.world.runs.values(), key=lambda run: run.logical_date)


def skipped(bench: Bench) -> list[tuple[str, str, int, str]]:
    listed = bench.cluster.world.pipelines[NAME].skips.listed
    return [(f"{s.first:%dT%H}", f"{s.last:%dT%H}", s.count, s.reason) for s in listed]


@pytest.mark.parametrize(
    ("position", "start", "end"),
    [
        (datetime(2026, 3, 28, 12, tzinfo=UTC), "2026-03-28T06:00:00+01:00", "2026-03-29T06:00:00+02:00"),
        (datetime(2026, 10, 24, 12, tzinfo=UTC), "2026-10-24T06:00:00+02:00", "2026-10-25T06:00:00+01:00"),
    ],
    ids=["23 hours", "25 hours"],
)
def test_scheduled_run_has_the_interval_since_the_fire_time_before_in_its_schedules_zone(
    position: datetime, start: str, end: str
) -> None:
    bench = bench_of(Schedule(cron="0 6 * * *", timezone="Europe/Berlin"), DATES, position=position)

    (run,) = runs_at(bench, position + timedelta(hours=20))

    assert run.data_interval is not None
    assert (run.data_interval.start.isoformat(), run.data_interval.end.isoformat()) == (start, end)
    assert (run.logical_date, run.timezone) == (run.data_interval.end, "Europe/Berlin")
    args = run.tasks[TaskName("a")].spec.args
    assert args == (f"{start.replace('T', ' ')}/{end.replace('T', ' ')}/Europe/Berlin",)


def test_interval_starts_at_the_fire_time_before_though_that_was_skipped() -> None:
    bench = bench_of(replace(HOURLY, catchup=CatchUp.LATEST))

    (run,) = runs_at(bench, NOW + 5 * HOUR)

    assert run.data_interval == DataInterval(start=NOW + 4 * HOUR, end=NOW + 5 * HOUR)


def test_run_by_hand_has_the_interval_that_it_is_given_in_its_pipelines_zone() -> None:
    bench = bench_of(Schedule(cron="0 6 * * *", timezone="Europe/Berlin"), DATES)
    given = DataInterval(start=NOW - timedelta(days=9), end=NOW - timedelta(days=2))
    bench.submit(StartRun(pipeline=NAME, run_id=RunId("p-1"), data_interval=given))

    bench.decide()

    run = bench.run()
    assert run.data_interval == given
    assert run.logical_date == given.end
    assert run.tasks[TaskName("a")].spec.args == (
        "2026-02-20 13:00:00+01:00/2026-02-27 13:00:00+01:00/Europe/Berlin",
    )


def test_run_by_hand_without_an_interval_is_refused_with_a_hint_if_a_template_names_it() -> None:
    bench = bench_of(HOURLY, DATES)
    key = bench.submit(StartRun(pipeline=NAME, run_id=RunId("p-1")))

    bench.decide()

    outcome = bench.cluster.world.outcomes[key]
    assert (outcome.accepted, outcome.code) == (False, "template")
    assert "task a, argument 1" in outcome.message
    assert "--data-interval FROM TO" in outcome.message


def test_run_by_hand_without_an_interval_is_refused_with_a_hint_if_a_sql_file_names_it() -> None:
    bench = bench_of(HOURLY, interval_files=("a.sql",))
    refused = bench.submit(StartRun(pipeline=NAME, run_id=RunId("p-1")))
    bench.decide()
    given = DataInterval(start=NOW - HOUR, end=NOW)
    accepted = bench.submit(StartRun(pipeline=NAME, run_id=RunId("p-2"), data_interval=given))
    bench.decide()

    outcomes = bench.cluster.world.outcomes
    assert (outcomes[refused].accepted, outcomes[accepted].accepted) == (False, True)
    assert outcomes[refused].message.startswith("a.sql needs a data interval: ")
    assert "--data-interval FROM TO" in outcomes[refused].message


@pytest.mark.parametrize(
    ("catchup", "started", "listed"),
    [
        (CatchUp.NONE, [], [("01T13", "01T17", 5, "missed, and catchup is none")]),
        (CatchUp.LATEST, [17], [("01T13", "01T16", 4, "missed, and catchup is latest")]),
        (CatchUp.ALL, [13, 14, 15, 16, 17], []),
    ],
)
def test_fire_times_that_catch_up_leaves_out_are_counted_and_listed(
    catchup: CatchUp, started: list[int], listed: list[tuple[str, str, int, str]]
) -> None:
    bench = bench_of(replace(HOURLY, catchup=catchup))

    runs = runs_at(bench, NOW + 5.5 * HOUR)

    assert [run.logical_date.hour for run in runs] == started
    assert skipped(bench) == listed
    skips = bench.cluster.world.pipelines[NAME].skips
    assert skips.total == 5 - len(started)
    counted = bench.registry.get_sample_value("nimbus_schedule_skipped_fires_total", {"pipeline": NAME})
    assert (counted or 0) == skips.total


@pytest.mark.parametrize(
    ("catchup", "started", "listed"),
    [
        (CatchUp.ALL, [15, 16, 17], [("01T13", "01T14", 2, "missed, and older than catchup_window")]),
        (
            CatchUp.LATEST,
            [17],
            [
                ("01T13", "01T14", 2, "missed, and older than catchup_window"),
                ("01T15", "01T16", 2, "missed, and catchup is latest"),
            ],
        ),
    ],
)
def test_fire_times_older_than_the_window_are_skipped(
    catchup: CatchUp, started: list[int], listed: list[tuple[str, str, int, str]]
) -> None:
    bench = bench_of(replace(HOURLY, catchup=catchup, catchup_window=3 * HOUR))

    runs = runs_at(bench, NOW + 5.5 * HOUR)

    assert [run.logical_date.hour for run in runs] == started
    assert skipped(bench) == listed


def test_latest_fire_time_is_skipped_if_it_is_older_than_the_window() -> None:
    daily = Schedule(cron="0 6 * * *", timezone="UTC", catchup_window=HOUR)
    bench = bench_of(daily)

    assert runs_at(bench, NOW + timedelta(hours=20)) == []
    assert skipped(bench) == [("02T06", "02T06", 1, "missed, and older than catchup_window")]


def test_short_window_skips_nothing_that_is_seen_within_the_grace_of_a_takeover() -> None:
    bench = bench_of(replace(HOURLY, catchup_window=timedelta(seconds=1)))

    assert len(runs_at(bench, NOW + HOUR + MISFIRE_GRACE)) == 1


def test_window_that_begins_before_all_dates_skips_nothing() -> None:
    bench = bench_of(replace(HOURLY, catchup_window=timedelta(days=999_999)))

    assert len(runs_at(bench, NOW + 2 * HOUR)) == 2


def test_many_skipped_fire_times_make_one_entry() -> None:
    bench = bench_of(replace(HOURLY, catchup=CatchUp.LATEST))

    runs_at(bench, NOW + 2.5 * MAX_AT_ONCE * HOUR)

    ((_, _, count, _),) = skipped(bench)
    assert count == 2.5 * MAX_AT_ONCE - 1


def test_fire_time_that_is_refused_is_listed_with_the_reason() -> None:
    bench = bench_of(HOURLY, "{{ params.nothing }}")

    assert runs_at(bench, NOW + 2 * HOUR) == []

    found = skipped(bench)
    assert [(first, last, count) for first, last, count, _ in found] == [("01T13", "01T14", 2)]
    assert found[0][3].startswith("refused: task a, argument 1")


def test_fire_time_whose_run_is_there_already_is_listed() -> None:
    bench = bench_of(HOURLY)
    bench.submit(StartRun(pipeline=NAME, run_id=RunId("p-20260301t130000z")))
    bench.decide()

    runs_at(bench, NOW + HOUR)

    assert skipped(bench) == [("01T13", "01T13", 1, "run p-20260301t130000z exists already")]


def rewound(bench: Bench) -> tuple[bool, str]:
    """The answer to a command that sets the position back."""
    asked = bench.submit(RewindSchedule(pipeline=NAME, reason="clock of s1"))
    bench.decide()
    found = bench.cluster.world.outcomes[asked]
    return found.accepted, found.message


def test_schedule_that_a_clock_has_moved_ahead_goes_on_from_now_when_it_is_set_back() -> None:
    bench = bench_of(HOURLY, position=NOW)
    bench.cluster.change(
        pipelines={NAME: replace(bench.cluster.world.pipelines[NAME], schedule_position=NOW + 72 * HOUR)}
    )
    assert runs_at(bench, NOW + HOUR) == [], "it is silent"

    answers = rewound(bench), rewound(bench)

    assert [accepted for accepted, _ in answers] == [True, True]
    assert "back from 2026-03-04 12:00:00Z: clock of s1" in answers[0][1]
    assert "nothing to set back" in answers[1][1]
    assert [f"{run.logical_date:%dT%H}" for run in runs_at(bench, NOW + 2 * HOUR)] == ["01T14"]


def test_fire_time_that_may_have_been_run_early_asks_history_before_it_runs() -> None:
    ahead = active(PipelineSpec(name=NAME, schedule=HOURLY, tasks=()), schedule_position=NOW + 2 * HOUR)
    state = State(epoch=1, schema=1)
    state.put_pipeline(ahead)
    state.finish_loading()
    submit(state, RewindSchedule(pipeline=NAME, reason="clock of s1"))
    decide_all(state, NOW)

    decisions = decide_all(state, NOW + 3 * HOUR)

    drafts = [effect.draft for one in decisions for effect in one.effects if isinstance(effect, BuildRun)]
    assert [(f"{one.logical_date:%H}", one.may_exist) for one in drafts] == [
        ("13", True),
        ("14", True),
        ("15", False),
    ]


def test_position_that_is_ahead_counts_as_lag() -> None:
    record = active(PipelineSpec(name=NAME, schedule=HOURLY, tasks=()), schedule_position=NOW + 72 * HOUR)
    state = State(epoch=1, schema=1)
    state.put_pipeline(record)
    state.finish_loading()

    assert standing(state, NOW + HOUR).schedule_lag_s == 71 * 3600
