"""`take: new` in the engine, case by case. Its laws: `tests/nimbus/property/test_take_new.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from nimbus.api.explain.data import DatasetView, why_it_reads
from nimbus.definition.targets import due_targets
from nimbus.domain.data import reads
from nimbus.domain.data.datasets import Dataset, Taken
from nimbus.domain.data.publications import Accepted, OutsideData, Partitioning, Publication, Read, Version
from nimbus.domain.data.reads import Partitions
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.catalog import profile_of
from nimbus.domain.pipelines.pipeline import (
    Concurrency,
    DataStart,
    PipelineSpec,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs.purge import Purged
from nimbus.domain.runs.run import Run, RunPart, RunState
from nimbus.domain.runs.run_number import next_number
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.starts.due import consumer_of
from nimbus.domain.writes import CreatePipeline, RemovePipelineRecord
from nimbus.engine.decision import Decision
from nimbus.engine.history_lookups import versions_for
from nimbus.engine.rules import datasets, due
from nimbus.engine.rules.release_checks import check_consumers
from nimbus.ports import History
from tests.nimbus.children_stage import NOW, Stage
from tests.nimbus.definitions import active
from tests.nimbus.simulation.mutant import replaced

FEED = DatasetName("feed")
TASK = TaskSpec(name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py", uses=("feed",))
READER = PipelineSpec(
    name=PipelineName("reader"),
    start=DataStart(),
    concurrency=Concurrency(limit=1),
    tasks=(TASK,),
    reads=(Read(name="feed", dataset=FEED, new=True, starts=True),),
)


def publish(stage: Stage, *partitions: str) -> None:
    """Publish versions from outside, one after the other."""
    for partition in partitions:
        number = next_number(stage.state.epoch, stage.state.runs.newest_number)
        version = Version(
            partition=partition, number=number, sequence=number, at=NOW, outside=OutsideData(uri="s3://x/y")
        )
        accepted = Accepted(dataset=FEED, partition=Partitioning.KEY)
        put = datasets.with_version(stage.state, accepted, version, PipelineName("feeding"))
        noted = due.with_due(stage.state, Decision(name="published", writes=(put,)), NOW)
        stage.state.apply(noted, stage.instant())
        stage.done.append(noted)


def stage_of(spec: PipelineSpec = READER) -> Stage:
    stage = Stage(spec)
    stage.state.catalog.put_due(spec.name, consumer_of(spec, None))
    return stage


def pinned(run: Run) -> list[str]:
    return [one.partition for one in run.pins["feed"]]


def runs(stage: Stage) -> list[Run]:
    return sorted(stage._written().values(), key=lambda run: run.number)


def test_run_that_data_start_reads_what_came_until_it_pins_and_no_empty_run_follows() -> None:
    stage = stage_of()
    publish(stage, "a", "b")
    publish(stage, "b", "c")
    stage.decide()
    (run,) = runs(stage)
    stage.end(run)

    assert pinned(run) == ["a", "b", "c"]
    assert [one.id for one in runs(stage)] == [run.id]
    publish(stage, "c")
    stage.decide()
    assert [pinned(one) for one in runs(stage)[1:]] == [["c"]]


def test_publication_between_creation_and_pinning_starts_no_other_run() -> None:
    stage = Stage(READER, slots=100, max_running=1)
    stage.state.catalog.put_due(READER.name, consumer_of(READER, None))
    stage.put(
        replace(READER, name=PipelineName("other"), start=None, reads=(), tasks=(replace(TASK, uses=()),))
    )
    stage.start("busy", PipelineName("other"))
    publish(stage, "a")
    stage.decide()
    publish(stage, "b")
    stage.decide()
    assert stage.state.catalog.due[READER.name].is_due

    stage.end(stage.run("busy"))

    (run,) = (one for one in runs(stage) if one.pipeline == READER.name)
    assert pinned(run) == ["a", "b"]
    assert not stage.state.catalog.due[READER.name].is_due


def test_run_by_hand_with_nothing_new_reads_nothing_and_does_not_wait() -> None:
    stage = stage_of(replace(READER, start=None))
    stage.start("r", READER.name)

    assert stage.run("r").pins == {"feed": ()}
    assert stage.run("r").open_attempts()


def test_more_than_a_read_may_have_is_left_for_the_next_run() -> None:
    stage = stage_of()
    with replaced(reads, MAX_PINNED=2):
        publish(stage, *"cbabd")
        for _ in range(3):
            stage.decide()
            for run in list(stage.state.runs.live.values()):
                stage.end(run)

    assert [pinned(run) for run in runs(stage)] == [["a", "c"], ["b", "d"]]
    assert runs(stage)[1].causes


def test_large_versions_are_left_for_the_next_run() -> None:
    stage = stage_of()
    with replaced(reads, MAX_CARRIED=50):
        publish(stage, *"abc")
        stage.decide()

    assert [pinned(run) for run in runs(stage)] == [["a", "b"]]


def test_what_is_published_during_the_look_up_waits_for_the_next_run() -> None:
    """`early` is not in history before its run ends, and reading `late` would set the position behind it."""
    stage = stage_of()
    publish(stage, "here", "early", "late")
    here, early, late = stage.state.catalog.datasets[FEED].versions
    old = replace(here, partition="old", sequence=here.sequence - 1)
    before = Dataset(
        name=FEED,
        pipeline=PipelineName("feeding"),
        partition=Partitioning.KEY,
        published=2,
        versions=(here,),
        dropped=old.sequence,
    )
    history = cast(History, SimpleNamespace(newer_versions=lambda _name, _sequence: iter([old, late])))

    found = versions_for(READER.reads[0], Partitions(since=1), before, history)

    assert [one.partition for one in found] == ["here", "old"]
    assert early.sequence < late.sequence


@pytest.mark.parametrize("part", [RunPart.OUTPUTS, RunPart.LOGS])
def test_what_retention_has_deleted_is_not_new(part: RunPart) -> None:
    """The leader's record has its version still."""
    made = Version(
        partition="old",
        number=1,
        sequence=1,
        run=RunId("r"),
        task=TASK.name,
        source=AttemptId(RunId("r"), TASK.name, 1),
        output="r/t/1",
        at=NOW,
        keep=timedelta(days=1),
    )
    known = Dataset(
        name=FEED, pipeline=PipelineName("q"), partition=Partitioning.KEY, published=1, versions=(made,)
    )
    gone = Purged(run=made.run, pipeline=known.pipeline, created_at=NOW).with_parts([part], "deleted")
    history = cast(History, SimpleNamespace(purged=lambda _run: gone))

    found = versions_for(READER.reads[0], Partitions(since=0), known, history)

    assert found == (() if part is RunPart.OUTPUTS else (made,))


