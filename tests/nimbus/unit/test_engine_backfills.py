"""Backfills: dates, order, number of parallel runs; effects of failures and takeovers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nimbus.domain.commands import (
    Command,
    ControlBackfill,
    CreateBackfill,
    PausePipeline,
    RemovePipeline,
    StopRun,
)
from nimbus.domain.ids import BackfillId, CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.backfill import (
    Backfill,
    BackfillRequest,
    BackfillState,
    OnFailure,
    Order,
    Reprocess,
)
from nimbus.domain.pipelines.catalog import PipelineState, ReleaseOf, wanted_releases
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    Concurrency,
    ParameterSpec,
    PipelineSpec,
    Priority,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.starts.waits import PipelineWait
from nimbus.engine.decision import BuildRun, Built, PrepareRelease, Refusal
from nimbus.engine.events import ReleasePrepared, RunBuilt
from tests.nimbus import engine_bench
from tests.nimbus.definitions import OnDisk, active, built
from tests.nimbus.engine_bench import Bench

NAME = PipelineName("p")
ID = BackfillId("b1")
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
TASK = TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py")
DAILY = Schedule(cron="0 6 * * *", timezone="UTC")
SPEC = PipelineSpec(name=NAME, schedule=DAILY, tasks=(TASK,))
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def led(spec: PipelineSpec = SPEC, *, cluster_schema: int = 1) -> Bench:
    bench = Bench()
    record = active(spec, schedule_position=NOW, updated_at=NOW)
    worker = replace(next(iter(bench.cluster.world.workers.values())), slots=100)
    bench.cluster.change(schema=cluster_schema, pipelines={NAME: record}, workers={worker.id: worker})
    bench.elect(2)
    return bench


def ask(bench: Bench, command: Command) -> str:
    """The leader's answer to a command."""
    key: CommandId = bench.submit(command)
    bench.decide()
    for effect in tuple(bench.effects):
        if isinstance(effect, PrepareRelease):
            bench.effects.remove(effect)
            spec = OnDisk().definition(effect.release)
            bench.term.apply((ReleasePrepared(effect.release, spec),))
            bench.decide()
    return bench.cluster.world.outcomes[key].code


def create(bench: Bench, days: int = 3, **changes: Any) -> str:
    request = BackfillRequest(first=FIRST, last=FIRST + days * DAY - timedelta(microseconds=1), **changes)
    return ask(bench, CreateBackfill(pipeline=NAME, backfill=ID, request=request))


def backfill(bench: Bench) -> Backfill:
    return bench.cluster.world.backfills[ID]


def runs(bench: Bench) -> list[Run]:
    return sorted(bench.cluster.world.runs.values(), key=lambda run: run.logical_date)


def live(bench: Bench) -> list[str]:
    """Days of the live runs."""
    return [f"{run.logical_date:%m-%d}" for run in runs(bench) if not run.state.is_final]


