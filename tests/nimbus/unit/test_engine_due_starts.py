"""Starts by data in the engine: which run starts, when, and what it says. See also `test_engine_due`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nimbus.adapters.store import datasets as store
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Accepted, Partitioning, Version, interval_text
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import DataStart, PipelineSpec, Schedule
from nimbus.domain.runs.run import DataCause, Run
from nimbus.domain.starts.due import TRY_AGAIN, Due, RefusedStart
from nimbus.domain.writes import CreateRun, PutDataset
from nimbus.engine.decision import Answer, BuildRun, Decision, NoDecision
from nimbus.engine.rules import due as rule
from nimbus.engine.rules import release_checks
from tests.nimbus.children_stage import NOW, Stage
from tests.nimbus.definitions import active, built
from tests.nimbus.engine_bench import Bench
from tests.nimbus.simulation.mutant import replaced
from tests.nimbus.unit.test_engine_due import changed, due_of, pipeline, publish, stage_of

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
DAILY = replace(pipeline("first", "a"), schedule=Schedule(cron="0 0 * * *", timezone="UTC"))


def hours_changed(stage: Stage, start: datetime, hours: int, number: int) -> None:
    """A version for some hours of dataset `a`."""
    run = RunId(f"run-{number}")
    version = Version(
        partition=interval_text(DataInterval(start, start + hours * HOUR)),
        number=number,
        run=run,
        task=TaskName("t"),
        source=AttemptId(run, TaskName("t"), 1),
        output="o",
        at=NOW,
    )
    name = DatasetName("a")
    before = stage.state.catalog.datasets.get(name)
    known = before or Dataset(name=name, pipeline=PipelineName("p"), partition=Partitioning.INTERVAL)
    write = PutDataset(known.with_version(version, lambda _: False), before)
    stage.state.apply(
        rule.with_due(stage.state, Decision(name="x", writes=(write,)), stage.now), stage.instant()
    )


def asked(stage: Stage, spec: PipelineSpec) -> Answer:
    return rule.start_by_data(stage.state, stage.state.catalog.pipelines[spec.name], stage.now)


def built_now(stage: Stage, answer: Answer) -> None:
    """Build the run that a decision asks for."""
    assert isinstance(answer, Decision)
    (effect,) = answer.effects
    assert isinstance(effect, BuildRun)
    stage.state.apply(answer, stage.instant())
    stage.state.run_built(effect.key, built(effect, {}).built)


def created(answer: Answer) -> Run:
    assert isinstance(answer, Decision)
    (run,) = [write.run for write in answer.writes if isinstance(write, CreateRun)]
    return run


def test_pipelines_that_only_read_a_dataset_are_not_counted() -> None:
    others = [
        replace(spec, reads=(replace(spec.reads[0], starts=False), spec.reads[1]))
        for spec in (pipeline("first", "a", "z"), pipeline("second", "a", "z"))
    ]
    with replaced(release_checks, MAX_CONSUMERS=2):
        assert publish(stage_of(*others), pipeline("third", "a")).about["code"] == "ok"


def test_run_that_was_built_long_before_its_start_is_built_again() -> None:
    spec = replace(pipeline("first", "a"), start=DataStart(settle=2 * HOUR), timeout=HOUR)
    stage = stage_of(spec)
    changed(stage, "a", 1)
    stage.now += 2 * HOUR
    answer = asked(stage, spec)
    changed(stage, "a", 2)  # during the build
    built_now(stage, answer)
    assert isinstance(asked(stage, spec), NoDecision)
    stage.now += 2 * HOUR
    built_now(stage, asked(stage, spec))

    run = created(asked(stage, spec))
    assert run.deadline == stage.now + HOUR
    assert [cause.number for cause in run.causes] == [1, 2]


def test_run_names_what_changed_while_it_was_built() -> None:
    spec = pipeline("first", "a")
    stage = stage_of(spec)
    changed(stage, "a", 1)
    answer = asked(stage, spec)
    changed(stage, "a", 2)
    built_now(stage, answer)

    assert [cause.number for cause in created(asked(stage, spec)).causes] == [1, 2]


def test_second_run_of_a_target_does_not_name_the_causes_of_the_first() -> None:
    stage = stage_of(DAILY)
    day = NOW.replace(hour=0) - 5 * DAY
    hours_changed(stage, day + 2 * DAY, 1, 1)  # stays due, because the day is not complete
    hours_changed(stage, day, 24, 2)
    stage.decide()
    (first,) = stage.state.runs.live.values()
    stage.state.runs.forget(first.id)
    hours_changed(stage, day, 24, 3)
    stage.decide()

    (second,) = stage.state.runs.live.values()
    assert [[cause.number for cause in run.causes] for run in (first, second)] == [[2], [3]]
    assert [cause.number for cause in due_of(stage, "first").causes] == [1]


def test_optional_data_start_a_target_when_its_time_is_over() -> None:
    spec = replace(DAILY, reads=(replace(DAILY.reads[0], optional=True),))
    stage = stage_of(spec)
    midnight = NOW.replace(hour=0)
    hours_changed(stage, midnight + HOUR, 1, 1)

    assert asked(stage, spec) == NoDecision(at=midnight + DAY)
    stage.now = midnight + DAY
    built_now(stage, asked(stage, spec))
    assert created(asked(stage, spec)).logical_date == midnight + DAY


def test_complete_data_of_the_future_start_their_target_at_once() -> None:
    stage = stage_of(DAILY)
    hours_changed(stage, NOW.replace(hour=0), 24, 1)

    built_now(stage, asked(stage, DAILY))
    assert created(asked(stage, DAILY)).logical_date > stage.now


def test_pipeline_that_was_created_again_finds_a_free_number_soon() -> None:
    spec = pipeline("first", "a")
    stage = stage_of(spec)
    changed(stage, "a")
    tried: list[str] = []

    def run_of(_state: Any, _subject: Any, draft: Any) -> Answer:
        tried.append(draft.id)
        if int(draft.id.rpartition("-")[2]) <= 1000:
            raise RefusedError("run_exists", "it exists")
        return NoDecision()

    with replaced(rule, built=run_of):
        while isinstance(answer := asked(stage, spec), Decision):
            stage.state.apply(answer, stage.instant())
    assert len(tried) < 15


def test_change_that_a_clock_ahead_has_dated_waits_no_longer_than_settle() -> None:
    spec = replace(pipeline("first", "a"), start=DataStart(settle=HOUR))
    stage = stage_of(spec)
    stage.now += DAY
    changed(stage, "a")
    stage.now -= DAY  # the next leader's clock
    answer = asked(stage, spec)
    assert isinstance(answer, Decision)
    stage.state.apply(answer, stage.instant())

    assert asked(stage, spec) == NoDecision(at=stage.now + HOUR)
    stage.now += HOUR
    built_now(stage, asked(stage, spec))
    assert created(asked(stage, spec)).pipeline == spec.name


@pytest.mark.parametrize("step", [-DAY, -HOUR, timedelta(seconds=-2)])
def test_run_starts_after_settle_if_the_leader_s_clock_steps_back(step: timedelta) -> None:
    stage = stage_of(replace(pipeline("first", "a"), start=DataStart(settle=HOUR)))
    changed(stage, "a")
    stage.decide()
    stage.now += step
    stage.decide()
    stage.now += HOUR - SECOND
    stage.decide()
    assert not stage.state.runs.live

    stage.now += SECOND
    stage.decide()
    assert len(stage.state.runs.live) == 1


def test_refused_start_is_tried_again_a_minute_later_if_the_leader_s_clock_steps_back() -> None:
    spec = pipeline("first", "a")
    stage = stage_of(spec)
    changed(stage, "a")
    stage.state.catalog.put_due(
        spec.name, replace(due_of(stage, "first"), refused=RefusedStart(why="full", at=stage.now))
    )
    stage.decide()
    stage.now -= HOUR
    stage.decide()
    assert not stage.state.runs.live

    stage.now += TRY_AGAIN
    stage.decide()
    assert len(stage.state.runs.live) == 1


def test_run_starts_once_after_settle_if_the_leader_s_clock_steps_forward() -> None:
    stage = stage_of(replace(pipeline("first", "a"), start=DataStart(settle=HOUR)))
    changed(stage, "a")
    stage.decide()
    stage.now += DAY
    stage.decide()
    (run,) = stage.state.runs.live

    stage.now -= DAY
    stage.decide()
    assert [*stage.state.runs.live] == [run]
    assert not due_of(stage, "first").is_due


def test_target_waits_for_its_end_by_the_clock_that_was_stepped_back() -> None:
    stage = stage_of(replace(DAILY, reads=(replace(DAILY.reads[0], optional=True),)))
    midnight = NOW.replace(hour=0)
    hours_changed(stage, midnight + HOUR, 1, 1)
    stage.decide()
    stage.now -= HOUR
    stage.decide()
    stage.now = midnight + DAY - SECOND
    stage.decide()
    assert not stage.state.runs.live

    stage.now = midnight + DAY
    stage.decide()
    assert len(stage.state.runs.live) == 1


def leader_with_change() -> Bench:
    """A leader that reads a change of now, of a pipeline that starts a day after its last change."""
    bench = Bench()
    spec = replace(pipeline("first", "a"), start=DataStart(settle=DAY))
    cause = DataCause(dataset=DatasetName("a"), partition="", number=1, run=RunId("run-1"), at=NOW)
    bench.cluster.change(
        pipelines={spec.name: active(spec, schedule_position=NOW, updated_at=NOW)},
        due={spec.name: Due(pipeline=spec.name, start=DataStart(settle=DAY)).with_change(cause, ())},
    )
    bench.elect(2)
    return bench


def changed_at(bench: Bench) -> datetime | None:
    return bench.cluster.world.due[PipelineName("first")].changed_at


def test_leader_does_not_rest_if_its_clock_has_stepped_back_since_it_decided() -> None:
    bench = leader_with_change()
    bench.decide()
    bench.clocks.wall -= HOUR
    assert bench.term.has_more()

    bench.term.decide()
    assert changed_at(bench) == NOW - HOUR
    assert not bench.term.has_more()


def test_leader_notes_a_step_back_from_the_time_of_its_last_decision() -> None:
    bench = leader_with_change()
    bench.clocks.wall = NOW - DAY
    bench.term.decide_next()  # the record of its term
    bench.clocks.wall = NOW
    while bench.term.decide_next():
        pass
    bench.clocks.wall = NOW - HOUR
    bench.term.decide()
    assert changed_at(bench) == NOW - HOUR


def test_unreadable_record_starts_nothing_and_the_next_activation_replaces_it() -> None:
    spec = pipeline("first", "a")
    stage = stage_of(spec)
    stage.state.catalog.put_due(spec.name, store.due_for_leader("first", b"x", "/due"))
    changed(stage, "a")
    assert not due_of(stage, "first").is_due

    publish(stage, spec)
    (put,) = [write for one in stage.done for write in one.writes if hasattr(write, "due")]
    assert put.before is not None  # so it sets the node, which exists
    assert due_of(stage, "first").reads == spec.reads


def test_key_from_outside_is_no_interval() -> None:
    accepted = Accepted(dataset=DatasetName("a"), partition=Partitioning.KEY)

    assert accepted.fault_of("2026-01-01") == ""
    assert "by key" in accepted.fault_of("20260101T000000Z_20260102T000000Z")