def test_failed_run_leaves_all_to_the_next_one_which_only_a_change_starts() -> None:
    stage = stage_of()
    publish(stage, "a")
    stage.decide()
    stage.end(runs(stage)[0], Outcome.FAILED)
    assert len(runs(stage)) == 1

    publish(stage, "b")
    stage.decide()

    assert pinned(runs(stage)[1]) == ["a", "b"]


def test_what_only_a_failed_task_has_read_stays_new_although_its_run_succeeds() -> None:
    stage = stage_of(replace(READER, start=None, tasks=(replace(TASK, allow_failure=True),)))
    publish(stage, "a")
    stage.start("r", READER.name)
    stage.end(stage.run("r"), Outcome.FAILED)

    assert pinned(stage.run("r")) == ["a"]
    assert stage.run("r").state is RunState.SUCCEEDED
    assert not stage.state.catalog.datasets[FEED].taken


def test_slow_run_that_publishes_after_a_newer_one_is_new() -> None:
    """Its number is smaller, and its version has a larger sequence."""
    feed = PipelineSpec(
        name=PipelineName("feeding"),
        tasks=(
            replace(
                TASK,
                uses=(),
                publishes=(Publication(dataset=FEED, partition=Partitioning.KEY, key="{{ run.id }}"),),
            ),
        ),
    )
    stage = stage_of()
    stage.put(feed)
    for name in ("slow", "fast"):
        stage.start(name, feed.name)
    for name in ("fast", "slow"):
        stage.end(stage.run(name))
        for run in [one for one in runs(stage) if one.pipeline == READER.name]:
            stage.end(run) if run.open_attempts() else None

    assert [pinned(run) for run in runs(stage) if run.pipeline == READER.name] == [["fast"], ["slow"]]
    found = stage.state.catalog.datasets[FEED].versions
    assert [one.partition for one in found] == ["fast", "slow"]
    assert found[0].sequence < found[1].sequence
    assert found[0].number > found[1].number


