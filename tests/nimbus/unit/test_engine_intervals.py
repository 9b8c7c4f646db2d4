"""The index of intervals changes in the transaction that ends a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nimbus.domain import writes as w
from nimbus.domain.commands import RemovePipeline, StartRun, StopRun
from nimbus.domain.ids import PipelineName, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import CatchUp, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import Bench

NAME = PipelineName("p")
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASK = TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py")
SPEC = PipelineSpec(
    name=NAME, schedule=Schedule(cron="0 * * * *", timezone="UTC", catchup=CatchUp.ALL), tasks=(TASK,)
)


def fired(hours: int, *, cluster_schema: int = 1) -> Bench:
    """A leader that has just started the runs of some fire times."""
    bench = Bench()
    record = active(SPEC, schedule_position=NOW, updated_at=NOW)
    bench.cluster.change(schema=cluster_schema, pipelines={NAME: record})
    bench.clocks.wall = NOW + hours * HOUR
    bench.elect(2)
    bench.decide()
    return bench


def end_open(bench: Bench, outcome: Outcome) -> None:
    for attempt, slots in tuple(bench.cluster.world.slots.items()):
        if slots.end is None:
            bench.claim(attempt)
            bench.end(attempt, outcome)
    bench.decide()


def outcomes(bench: Bench) -> dict[int, str]:
    """The outcome of each hour in the index."""
    index = bench.cluster.world.intervals[NAME]
    hours = range(10)
    found = {
        hour: index.last(DataInterval(start=NOW + hour * HOUR, end=NOW + (hour + 1) * HOUR)) for hour in hours
    }
    return {hour: f"{one.outcome} {one.run}" for hour, one in found.items() if one is not None}


def test_end_of_a_run_is_in_the_index_in_the_same_transaction() -> None:
    bench = fired(1)
    (run,) = bench.cluster.world.runs

    end_open(bench, Outcome.SUCCEEDED)

    assert outcomes(bench) == {0: f"succeeded {run}"}
    (batch,) = [
        batch for batch in bench.cluster.commits if any(isinstance(one, w.PutIntervals) for one in batch)
    ]
    assert any(isinstance(one, w.PutRun) and one.run.state.is_final for one in batch)


def test_successor_goes_on_with_the_index_and_knows_from_when_on_it_is_complete() -> None:
    bench = fired(2)
    end_open(bench, Outcome.SUCCEEDED)
    bench.elect(3)
    _, second = sorted(bench.cluster.world.runs)
    bench.submit(StopRun(run_id=second, reason="enough"))
    bench.decide()
    end_open(bench, Outcome.STOPPED)

    index = bench.cluster.world.intervals[NAME]
    assert index == bench.term.state.catalog.intervals[NAME]
    assert index.begins == bench.clocks.wall
    assert len(outcomes(bench)) == 2


def test_index_leaves_with_its_pipeline() -> None:
    bench = fired(1)
    end_open(bench, Outcome.SUCCEEDED)

    bench.submit(RemovePipeline(pipeline=NAME))
    bench.decide()

    assert bench.cluster.world.pipelines == {}
    assert bench.cluster.world.intervals == bench.term.state.catalog.intervals == {}


def test_run_that_leaves_tasks_out_says_nothing_of_its_interval() -> None:
    bench = fired(0)
    two = replace(SPEC, tasks=(TASK, replace(TASK, name=TaskName("b"))))
    bench.cluster.change(pipelines={NAME: active(two, schedule_position=NOW, updated_at=NOW)})
    bench.elect(3)
    interval = DataInterval(start=NOW, end=NOW + HOUR)
    for run, selection in (
        ("part", Selection(scope=Scope.ONLY, tasks=(TASK.name,))),
        ("whole", Selection(scope=Scope.UPTO, tasks=(TASK.name, TaskName("b")))),
    ):
        bench.submit(
            StartRun(pipeline=NAME, run_id=RunId(run), data_interval=interval, selection=selection), by="ann"
        )
        bench.decide()
        end_open(bench, Outcome.SUCCEEDED)
        assert bench.cluster.world.runs[RunId(run)].state is RunState.SUCCEEDED
        assert (NAME in bench.cluster.world.intervals) is (run == "whole")

    assert outcomes(bench) == {0: "succeeded whole"}