def end_one(bench: Bench, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    """End the attempt of the oldest open date."""
    attempt = next(key for key, slots in sorted(bench.cluster.world.slots.items()) if slots.end is None)
    bench.claim(attempt)
    bench.end(attempt, outcome)
    bench.decide()


def end_all(bench: Bench) -> None:
    while any(slots.end is None for slots in bench.cluster.world.slots.values()):
        end_one(bench)


def test_backfill_starts_the_next_date_when_one_ends() -> None:
    bench = led()
    assert create(bench, 4, max_parallel=2) == "ok"
    assert live(bench) == ["01-01", "01-02"]

    end_one(bench)
    assert live(bench) == ["01-02", "01-03"]
    end_all(bench)

    done = backfill(bench)
    assert (done.state, done.started, done.succeeded, done.under_way) == (BackfillState.FINISHED, 4, 4, 0)
    assert done.finished_at == bench.clocks.wall


def test_run_of_a_date_has_its_interval_the_pinned_release_and_low_priority() -> None:
    bench = led()
    create(bench, 1)

    (run,) = runs(bench)

    fire = FIRST + timedelta(hours=6)
    assert run.id == "b1-20260101t060000z"
    assert (run.cause, run.backfill, run.priority) == (RunCause.BACKFILL, ID, Priority.LOW)
    assert (run.logical_date, run.data_interval) == (fire, DataInterval(start=fire - DAY, end=fire))
    assert run.release == backfill(bench).release


def test_position_moves_in_the_transaction_that_creates_the_run() -> None:
    bench = led()
    create(bench, 3, max_parallel=3)

    pairs = [
        (write.backfill.position, batch)
        for batch in bench.cluster.commits
        for write in batch
        if type(write).__name__ == "PutBackfill" and write.backfill.position is not None  # type: ignore[union-attr]
    ]
    for position, batch in pairs:
        assert any(type(w).__name__ == "CreateRun" and w.run.logical_date == position for w in batch)  # type: ignore[union-attr]


def test_successor_goes_on_after_the_last_date_that_was_started() -> None:
    bench = led()
    create(bench, 5, max_parallel=2)
    for epoch in (3, 4, 5):
        bench.elect(epoch)
        bench.decide()
        end_one(bench)
    end_all(bench)

    assert [f"{run.logical_date:%d}" for run in runs(bench)] == ["01", "02", "03", "04", "05"]
    assert backfill(bench).state is BackfillState.FINISHED


def test_run_that_ends_before_the_successor_has_read_everything_is_counted() -> None:
    bench = led()
    create(bench, 2)
    (attempt,) = bench.cluster.world.slots
    bench.claim(attempt)
    bench.end(attempt, Outcome.SUCCEEDED)
    bench.term.recover()
    while not bench.term.state.runs.live:
        bench.term.read_on()
    bench.term.decide()

    assert not bench.term.state.is_loaded
    assert backfill(bench).succeeded == 1
    assert len(bench.cluster.world.intervals[NAME].pages) == 1


def test_newest_goes_first_if_asked() -> None:
    bench = led()
    create(bench, 3, order=Order.NEWEST)
    seen = []
    while live(bench):
        seen += live(bench)
        end_one(bench)

    assert seen == ["01-03", "01-02", "01-01"]


@pytest.mark.parametrize(
    ("reprocess", "days"),
    [
        (Reprocess.MISSING, ["01-03"]),
        (Reprocess.FAILED, ["01-02", "01-03"]),
        (Reprocess.ALL, ["01-01", "01-02", "01-03"]),
    ],
)
def test_second_backfill_reprocesses_what_is_asked(reprocess: Reprocess, days: list[str]) -> None:
    bench = led()
    create(bench, 2, on_failure=OnFailure.CONTINUE)
    end_one(bench)
    end_one(bench, Outcome.FAILED)
    assert (backfill(bench).succeeded, backfill(bench).failed) == (1, 1)
    request = BackfillRequest(first=FIRST, last=FIRST + 3 * DAY, reprocess=reprocess, max_parallel=9)

    ask(bench, CreateBackfill(pipeline=NAME, backfill=BackfillId("b2"), request=request))

    assert live(bench) == days
    assert bench.cluster.world.backfills[BackfillId("b2")].skipped == 3 - len(days)


def test_date_is_missing_when_its_only_run_was_stopped_while_it_was_queued() -> None:
    bench = led(replace(SPEC, concurrency=Concurrency(limit=1)))
    create(bench, 3, max_parallel=3, on_failure=OnFailure.CONTINUE)
    ask(bench, StopRun(run_id=RunId("b1-20260102t060000z"), reason="asked"))
    end_one(bench)
    end_one(bench)
    assert live(bench) == []
    request = BackfillRequest(first=FIRST, last=FIRST + 3 * DAY, max_parallel=9)

    ask(bench, CreateBackfill(pipeline=NAME, backfill=BackfillId("b2"), request=request))

    assert live(bench) == ["01-02"]


def test_failure_pauses_the_backfill_and_resume_goes_on_with_the_next_date() -> None:
    bench = led()
    create(bench, 3)
    end_one(bench, Outcome.FAILED)

    paused = backfill(bench)
    assert (paused.state, live(bench)) == (BackfillState.PAUSED, [])
    assert paused.reason == "run b1-20260101t060000z failed"

    assert ask(bench, ControlBackfill(backfill=ID, to=BackfillState.ACTIVE)) == "ok"
    assert live(bench) == ["01-02"]


def test_paused_backfill_starts_nothing_and_its_runs_go_on() -> None:
    bench = led()
    create(bench, 4, max_parallel=2)
    ask(bench, ControlBackfill(backfill=ID, to=BackfillState.PAUSED, reason="maintenance"))
    end_one(bench)

    assert live(bench) == ["01-02"]
    assert backfill(bench).reason == "maintenance"


def test_cancel_stops_queued_runs_and_starts_nothing_more() -> None:
    bench = led(replace(SPEC, concurrency=Concurrency(limit=1)))
    create(bench, 9, max_parallel=3)
    assert [run.state for run in runs(bench)] == [RunState.RUNNING, RunState.QUEUED, RunState.QUEUED]

    assert ask(bench, ControlBackfill(backfill=ID, to=BackfillState.CANCELLED, reason="wrong range")) == "ok"
    end_one(bench)

    over = backfill(bench)
    assert (over.state, over.succeeded, over.stopped, over.started) == (BackfillState.CANCELLED, 1, 2, 3)
    assert ask(bench, ControlBackfill(backfill=ID, to=BackfillState.ACTIVE)) == "backfill_over"


def test_stopped_run_pauses_its_backfill() -> None:
    bench = led()
    create(bench, 2)
    (run,) = runs(bench)
    ask(bench, StopRun(run_id=run.id, reason="no"))

    assert (backfill(bench).state, backfill(bench).stopped) == (BackfillState.PAUSED, 1)


def test_one_run_stands_for_the_whole_range() -> None:
    bench = led()
    create(bench, 30, as_one_run=True)

    (run,) = runs(bench)
    fire = FIRST + timedelta(hours=6)
    assert run.data_interval == DataInterval(start=fire - DAY, end=fire + 29 * DAY)
    end_all(bench)
    assert (backfill(bench).state, backfill(bench).started) == (BackfillState.FINISHED, 1)

    request = BackfillRequest(first=FIRST, last=FIRST + 30 * DAY)
    ask(bench, CreateBackfill(pipeline=NAME, backfill=BackfillId("b2"), request=request))
    assert bench.cluster.world.backfills[BackfillId("b2")].skipped == 30


def test_dates_of_a_pipeline_without_a_schedule_lie_as_far_apart_as_is_said() -> None:
    bench = led(replace(SPEC, schedule=None))
    assert create(bench, 3) == "bad_backfill"
    assert create(bench, 3, every=DAY, max_parallel=9) == "ok"

    assert [run.data_interval for run in runs(bench)] == [
        DataInterval(start=FIRST + (day - 1) * DAY, end=FIRST + day * DAY) for day in range(3)
    ]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"every": DAY}, "bad_backfill"),
        ({"days": -1}, "bad_backfill"),
        ({"max_parallel": 0}, "bad_backfill"),
        ({"max_parallel": 101}, "bad_backfill"),
    ],
)
def test_backfill_that_makes_no_sense_is_refused(changes: dict[str, Any], code: str) -> None:
    assert create(led(), **changes) == code


