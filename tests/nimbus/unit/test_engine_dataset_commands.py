"""Commands about datasets, in the engine. Leaders that die: `tests/nimbus/property/test_command_kills.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from nimbus.adapters.store.datasets import CODEC
from nimbus.domain.cluster.access import AccessDeniedError, AccessRole, Principal, PrincipalSource
from nimbus.domain.commands import Command, PublishDataset, QueuedCommand, RemoveDataset, WithdrawDataset
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import (
    NO_SOURCE,
    Accepted,
    Change,
    OutsideData,
    Partitioning,
    Publication,
    Read,
    Version,
    earlier,
)
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import AttemptId, CommandId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import DataStart
from nimbus.domain.runs.purge import Purged, Said
from nimbus.domain.runs.run import RunPart, RunState
from nimbus.domain.runs.run_number import next_number
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.due import Due
from nimbus.domain.writes import ConsumeCommand, PutDataset, PutDue, RemoveDatasetRecord
from nimbus.engine.decision import Decision, Refusal, StoreVersions
from nimbus.engine.history_lookups import stored_and_found
from nimbus.engine.rules.commands.checks import check_access
from nimbus.engine.rules.release_checks import check_release
from nimbus.engine.state import State
from nimbus.ports import History
from tests.nimbus.children_stage import CHILD, LOAD, NOW, Stage

LANDING = DatasetName("landing")
TEN = "2026-03-01T10:00:00Z_2026-03-01T11:00:00Z"


def accepting(partition: Partitioning = Partitioning.WHOLE, **more: Any) -> Stage:
    """A leader with a pipeline whose dataset comes from outside."""
    return Stage(replace(LOAD, accepts=(Accepted(dataset=LANDING, partition=partition, **more),)))


def publish(stage: Stage, uri: str = "s3://in/1", **more: Any) -> Decision:
    stage.ask(PublishDataset(dataset=LANDING, uri=uri, **more))
    return stage.done[-1]


def kept(stage: Stage) -> Dataset:
    return stage.state.catalog.datasets[LANDING]


def stored(stage: Stage) -> list[str]:
    """Answer the effect that stores versions in history; return the URIs of these."""
    (effect,) = stage.done[-1].effects
    assert isinstance(effect, StoreVersions)
    stage.state.commands.stored_for(effect.command, effect.versions)
    stage.decide()
    return [version.outside.uri for version in effect.versions if version.outside is not None]


def test_version_from_outside_is_published_with_the_end_of_its_command() -> None:
    stage = accepting(Partitioning.INTERVAL)
    done = publish(stage, partition=TEN, sha256="a" * 64, value={"rows": 3})

    assert [type(write) for write in done.writes] == [PutDataset, ConsumeCommand]
    (version,) = kept(stage).versions
    assert version.outside == OutsideData(uri="s3://in/1", sha256="a" * 64, value={"rows": 3})
    assert version.change == Change(command=CommandId(done.about["command"]), by="")
    assert (version.run, version.output, version.at) == ("", None, NOW)
    assert kept(stage).pipeline == CHILD
    assert done.about["message"] == f"version {version.number} of landing of {TEN} is published"


def test_version_without_a_digest_is_called_unverified() -> None:
    assert publish(accepting()).about["message"].endswith("is published, unverified: without a digest")


def test_numbers_of_versions_and_of_runs_have_the_order_of_their_decisions() -> None:
    stage = accepting()
    stage.start("before", CHILD)
    publish(stage)
    stage.start("after", CHILD)

    live, (version,) = stage.state.runs.live, kept(stage).versions
    assert live[RunId("before")].number < version.number < live[RunId("after")].number


def test_number_is_not_used_twice_when_the_reply_to_its_transaction_is_lost() -> None:
    stage = accepting()
    publish(stage)
    again = State(epoch=stage.state.epoch, schema=1)
    again.keep_from(stage.state)
    assert again.runs.newest_number == kept(stage).versions[0].number


def test_next_command_first_stores_the_version_before_in_history() -> None:
    stage = accepting()
    publish(stage, "s3://in/1")
    assert publish(stage, "s3://in/2").name == "versions_storing_started"
    assert [one.outside and one.outside.uri for one in kept(stage).versions] == ["s3://in/1"]

    assert stored(stage) == ["s3://in/1"]
    assert [one.outside and one.outside.uri for one in kept(stage).versions] == ["s3://in/2"]
    assert kept(stage).unstored == kept(stage).versions


def test_record_that_must_keep_its_versions_refuses_more_than_it_has_room_for() -> None:
    stage = accepting(Partitioning.KEY)
    stage.start("slow", CHILD)
    run = stage.run("slow")
    (task,) = run.tasks.values()
    keyed = Publication(dataset=LANDING, partition=Partitioning.KEY, key="{{ not rendered }}")
    tasks = Tasks([replace(task, spec=replace(task.spec, publishes=(keyed,)))])
    stage.state.runs.put(replace(run, tasks=tasks), stage.instant())

    def more(key: str) -> str:
        done = publish(stage, "s3://in/" + "x" * 2000, partition=key)
        if done.name == "versions_storing_started":
            stored(stage)
        return str(stage.done[-1].about.get("code"))

    codes = [more(f"key-{number}") for number in range(150)]

    assert len(kept(stage).versions) == codes.index("dataset_full") == codes.count("ok")
    assert 50 < codes.count("ok") < 100
    assert "run slow may still publish an older one" in stage.done[-1].about["message"]
    assert len(CODEC.encode(kept(stage))) < 400_000
    stage.end(stage.run("slow"), Outcome.FAILED)
    assert more("another") == "ok"


def test_refusal_of_storage_is_that_of_the_command() -> None:
    stage = accepting()
    publish(stage)
    (effect,) = publish(stage).effects
    assert isinstance(effect, StoreVersions)
    stage.state.commands.stored_for(effect.command, Refusal("internal", "broken"))
    stage.decide()

    assert (stage.done[-1].about["code"], stage.done[-1].about["message"]) == ("internal", "broken")


@pytest.mark.parametrize(
    ("partition", "named", "why"),
    [
        (Partitioning.WHOLE, "eu", "it is not divided: name no interval and no key"),
        (Partitioning.INTERVAL, "", "it is by interval: name the interval"),
        (Partitioning.KEY, "", "it is by key: name the key"),
        (Partitioning.KEY, TEN, "it is by key: name the key"),
    ],
)
def test_partition_of_another_kind_is_refused(partition: Partitioning, named: str, why: str) -> None:
    refused = publish(accepting(partition), partition=named).about

    assert (refused["code"], refused["message"]) == ("bad_partition", f"dataset landing: {why}.")


def test_dataset_that_no_active_release_takes_from_outside_is_refused() -> None:
    refused = publish(Stage(LOAD)).about

    assert refused["code"] == "not_from_outside"
    assert "add `datasets: {landing: {outside: true}}` to the pipeline that owns it" in refused["message"]


def test_dataset_that_is_published_with_another_division_is_refused() -> None:
    stage = accepting()
    stage.state.catalog.datasets[LANDING] = Dataset(
        name=LANDING, pipeline=PipelineName("load"), partition=Partitioning.KEY, published=1
    )

    assert publish(stage).about["code"] == "dataset_repartitioned"


class Past:
    """History, as far as withdrawals ask it. Outputs of runs in `purged` are deleted."""

    def __init__(self, *versions: Version, purged: str = "") -> None:
        self._versions, self._purged = list(versions), purged

    def store_versions(self, dataset: DatasetName, versions: Iterable[Version]) -> None:
        assert dataset == LANDING
        self._versions += versions

    def versions(self, dataset: DatasetName, limit: int, partition: str) -> tuple[Version, ...]:
        return tuple(one for one in self._versions if one.partition == partition)

    def purged(self, run: RunId) -> Purged | None:
        said = Said(at=NOW, by="ann", why="space")
        gone = Purged(run=run, pipeline=CHILD, created_at=NOW, parts={RunPart.OUTPUTS: said})
        return gone if run == self._purged else None


def made(run: str, number: int) -> Version:
    source = AttemptId(RunId(run), TaskName("x"), 1)
    return Version(
        partition="", number=number, run=source.run, task=source.task, source=source, output=run, at=NOW
    )


def withdraw(stage: Stage, past: Past, **more: Any) -> Mapping[str, str]:
    """Withdraw the newest version, with that history; return what the command was told."""
    stage.ask(WithdrawDataset(dataset=LANDING, partition="", reason="half a file", **more))
    while (effects := stage.done[-1].effects) and isinstance(effects[0], StoreVersions):
        answer: tuple[Version, ...] | Refusal
        try:
            answer = stored_and_found(effects[0], cast(History, past))
        except RefusedError as exc:
            answer = Refusal(exc.code, str(exc))
        stage.state.commands.stored_for(effects[0].command, answer)
        stage.decide()
    return stage.done[-1].about


def three(stage: Stage, *versions: Version) -> None:
    stage.state.catalog.datasets[LANDING] = Dataset(
        name=LANDING, pipeline=CHILD, partition=Partitioning.WHOLE, published=3, versions=versions
    )


def test_withdrawal_publishes_the_content_before_as_a_new_version() -> None:
    stage, newest = Stage(LOAD), made("r3", 3)
    three(stage, newest)
    told = withdraw(stage, Past(made("r1", 1), made("r2", 2), newest))

    (again,) = kept(stage).versions
    assert told["message"] == "version 3 of landing is withdrawn: that of run r2 is published again"
    assert (again.run, again.output, again.number > 3, kept(stage).published) == ("r2", "r2", True, 4)
    assert again.change is not None
    assert (again.change.reason, again.change.withdrew, again.change.restored) == ("half a file", 3, 2)


def test_content_that_was_withdrawn_does_not_come_back() -> None:
    stage, newest = Stage(LOAD), made("r3", 3)
    three(stage, newest)
    past = Past(made("r1", 1), made("r2", 2), newest)
    withdraw(stage, past)
    withdraw(stage, past)
    assert kept(stage).versions[0].run == "r1"

    assert withdraw(stage, past)["code"] == "nothing_before"
    assert kept(stage).versions[0].run == "r1"


@pytest.mark.parametrize("same", [{"outside": OutsideData(uri="s3://in/1", value={"rows": 1})}, {}])
def test_withdrawal_does_not_publish_the_same_data_again(same: dict[str, OutsideData]) -> None:
    """A sender has published them twice, or a rerun has reused the task that made them."""
    stage, source = Stage(LOAD), made("r2", 2).source
    twice = [replace(made(f"r{number}", number), source=source, **same) for number in (2, 3)]
    past = Past(made("r1", 1), *twice, made("r4", 4))
    three(stage, made("r4", 4))
    withdraw(stage, past)
    assert kept(stage).versions[0].run == "r3"

    withdraw(stage, past)
    assert kept(stage).versions[0].run == "r1"


def test_data_that_are_published_after_their_withdrawal_can_come_back() -> None:
    """A sender has mended the file at its URI."""
    first = replace(made("r2", 2), source=NO_SOURCE, outside=OutsideData(uri="s3://in/1"))
    withdrawal = replace(
        made("r1", 3), change=Change(command=CommandId("cmd-1"), by="ann", withdrew=2, restored=1)
    )
    again, newest = replace(first, run=RunId("r4"), number=4), made("r5", 5)

    fitting = earlier(newest, [made("r1", 1), first, withdrawal, again, newest])
    assert [one.number for one in fitting] == [4, 1]


def test_version_whose_outputs_are_deleted_is_passed_over() -> None:
    stage, newest = Stage(LOAD), made("r3", 3)
    three(stage, newest)
    withdraw(stage, Past(made("r1", 1), made("r2", 2), newest, purged="r2"))

    assert kept(stage).versions[0].run == "r1"


def test_withdrawal_of_another_version_than_the_newest_does_nothing() -> None:
    stage, newest = Stage(LOAD), made("r3", 3)
    three(stage, newest)

    assert withdraw(stage, Past(made("r1", 1), newest), number=1)["code"] == "changed"
    assert kept(stage).versions == (newest,)


def test_withdrawal_looks_again_when_a_version_came_meanwhile() -> None:
    stage = Stage(LOAD)
    three(stage, made("r3", 3))
    stage.ask(WithdrawDataset(dataset=LANDING, partition="", reason="half a file"))
    (effect,) = stage.done[-1].effects
    assert isinstance(effect, StoreVersions)
    three(stage, made("r4", 4))
    stage.state.commands.stored_for(effect.command, (made("r3", 3), made("r2", 2)))
    stage.decide()

    (effect,) = stage.done[-1].effects
    assert isinstance(effect, StoreVersions)
    assert [one.run for one in effect.known] == ["r4"]
    assert kept(stage).versions == (made("r4", 4),)


def test_dataset_without_a_version_is_not_withdrawn() -> None:
    assert withdraw(Stage(LOAD), Past())["code"] == "unknown_dataset"


@pytest.mark.parametrize(
    ("who", "publishes", "withdraws"),
    [("erp", "ok", "not_owner"), ("else", "not_owner", "not_owner"), ("data", "ok", "ok")],
)
def test_owner_and_named_senders_publish_and_only_the_owner_withdraws(
    who: str, publishes: str, withdraws: str
) -> None:
    stage = accepting()
    accepted = Accepted(dataset=LANDING, partition=Partitioning.WHOLE, senders=("erp",))
    stage.put(replace(LOAD, accepts=(accepted,)), owner="data")
    three(stage, made("r3", 3))
    asks = Principal(name="ada", role=AccessRole.AUTHOR, source=PrincipalSource.FILE, teams=(who,))
    commands: list[Command] = [
        PublishDataset(dataset=LANDING, uri="s3://in/1"),
        WithdrawDataset(dataset=LANDING, partition="", reason="wrong"),
    ]
    codes = []
    for number, command in enumerate(commands):
        queued = QueuedCommand(
            id=CommandId(f"cmd-9{number}"), command=command, submitted_at=NOW, asked_by=asks
        )
        try:
            check_access(stage.state, queued, NOW)
            codes.append("ok")
        except AccessDeniedError as exc:
            codes.append(exc.code)
    assert codes == [publishes, withdraws]


def remove(stage: Stage, **history: Any) -> Mapping[str, str]:
    stage.ask(RemoveDataset(dataset=LANDING, reason="replaced"))
    if effects := stage.done[-1].effects:
        (effect,) = effects
        assert isinstance(effect, StoreVersions)
        assert effect.dataset == LANDING
        assert effect.removes == next_number(stage.state.epoch, stage.state.runs.newest_number)
        stage.state.commands.stored_for(effect.command, history.get("answer"))
        stage.decide()
    return stage.done[-1].about


def test_dataset_that_nobody_names_is_removed_after_its_history() -> None:
    stage = Stage(LOAD)
    three(stage, made("r3", 3))

    said = "dataset landing is removed; outputs of its runs stay until they are purged"
    assert remove(stage)["message"] == said
    assert LANDING not in stage.state.catalog.datasets
    assert [type(write) for write in stage.done[-1].writes] == [RemoveDatasetRecord, ConsumeCommand]
    assert remove(stage)["code"] == "unknown_dataset"


def test_dataset_stays_when_its_history_cannot_be_removed() -> None:
    stage = Stage(LOAD)
    three(stage, made("r3", 3))

    assert remove(stage, answer=Refusal("internal", "broken"))["code"] == "internal"
    assert LANDING in stage.state.catalog.datasets


def test_dataset_in_use_is_not_removed_and_its_users_are_named() -> None:
    stage = accepting()
    three(stage, made("r3", 3))
    stage.put(replace(LOAD, name=PipelineName("report"), reads=(Read(name="in", dataset=LANDING),)))
    refused = remove(stage)

    assert refused["code"] == "dataset_in_use"
    assert refused["message"] == "dataset landing: pipeline load publishes it, pipeline report reads it."


@pytest.mark.parametrize("publisher", [CHILD, PipelineName("other")])
def test_dataset_that_a_live_run_may_publish_is_not_removed(publisher: PipelineName) -> None:
    task = replace(LOAD.tasks[0], publishes=(Publication(dataset=LANDING),))
    stage = Stage(replace(LOAD, tasks=(task,)))
    stage.start("old", CHILD)
    stage.put(LOAD)
    three(stage, made("r3", 3))
    stage.state.catalog.datasets[LANDING] = replace(kept(stage), pipeline=publisher)

    assert remove(stage)["message"] == "dataset landing: run old publishes it."


def test_dataset_is_not_removed_while_a_run_is_stored_in_history_that_has_published_it() -> None:
    (first, *others) = LOAD.tasks
    task = replace(first, publishes=(Publication(dataset=LANDING),))
    stage = Stage(replace(LOAD, tasks=(task, replace(first, name=TaskName("last")), *others)))
    stage.start("old", CHILD)
    run = stage.run("old")
    tasks = run.tasks.replaced([replace(run.tasks[task.name], state=TaskState.SUCCEEDED)])
    stage.state.runs.put(replace(run, tasks=tasks), stage.instant())
    stage.put(LOAD)
    three(stage, made("old", 3))
    assert remove(stage)["message"] == "dataset landing: run old publishes it."

    ended = replace(run, tasks=tasks, state=RunState.SUCCEEDED, finished_at=NOW)
    stage.state.runs.put(ended, stage.instant())
    stage.decide()
    said = "run old has published it, and is removed runs.keep_finished after its end"
    assert said in remove(stage)["message"]


def test_no_release_and_no_run_begins_to_use_a_dataset_that_is_being_removed() -> None:
    task = replace(LOAD.tasks[0], publishes=(Publication(dataset=LANDING),))
    publisher = replace(LOAD, tasks=(task,))
    reader = replace(LOAD, name=PipelineName("report"), reads=(Read(name="in", dataset=LANDING),))
    stage = Stage(LOAD)
    three(stage, made("r3", 3))
    stage.ask(RemoveDataset(dataset=LANDING, reason="replaced"))
    (effect,) = stage.done[-1].effects
    assert isinstance(effect, StoreVersions) and effect.removes
    assert [type(write) for write in stage.done[-2].writes] == [PutDataset]

    for spec in (publisher, reader):
        with pytest.raises(RefusedError, match="dataset landing is being removed"):
            check_release(stage.state, spec, None)
    stage.put(publisher)  # as an inactive pipeline of which somebody starts an old release
    stage.start("old", CHILD)
    assert stage.done[-1].about["code"] == "dataset_removing"
    stage.put(reader)
    stage.start("late", reader.name)
    assert stage.done[-1].about["code"] == "dataset_removing"

    stage.state.commands.stored_for(effect.command, None)
    stage.decide()
    assert LANDING not in stage.state.catalog.datasets
    check_release(stage.state, publisher, None)


def test_removal_goes_on_under_the_next_leader_and_after_a_failure_of_storage() -> None:
    stage = Stage(LOAD)
    three(stage, made("r3", 3))
    assert remove(stage, answer=Refusal("internal", "broken"))["code"] == "internal"
    assert kept(stage).removing

    queued = QueuedCommand(
        id=CommandId("cmd-90"), command=RemoveDataset(dataset=LANDING, reason="again"), submitted_at=NOW
    )
    successor = Stage(LOAD)
    successor.state.catalog.datasets[LANDING] = kept(stage)
    successor.state.commands.put(queued)
    successor.decide()
    (effect,) = successor.done[-1].effects
    assert effect == StoreVersions(queued.id, LANDING, (), removes=next_number(3, 3))
    successor.state.commands.stored_for(queued.id, None)
    successor.decide()
    assert LANDING not in successor.state.catalog.datasets


def test_version_from_outside_makes_its_consumers_due_in_the_same_transaction() -> None:
    stage = accepting()
    reads = (Read(name="in", dataset=LANDING, starts=True),)
    consumer = Due(pipeline=PipelineName("report"), start=DataStart(), reads=reads)
    stage.state.catalog.put_due(consumer.pipeline, consumer)

    done = publish(stage)

    assert [type(write) for write in done.writes] == [PutDataset, ConsumeCommand, PutDue]
    due = stage.state.catalog.due[consumer.pipeline]
    assert due.changed == (LANDING,)
    assert [cause.number for cause in due.causes] == [kept(stage).versions[0].number]
