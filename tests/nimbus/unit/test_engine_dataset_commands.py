"""Commands about datasets, in the engine. Leaders that die: `tests/nimbus/property/test_command_kills.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nimbus.domain.commands import PublishDataset
from nimbus.domain.datasets import Dataset
from nimbus.domain.ids import CommandId, DatasetName, PipelineName, RunId
from nimbus.domain.publications import Accepted, Change, Outside, Partitioning
from nimbus.domain.writes import ConsumeCommand, PutDataset
from nimbus.engine.decision import Decision, Refusal, StoreVersions
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
    assert version.outside == Outside(uri="s3://in/1", sha256="a" * 64, value={"rows": 3})
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


def test_next_command_first_stores_the_version_before_in_history() -> None:
    stage = accepting()
    publish(stage, "s3://in/1")
    assert publish(stage, "s3://in/2").name == "versions_storing_started"
    assert [one.outside and one.outside.uri for one in kept(stage).versions] == ["s3://in/1"]

    assert stored(stage) == ["s3://in/1"]
    assert [one.outside and one.outside.uri for one in kept(stage).versions] == ["s3://in/2"]
    assert kept(stage).unstored == kept(stage).versions


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
