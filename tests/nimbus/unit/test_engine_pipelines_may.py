"""What a pipeline may use of other owners: variables, datasets, runs to wait for, child runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from nimbus.domain.cluster.access import AccessGrant, AccessRole
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.commands import PublishDataset, PublishRelease, StopRun
from nimbus.domain.data.publications import Accepted, Partitioning, Read
from nimbus.domain.ids import DatasetName, RunId, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.starts.waits import PipelineWait
from nimbus.engine.policy import Policy
from nimbus.engine.state import State
from tests.nimbus.children_stage import CHILD, LOAD, NOW, PARENT, Stage, parent, starting
from tests.nimbus.definitions import digest_of

DAY = DataInterval(start=NOW - timedelta(days=1), end=NOW)
ORDERS, WAIT = DatasetName("orders"), TaskName("wait")
(LOADING,) = LOAD.tasks
THEIRS = replace(LOAD, accepts=(Accepted(dataset=ORDERS, partition=Partitioning.WHOLE),))
USES: dict[str, tuple[PipelineSpec, AccessRole, str]] = {
    "variable": (replace(LOAD, name=PARENT, variables=("key",)), AccessRole.VIEWER, "variable:key"),
    "dataset": (
        replace(
            LOAD,
            name=PARENT,
            reads=(Read(name="orders", dataset=ORDERS),),
            tasks=(replace(LOADING, uses=("orders",)),),
        ),
        AccessRole.VIEWER,
        "dataset:orders",
    ),
    "wait": (
        PipelineSpec(
            name=PARENT,
            tasks=(
                TaskSpec(name=WAIT, kind=TaskKind.WAIT, script="", waits_for=(PipelineWait(pipeline=CHILD),)),
            ),
        ),
        AccessRole.STATUS,
        "pipeline:load",
    ),
    "child": (parent(starting()), AccessRole.OPERATOR, "pipeline:load"),
}


def stage_of(
    spec: PipelineSpec,
    *,
    base: AccessRole = AccessRole.NONE,
    grants: tuple[AccessGrant, ...] = (),
    owner: str | None = "sales",
    of: str | None = "finance",
) -> Stage:
    """A leader with a pipeline of finance, and one of sales that uses something of it."""
    stage = Stage()
    stage.state = State(epoch=3, schema=1, policy=Policy(pipelines_may=base))
    settings = ClusterSettings(variables={"key": "1"}, grants=grants)
    stage.state.put_settings(settings, stage.instant())
    stage.put(THEIRS, owner=of)
    stage.put(spec, owner=owner)
    stage.state.finish_loading()
    return stage


def given(role: AccessRole, on: str, who: str = "sales") -> AccessGrant:
    return AccessGrant(who=who, role=role, on=on, at=NOW)


def lower(role: AccessRole) -> AccessRole:
    return list(AccessRole)[role.rank - 1]


def published(stage: Stage, spec: PipelineSpec) -> str:
    """The leader's code for a release."""
    release = ReleaseOf(spec.name, digest_of(spec))
    stage.state.commands.releases.under_way.add(release)
    stage.state.commands.release_prepared(release, spec)
    stage.ask(PublishRelease(pipeline=spec.name, digest=release.digest, activate=True))
    return str(stage.done[-1].about["code"])


def ran(stage: Stage, _spec: PipelineSpec) -> str:
    """`not_granted` if a run could not use it."""
    stage.ask(PublishDataset(dataset=ORDERS, uri="s3://in/1"))
    stage.start(data_interval=DAY)
    said = str([done.about for done in stage.done])
    return "not_granted" if "may not use" in said else "ok"


@pytest.mark.parametrize("asked", [published, ran])
@pytest.mark.parametrize("use", USES)
def test_pipeline_uses_what_belongs_to_others_by_a_grant_of_its_owner(
    use: str, asked: Callable[[Stage, PipelineSpec], str]
) -> None:
    spec, needed, on = USES[use]
    team = "ke*" if use == "variable" else "team:finance"

    assert asked(stage_of(spec), spec) == "not_granted"
    assert asked(stage_of(spec, base=lower(needed)), spec) == "not_granted"
    assert asked(stage_of(spec, grants=(given(lower(needed), on),)), spec) == "not_granted"
    assert asked(stage_of(spec, grants=(given(needed, on, "else"),)), spec) == "not_granted"
    assert asked(stage_of(spec, grants=(given(needed, f"{on}s"),)), spec) == "not_granted"
    assert asked(stage_of(spec, base=needed), spec) == "ok"
    assert asked(stage_of(spec, grants=(given(needed, on),)), spec) == "ok"
    assert asked(stage_of(spec, grants=(given(needed, team),)), spec) == "ok"


@pytest.mark.parametrize("use", [use for use in USES if use != "variable"])
def test_pipeline_uses_what_has_the_same_owner_and_one_of_admins_uses_everything(use: str) -> None:
    spec, _, _ = USES[use]

    assert ran(stage_of(spec, of="sales"), spec) == "ok"
    assert ran(stage_of(spec, owner=None), spec) == "ok"
    assert ran(stage_of(spec, of=None), spec) == "not_granted"


def test_pipeline_reads_a_dataset_whose_owner_names_it() -> None:
    spec, _, _ = USES["dataset"]
    stage = stage_of(spec)
    stage.put(replace(THEIRS, readers={ORDERS: ("sales",)}), owner="finance")

    assert ran(stage, spec) == "ok"


def test_wait_fails_when_the_grant_is_taken_away_while_it_lasts() -> None:
    spec, needed, on = USES["wait"]
    stage = stage_of(spec, grants=(given(needed, on),))
    stage.start(data_interval=DAY)
    assert stage.state.runs.live[RunId("r")].state is RunState.RUNNING

    stage.state.put_settings(ClusterSettings(), stage.instant())
    stage.start("load-1", CHILD, data_interval=DAY)
    assert stage.run().tasks[WAIT].state is TaskState.WAITING
    stage.ask(StopRun(run_id=RunId("load-1"), reason="wrong"))

    settled = stage.run().tasks[WAIT].settled
    assert settled is not None
    assert "may not use pipeline load" in settled.reason