def test_backfill_makes_no_run_of_a_fire_time_that_has_not_come() -> None:
    bench = led()
    now = bench.clocks.wall
    request = BackfillRequest(first=now - 2 * DAY, last=now + 2 * DAY, max_parallel=9)

    assert ask(bench, CreateBackfill(pipeline=NAME, backfill=ID, request=request)) == "ok"

    assert [run.logical_date for run in runs(bench) if run.logical_date > now] == []
    assert len(runs(bench)) == 2
    assert backfill(bench).request.last == now


def test_backfill_of_the_future_alone_is_refused() -> None:
    bench = led()
    now = bench.clocks.wall
    request = BackfillRequest(first=now + DAY, last=now + 2 * DAY)

    assert ask(bench, CreateBackfill(pipeline=NAME, backfill=ID, request=request)) == "bad_backfill"


@pytest.mark.parametrize("taken", [ID, BackfillId("other")])
def test_backfill_takes_neither_the_id_of_another_pipelines_nor_the_name_of_a_pipeline(
    taken: BackfillId,
) -> None:
    bench = led()
    other = replace(SPEC, name=PipelineName("other"))
    world = bench.cluster.world
    bench.cluster.change(pipelines={**world.pipelines, other.name: active(other, schedule_position=NOW)})
    bench.elect(3)
    assert create(bench) == "ok"

    request = BackfillRequest(first=FIRST, last=FIRST + DAY)
    asked = CreateBackfill(pipeline=other.name, backfill=taken, request=request)

    assert ask(bench, asked) == "backfill_exists"
    assert backfill(bench).pipeline == NAME


