"""Starts by data in the engine: who may start by which data. Their laws: `property/test_due.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from nimbus.domain.commands import ActivatePipeline, PublishRelease
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning, Publication, Read, Version
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import DataStart, PipelineSpec, Schedule, StartWhen
from nimbus.domain.runs.run import RunCause
from nimbus.domain.starts import due as domain
from nimbus.domain.starts.due import Due, consumer_of
from nimbus.domain.writes import PutDataset
from nimbus.engine.decision import Decision
from nimbus.engine.rules import due as rule
from tests.nimbus.children_stage import LOAD, NOW, Stage
from tests.nimbus.definitions import digest_of
from tests.nimbus.simulation.mutant import replaced


def pipeline(name: str, *reads: str, publishes: str = "", **start: StartWhen) -> PipelineSpec:
    """A pipeline that starts by what it reads."""
    (task, *_) = LOAD.tasks
    published = (Publication(dataset=DatasetName(publishes)),) if publishes else ()
    return replace(
        LOAD,
        name=PipelineName(name),
        tasks=(replace(task, uses=reads, publishes=published),),
        reads=tuple(Read(name=read, dataset=DatasetName(read), starts=True) for read in reads),
        start=DataStart(**start) if reads else None,
    )


def stage_of(*specs: PipelineSpec) -> Stage:
    stage = Stage(*specs)
    for spec in specs:
        stage.state.catalog.put_due(spec.name, consumer_of(spec, None))
    return stage


def publish(stage: Stage, spec: PipelineSpec) -> Decision:
    release = ReleaseOf(spec.name, digest_of(spec))
    stage.state.commands.releases.under_way.add(release)
    stage.state.commands.release_prepared(release, spec)
    stage.ask(PublishRelease(pipeline=spec.name, digest=release.digest, activate=True))
    return next(one for one in reversed(stage.done) if one.name.startswith("command"))


def changed(stage: Stage, name: str, number: int = 1) -> None:
    """A new version of a dataset."""
    run = RunId(f"run-{number}")
    version = Version(
        partition="",
        number=number,
        run=run,
        task=TaskName("t"),
        source=AttemptId(run, TaskName("t"), 1),
        output="o",
        at=NOW,
    )
    before = stage.state.catalog.datasets.get(DatasetName(name))
    known = before or Dataset(
        name=DatasetName(name), pipeline=PipelineName("p"), partition=Partitioning.WHOLE
    )
    after = known.with_version(version, lambda _: False)
    noted = rule.with_due(stage.state, Decision(name="x", writes=(PutDataset(after, before),)), stage.now)
    stage.state.apply(noted, stage.instant())


def due_of(stage: Stage, name: str) -> Due:
    return stage.state.catalog.due[PipelineName(name)]


def test_cycle_of_data_and_child_runs_is_refused_with_its_path() -> None:
    stage = stage_of(pipeline("first", "c", publishes="a"), pipeline("second", "a", publishes="b"))
    refused = publish(stage, pipeline("third", "b", publishes="c"))

    assert refused.about["code"] == "pipeline_cycle"
    assert (
        "third publishes c, which starts first publishes a, which starts second publishes b, "
        "which starts third"
    ) in refused.about["message"]
    assert publish(stage, pipeline("third", "b", publishes="d")).about["code"] == "ok"


def test_consumers_of_a_dataset_are_limited() -> None:
    stage = stage_of(pipeline("first", "a"), pipeline("second", "a"))
    from nimbus.engine.rules import release_checks

    with replaced(release_checks, MAX_CONSUMERS=2):
        assert publish(stage, pipeline("third", "a")).about["code"] == "too_many_consumers"
        assert publish(stage, pipeline("second", "a")).about["code"] == "ok"


def test_consumers_of_all_datasets_of_a_task_are_limited_together() -> None:
    loader = pipeline("load", publishes="a")
    (task,) = loader.tasks
    both = tuple(Publication(dataset=DatasetName(name)) for name in ("a", "b"))
    together = replace(loader, tasks=(replace(task, publishes=both),))
    apart = replace(
        loader,
        tasks=tuple(replace(task, name=TaskName(one.dataset), publishes=(one,), needs=()) for one in both),
    )
    stage = stage_of(pipeline("first", "a"), pipeline("second", "b"))
    from nimbus.engine.rules import release_checks

    with replaced(release_checks, MAX_CONSUMERS=2):
        assert publish(stage, apart).about["code"] == "ok"
        assert publish(stage, pipeline("third", "a")).about["code"] == "ok"
        refused = publish(stage, together)
        assert refused.about["code"] == "too_many_consumers"
        assert "a task that publishes a, b would start more than 2" in refused.about["message"]

    stage = stage_of(pipeline("first", "a"), pipeline("second", "b"))
    with replaced(release_checks, MAX_CONSUMERS=2):
        assert publish(stage, together).about["code"] == "ok"
        assert publish(stage, pipeline("third", "b")).about["code"] == "too_many_consumers"
        assert publish(stage, pipeline("second", "a", "b")).about["code"] == "ok"


def test_new_consumer_has_nothing_due_and_one_that_stops_to_be_one_is_forgotten() -> None:
    stage = stage_of()
    changed(stage, "a")
    publish(stage, pipeline("first", "a"))

    assert due_of(stage, "first").changed == ()

    other = replace(LOAD, name=PipelineName("first"))
    publish(stage, other)
    assert stage.state.catalog.due == {}


def test_all_waits_for_a_change_of_each_dataset() -> None:
    stage = stage_of(spec := pipeline("first", "a", "b", when=StartWhen.ALL))
    record = stage.state.catalog.pipelines[spec.name]
    changed(stage, "a")
    changed(stage, "a", 2)
    assert not isinstance(rule.start_by_data(stage.state, record, stage.now), Decision)

    changed(stage, "b")
    assert isinstance(rule.start_by_data(stage.state, record, stage.now), Decision)


def test_run_says_its_causes_and_the_next_one_only_what_changed_since() -> None:
    stage = stage_of(pipeline("first", "a"))
    changed(stage, "a", 1)
    changed(stage, "a", 2)
    stage.decide()

    (run,) = (run for run in stage.state.runs.live.values() if run.cause is RunCause.DATA)
    assert [(cause.dataset, cause.number) for cause in run.causes] == [("a", 1), ("a", 2)]
    assert due_of(stage, "first").causes == ()


def test_older_version_starts_nothing() -> None:
    stage = stage_of(pipeline("first", "a"))
    changed(stage, "a", 2)
    stage.state.catalog.put_due(PipelineName("first"), due_of(stage, "first").dropped())
    changed(stage, "a", 1)

    assert not due_of(stage, "first").is_due


def test_settle_waits_until_nothing_has_changed_for_a_while() -> None:
    spec = pipeline("first", "a")
    stage = stage_of(replace(spec, start=DataStart(settle=timedelta(minutes=10))))
    record = stage.state.catalog.pipelines[spec.name]
    changed(stage, "a")

    early = rule.start_by_data(stage.state, record, stage.now + timedelta(minutes=9))
    assert not isinstance(early, Decision)
    assert early.at == stage.now + timedelta(minutes=10)
    assert isinstance(rule.start_by_data(stage.state, record, stage.now + timedelta(minutes=10)), Decision)


def test_activation_keeps_what_is_due_unless_it_is_dropped() -> None:
    spec = pipeline("first", "a")
    stage = stage_of(spec)
    stage.state.catalog.quarantined = {spec.name: "test"}
    changed(stage, "a")
    release = ReleaseOf(spec.name, digest_of(spec))
    for drop, left in ((False, (DatasetName("a"),)), (True, ())):
        stage.state.commands.releases.under_way.add(release)
        stage.state.commands.release_prepared(release, spec)
        stage.ask(ActivatePipeline(pipeline=spec.name, digest=release.digest, drop_due=drop))
        assert due_of(stage, "first").changed == left


def test_list_of_causes_is_bounded() -> None:
    stage = stage_of(spec := pipeline("first", "a"))
    stage.state.catalog.quarantined = {spec.name: "test"}
    for number in range(1, domain.MAX_CAUSES + 6):
        changed(stage, "a", number)

    due = due_of(stage, "first")
    assert (len(due.causes), due.more_causes, due.causes[-1].number) == (domain.MAX_CAUSES, 5, 25)


def test_schedule_after_starts_by_data_catches_nothing_up() -> None:
    times = Schedule(cron="@daily", timezone="UTC")
    spec = replace(pipeline("first", "a"), schedule=times)
    stage = stage_of(spec)
    stage.now += timedelta(days=9)
    publish(stage, replace(spec, start=None))

    position = stage.state.catalog.pipelines[spec.name].schedule_position
    assert position == stage.now
