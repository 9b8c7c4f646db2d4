"""Datasets in the engine: who may publish. Their laws: `tests/nimbus/property/test_datasets.py`."""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.commands import PublishRelease
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.publications import Publication
from nimbus.engine.decision import Decision
from tests.nimbus.children_stage import LOAD, Stage
from tests.nimbus.definitions import digest_of


def publishing(name: str, dataset: str) -> PipelineSpec:
    (task, *others) = LOAD.tasks
    task = replace(task, publishes=(Publication(dataset=DatasetName(dataset)),))
    return replace(LOAD, name=PipelineName(name), tasks=(task, *others))


def answered(there: PipelineSpec, new: PipelineSpec) -> Decision:
    stage = Stage(there)
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
