"""Datasets in the engine: who may publish. Their laws: `tests/nimbus/property/test_datasets.py`."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import cast

from nimbus import run_record
from nimbus.adapters.store.transaction import LARGEST_BATCH
from nimbus.domain.commands import PublishRelease
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning, Publication, Read, Version
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.lifecycle import begin, conclude_waiting
from nimbus.domain.runs.run import Places, Run, RunCause
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.writes import PutDataset
from nimbus.engine.decision import Decision, FindVersions, NoDecision
from nimbus.engine.history_lookups import found_versions
from nimbus.engine.rules.reads import pin_reads
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant, Key
from nimbus.ports import History
from tests.nimbus.children_stage import LOAD, NOW, Stage
from tests.nimbus.definitions import digest_of


def publishing(name: str, dataset: str) -> PipelineSpec:
    (task, *others) = LOAD.tasks
    task = replace(task, publishes=(Publication(dataset=DatasetName(dataset)),))
    return replace(LOAD, name=PipelineName(name), tasks=(task, *others))


def answered(there: PipelineSpec, new: PipelineSpec, *known: Dataset) -> Decision:
    stage = Stage(there)
    stage.state.catalog.datasets |= {one.name: one for one in known}
    release = ReleaseOf(new.name, digest_of(new))
    stage.state.commands.releases.under_way.add(release)
    stage.state.commands.release_prepared(release, new)
    stage.ask(PublishRelease(pipeline=new.name, digest=release.digest))
    return stage.done[-1]


def test_second_pipeline_that_publishes_a_dataset_is_refused() -> None:
    refused = answered(publishing("first", "orders"), publishing("second", "orders"))

    assert refused.about["code"] == "dataset_taken"
    assert "dataset orders is published by pipeline first" in refused.about["message"]


def test_pipeline_may_publish_its_own_dataset_again_and_another_one() -> None:
    first = publishing("first", "orders")

    assert answered(first, publishing("first", "orders")).name != "command_refused"
    assert answered(first, publishing("second", "others")).name != "command_refused"


def test_release_that_divides_a_dataset_in_another_way_is_refused() -> None:
    first = publishing("first", "regions")
    refused = answered(first, first, regions("eu"))

    assert refused.about["code"] == "dataset_repartitioned"
    assert (
        "is published with `partition: key`, and its versions cannot be read as `whole`"
        in (refused.about["message"])
    )


KEY = Read(name="region", dataset=DatasetName("regions"), key="eu")


def reading() -> Run:
    """A run whose one task reads a key."""
    task = TaskSpec(name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py", uses=("region",))
    spec = PipelineSpec(name=PipelineName("p"), reads=(KEY,), tasks=(task,))
    draft = Draft(
        id=RunId("r"),
        pipeline=spec.name,
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        cause=RunCause.MANUAL,
        asked_at=NOW,
    )
    return begin(new_run(spec, draft), NOW)


def regions(*keys: str) -> Dataset:
    found = Dataset(name=KEY.dataset, pipeline=PipelineName("q"), partition=Partitioning.KEY)
    for number, key in enumerate(keys, 1):
        source = AttemptId(RunId(f"q{number}"), TaskName("t"), 1)
        version = Version(
            partition=key, number=number, run=source.run, task=source.task, source=source, output=key, at=NOW
        )
        found = found.with_version(version, bool)
    return found


class Leader:
    """The state of a leader with that run, and its rule about what the task reads."""

    def __init__(self) -> None:
        self.state = State(epoch=1, schema=1)
        self.state.finish_loading()
        self.state.runs.put(reading(), Instant(NOW, 0.0))

    def publish(self, *keys: str) -> None:
        before = self.state.catalog.datasets.get(KEY.dataset)
        write = PutDataset(regions(*keys), before)
        self.state.apply(Decision(name="published", writes=(write,)), Instant(NOW, 0.0))

    def decide(self, task: str = "t") -> Decision | NoDecision:
        answer = pin_reads(self.state, RunId("r"), TaskName(task), NOW)
        assert isinstance(answer, Decision | NoDecision)
        if isinstance(answer, Decision):
            self.state.apply(answer, Instant(NOW, 0.0))
        return answer

    def look_up(self, asked: Decision | NoDecision) -> None:
        assert isinstance(asked, Decision)
        (effect,) = asked.effects
        assert isinstance(effect, FindVersions)
        found = found_versions(effect.asked, cast(History, None), lambda _read: ())
        self.state.tasks.versions_found(RunId("r"), TaskName("t"), found)

    @property
    def is_asked(self) -> bool:
        return self.state.work.first("pins") is not None


def test_key_that_is_not_published_is_looked_up_again_after_each_publication_alone() -> None:
    leader = Leader()
    assert isinstance(leader.decide(), NoDecision)  # nothing at all is published
    leader.publish("us")
    leader.look_up(leader.decide())
    assert isinstance(leader.decide(), NoDecision)
    assert isinstance(leader.decide(), NoDecision)

    leader.publish("us", "eu")
    leader.look_up(leader.decide())
    leader.decide()

    assert [one.run for one in leader.state.runs.live[RunId("r")].pins["region"]] == ["q2"]


def test_publication_during_a_look_up_is_not_missed() -> None:
    leader = Leader()
    leader.publish("us")
    under_way = leader.decide()
    leader.publish("us", "eu")
    assert isinstance(leader.decide(), NoDecision)
    leader.look_up(under_way)

    assert leader.is_asked
    leader.look_up(leader.decide())
    leader.decide()

    assert leader.state.runs.live[RunId("r")].pins.keys() == {"region"}


def test_look_up_that_failed_is_repeated_after_a_pause() -> None:
    leader = Leader()
    leader.publish("eu")
    leader.decide()
    leader.state.tasks.finding_failed(RunId("r"), TaskName("t"), 5.0)
    leader.state.work.done(Key("pins", RunId("r"), TaskName("t")))

    leader.state.wake(Instant(NOW, 4.9))
    assert not leader.is_asked
    leader.state.wake(Instant(NOW, 5.1))
    assert leader.is_asked


def test_what_its_own_pipeline_publishes_is_pinned_only_while_the_run_has_its_place() -> None:
    leader = Leader()
    leader.publish("eu")
    before = leader.state.runs.live[RunId("r")]
    (task,) = before.tasks.in_order()
    own = Publication(dataset=KEY.dataset, partition=Partitioning.KEY, key="eu")
    tasks = Tasks([replace(task, spec=replace(task.spec, publishes=(own,)))])
    leader.state.runs.put(replace(before, tasks=tasks, holds=Places.NONE), Instant(NOW, 0.0))
    assert isinstance(leader.decide(), NoDecision)

    leader.state.runs.put(replace(before, tasks=tasks, holds=Places.ALL), Instant(NOW, 0.0))
    assert isinstance(leader.decide(), Decision)


def test_task_that_reads_data_of_others_and_of_its_own_pipeline_pins_one_after_the_other() -> None:
    leader = Leader()
    leader.publish("eu")
    before = leader.state.runs.live[RunId("r")]
    (task,) = before.tasks.in_order()
    state = Read(name="state", dataset=DatasetName("state"), optional=True)
    spec = replace(
        task.spec, uses=("region", "state"), publishes=(Publication(dataset=DatasetName("state")),)
    )
    run = replace(before, tasks=Tasks([replace(task, spec=spec)]), reads=(KEY, state), holds=Places.ALL)
    leader.state.runs.put(run, Instant(NOW, 0.0))

    for _ in range(2):
        leader.look_up(leader.decide())
        leader.decide()

    assert leader.state.runs.live[RunId("r")].pins.keys() == {"region", "state"}


def test_large_reads_are_pinned_in_several_transactions_that_zookeeper_accepts() -> None:
    leader = Leader()
    before = leader.state.runs.live[RunId("r")]
    (task,) = before.tasks.in_order()
    names = [f"parts{number}" for number in range(3)]
    reads = tuple(Read(name=name, dataset=DatasetName("part"), optional=True) for name in names)
    spec, random = replace(task.spec, uses=tuple(names)), Random(1)
    run = replace(before, tasks=Tasks([replace(task, spec=spec)]), reads=reads, holds=Places.ALL)
    leader.state.runs.put(run, Instant(NOW, 0.0))
    (one,) = regions("eu").versions
    parts = tuple(replace(one, item=random.randbytes(240).hex()) for _ in range(1000))
    assert isinstance(leader.decide(), Decision)
    leader.state.tasks.versions_found(RunId("r"), TaskName("t"), dict.fromkeys(names, parts))

    sizes = []
    for _ in reads:
        last = leader.state.runs.live[RunId("r")]
        leader.decide()
        now = leader.state.runs.live[RunId("r")]
        sizes.append(sum(len(encode()) for encode in run_record.changes(now, last).values()))

    assert len(now.pins) == len(reads)
    assert max(sizes) < LARGEST_BATCH


def two_readers() -> Leader:
    """A leader with a run of two ready tasks, which read the same."""
    leader = Leader()
    leader.publish("us")
    before = leader.state.runs.live[RunId("r")]
    (task,) = before.tasks.in_order()
    other = replace(task, spec=replace(task.spec, name=TaskName("u")))
    leader.state.runs.forget(before.id)
    leader.state.runs.put(replace(before, tasks=Tasks([task, other])), Instant(NOW, 0.0))
    return leader


def test_tasks_of_a_run_that_read_the_same_share_a_look_up() -> None:
    leader = two_readers()
    under_way = leader.decide()
    assert isinstance(under_way, Decision)
    assert isinstance(leader.decide("u"), NoDecision)
    leader.look_up(under_way)
    assert isinstance(leader.decide(), NoDecision)  # the key is not there
    assert isinstance(leader.decide("u"), NoDecision)

    leader.publish("us", "eu")
    assert isinstance(leader.decide("u"), NoDecision)
    leader.look_up(leader.decide())
    leader.decide()

    assert leader.state.runs.live[RunId("r")].pins.keys() == {"region"}


def test_another_task_looks_up_when_the_first_one_has_ended() -> None:
    leader = two_readers()
    leader.look_up(leader.decide())
    leader.state.work.done(Key("pins", RunId("r"), TaskName("u")))
    run = leader.state.runs.live[RunId("r")]
    skipped = conclude_waiting(run, TaskName("t"), TaskState.SKIPPED, NOW)
    leader.state.runs.put(skipped, Instant(NOW, 0.0))

    assert leader.is_asked
    assert isinstance(leader.decide("u"), Decision)