def test_backfills_of_the_same_dates_exclude_each_other_and_the_same_id_is_created_once() -> None:
    bench = led()
    assert create(bench) == "ok"
    assert create(bench) == "ok"
    request = BackfillRequest(first=FIRST + DAY, last=FIRST + 2 * DAY)
    other = CreateBackfill(pipeline=NAME, backfill=BackfillId("b2"), request=request)
    assert ask(bench, other) == "backfill_overlaps"
    assert len(bench.cluster.world.backfills) == 1

    ask(bench, ControlBackfill(backfill=ID, to=BackfillState.CANCELLED, reason="x"))
    assert ask(bench, other) == "ok"


def test_backfill_waits_while_its_pipeline_is_paused_and_goes_on_when_it_is_active() -> None:
    bench = led()
    create(bench, 2)
    ask(bench, PausePipeline(pipeline=NAME))
    end_one(bench)
    assert (live(bench), backfill(bench).state) == ([], BackfillState.ACTIVE)

    record = bench.cluster.world.pipelines[NAME]
    bench.cluster.change(pipelines={NAME: replace(record, state=PipelineState.ACTIVE)})
    bench.elect(3)
    bench.decide()
    assert live(bench) == ["01-02"]


def test_change_of_a_pipeline_asks_nothing_about_backfills_that_are_over() -> None:
    bench = led()
    create(bench, 1)
    state = bench.term.state

    state.put_pipeline(state.catalog.pipelines[NAME])
    assert state.work.first("backfill") is not None
    end_all(bench)
    assert backfill(bench).state is BackfillState.FINISHED
    state.put_pipeline(state.catalog.pipelines[NAME])

    assert state.work.first("backfill") is None


def test_pipeline_with_a_backfill_is_not_removed_and_takes_those_that_are_over_along() -> None:
    bench = led()
    create(bench, 1)
    end_all(bench)
    assert backfill(bench).state is BackfillState.FINISHED
    bench.cluster.change(backfills={ID: replace(backfill(bench), state=BackfillState.PAUSED)})
    bench.elect(3)
    assert ask(bench, RemovePipeline(pipeline=NAME)) == "pipeline_in_use"

    ask(bench, ControlBackfill(backfill=ID, to=BackfillState.CANCELLED, reason="x"))
    assert ask(bench, RemovePipeline(pipeline=NAME)) == "ok"
    assert bench.cluster.world.backfills == bench.term.state.catalog.backfills == {}


def test_release_stays_pinned_until_the_backfill_is_over() -> None:
    bench = led()
    create(bench, 2)
    old = backfill(bench).release
    record = bench.cluster.world.pipelines[NAME]
    assert record.pinned == (old,)
    newer = active(replace(SPEC, description="newer"), schedule_position=NOW)
    bench.cluster.change(pipelines={NAME: replace(newer, pinned=record.pinned)})
    bench.elect(3)
    assert ReleaseOf(NAME, old) in wanted_releases(bench.cluster.world.pipelines.values())

    end_all(bench)

    assert {run.release for run in runs(bench)} == {old}
    assert bench.cluster.world.pipelines[NAME].pinned == ()


def test_date_whose_run_cannot_be_made_pauses_the_backfill_and_is_tried_again_when_it_is_resumed() -> None:
    bench = led(replace(SPEC, parameters={"x": ParameterSpec(type="string", required=True)}))
    create(bench, 2)

    assert backfill(bench).state is BackfillState.PAUSED
    assert backfill(bench).reason.startswith("no run for 2026-01-01 06:00Z: ")
    ask(bench, ControlBackfill(backfill=ID, to=BackfillState.ACTIVE))
    assert (backfill(bench).state, backfill(bench).position) == (BackfillState.PAUSED, None)