def test_removed_pipeline_begins_again() -> None:
    stage = stage_of()
    publish(stage, "a")
    stage.decide()
    stage.end(runs(stage)[0])
    assert stage.state.catalog.datasets[FEED].taken.keys() == {READER.name}

    record = stage.state.catalog.pipelines[READER.name]
    assert record.profile == profile_of(READER)
    removed = datasets.with_datasets(stage.state, Decision(name="x", writes=(RemovePipelineRecord(record),)))
    stage.state.apply(removed, stage.instant())

    assert not stage.state.catalog.datasets[FEED].taken


def test_pipeline_begins_again_if_the_last_release_of_a_removed_namesake_did_not_read() -> None:
    stage = stage_of()
    publish(stage, "a")
    stage.decide()
    stage.end(runs(stage)[0])
    record = stage.state.catalog.pipelines[READER.name]
    other = replace(record, profile=profile_of(replace(READER, reads=())))
    for write in (RemovePipelineRecord(other), CreatePipeline(record)):
        stage.state.apply(
            datasets.with_datasets(stage.state, Decision(name="x", writes=(write,))), stage.instant()
        )

    assert not stage.state.catalog.datasets[FEED].taken


def test_positions_of_removed_pipelines_do_not_stay() -> None:
    stage = stage_of()
    publish(stage, "a")
    known = stage.state.catalog.datasets[FEED]
    gone = {PipelineName(f"p{number}"): Taken(sequence=1, run=RunId("r")) for number in range(100)}
    stage.state.catalog.datasets[FEED] = replace(known, taken=gone)
    check_consumers(stage.state, READER)
    stage.decide()
    stage.end(runs(stage)[0])

    assert stage.state.catalog.datasets[FEED].taken.keys() == {READER.name}


def test_pipeline_that_would_be_one_too_many_to_read_what_is_new_is_refused() -> None:
    stage = stage_of()
    names = [PipelineName(f"p{number}") for number in range(99)]
    taken = {name: Taken(sequence=1, run=RunId("r")) for name in [READER.name, *names]}
    known = Dataset(name=FEED, pipeline=PipelineName("q"), partition=Partitioning.WHOLE, taken=taken)
    stage.state.catalog.datasets[FEED] = known
    for name in names:
        stage.put(replace(READER, name=name))
    check_consumers(stage.state, READER)

    with pytest.raises(RefusedError, match="100 pipelines read what is new in dataset feed"):
        check_consumers(stage.state, replace(READER, name=PipelineName("one_more")))


def test_run_that_another_one_of_its_pipeline_keeps_waiting_says_so() -> None:
    """An older release had another limit, perhaps."""
    stage = stage_of(replace(READER, start=None, concurrency=None))
    publish(stage, "a")
    stage.start("first", READER.name)
    stage.start("second", READER.name)
    first, second = stage.run("first"), stage.run("second")

    assert not second.pins
    why = why_it_reads(
        second, second.tasks[TASK.name], lambda _name: DatasetView(None), lambda: (first, second)
    )
    assert why == "waits for the end of run first, which reads what is new"
    stage.end(first)
    assert stage.run("second").pins == {"feed": ()}


def test_scheduled_target_that_reads_what_is_new_starts_when_its_time_is_over() -> None:
    daily = Schedule(cron="@daily", timezone="UTC")
    stage = stage_of(replace(READER, schedule=daily))
    stage.state.catalog.put(active(READER))
    publish(stage, "a")

    due_now = stage.state.catalog.due[READER.name]
    (found,) = due_targets(due_now, stage.state.catalog.datasets, (), NOW)

    assert found.left is not None
    assert found.target is not None
    assert found.target.end == NOW.replace(hour=0)