def test_history_is_asked_for_the_runs_of_an_earlier_backfill_of_the_same_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_history(effect: BuildRun, runs: Mapping[RunId, Run]) -> RunBuilt:
        run = effect.draft.id
        if effect.draft.may_exist and run == f"{ID}-20260102t060000z":
            refusal = Refusal("run_exists", f"run {run} exists already")
            return RunBuilt(effect.key, Built(effect.draft, refusal))
        return built(effect, runs)

    monkeypatch.setattr(engine_bench, "built", with_history)
    bench = led()
    create(bench, 3)
    end_one(bench)

    assert [run.id for run in runs(bench)] == [f"{ID}-20260101t060000z"]
    assert backfill(bench).state is BackfillState.PAUSED
    assert "run b1-20260102t060000z exists already" in backfill(bench).reason

    ask(bench, ControlBackfill(backfill=ID, to=BackfillState.ACTIVE))
    end_one(bench)
    assert [run.id for run in runs(bench)] == [f"{ID}-20260101t060000z", f"{ID}-20260103t060000z"]
    over = backfill(bench)
    assert (over.state, over.succeeded, over.failed) == (BackfillState.FINISHED, 2, 1)


def test_dates_whose_runs_cannot_be_made_count_as_failed_if_the_backfill_is_to_continue() -> None:
    bench = led(replace(SPEC, parameters={"x": ParameterSpec(type="string", required=True)}))
    create(bench, 2, on_failure=OnFailure.CONTINUE)

    assert (backfill(bench).state, backfill(bench).failed) == (BackfillState.FINISHED, 2)


def test_parameters_of_the_backfill_are_those_of_its_runs() -> None:
    bench = led(replace(SPEC, parameters={"x": ParameterSpec(type="string", required=True)}))
    create(bench, 1, parameters={"x": "y"})

    (run,) = runs(bench)
    assert run.parameters == {"x": "y"}


def test_record_of_a_backfill_does_not_grow_with_its_dates() -> None:
    from nimbus import records

    bench = led()
    create(bench, 40, max_parallel=5)
    small = len(records.BACKFILL.encode(backfill(bench)))
    end_all(bench)

    assert backfill(bench).succeeded == 40
    assert abs(len(records.BACKFILL.encode(backfill(bench))) - small) < 64


@pytest.mark.parametrize("downstream_first", [False, True])
def test_backfill_of_a_pipeline_that_waits_is_done_date_by_date_after_the_other(
    downstream_first: bool,
) -> None:
    """`nimbus backfill create --downstream` requests both."""
    mart = PipelineSpec(
        name=PipelineName("mart"),
        schedule=DAILY,
        tasks=(
            TaskSpec(
                name=TaskName("there"),
                kind=TaskKind.WAIT,
                script="",
                waits_for=(PipelineWait(pipeline=NAME),),
            ),
        ),
    )
    bench = led()
    known = bench.cluster.world.pipelines
    bench.cluster.change(pipelines={**known, mart.name: active(mart, schedule_position=NOW, updated_at=NOW)})
    bench.elect(3)
    request = BackfillRequest(first=FIRST, last=FIRST + 2 * DAY, max_parallel=2)
    of_both = [
        CreateBackfill(pipeline=NAME, backfill=ID, request=request),
        CreateBackfill(pipeline=mart.name, backfill=BackfillId("b1-2"), request=request),
    ]
    for command in reversed(of_both) if downstream_first else of_both:
        assert ask(bench, command) == "ok"

    def ended() -> list[tuple[str, str]]:
        return [(run.pipeline, f"{run.logical_date:%m-%d}") for run in runs(bench) if run.state.is_final]

    assert ended() == []
    end_one(bench)
    assert sorted(ended()) == [("mart", "01-01"), ("p", "01-01")]
    end_all(bench)
    assert sorted(ended()) == [("mart", "01-01"), ("mart", "01-02"), ("p", "01-01"), ("p", "01-02")]
    assert {one.state for one in bench.cluster.world.backfills.values()} == {BackfillState.FINISHED}


def test_runs_of_a_backfill_have_the_parameters_of_the_first_schedule_under_their_own() -> None:
    parameters = {name: ParameterSpec(type="string", required=True) for name in ("mode", "region")}
    first = replace(DAILY, name="first", parameters={"mode": "full", "region": "eu"})
    more = (replace(DAILY, name="more", parameters={"mode": "part", "region": "us"}),)
    bench = led(replace(SPEC, schedule=first, more_schedules=more, parameters=parameters))

    assert create(bench, days=1, parameters={"region": "asia"}) == "ok"

    (run,) = bench.cluster.world.runs.values()
    assert run.parameters == {"mode": "full", "region": "asia"}
    (backfill,) = bench.cluster.world.backfills.values()
    assert backfill.schedule == replace(first, parameters={})
