"""Who may read a dataset whose declaration limits its readers: releases, new runs, runs under way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nimbus.domain.cluster.access import AccessDeniedError, AccessRole, Principal, PrincipalSource
from nimbus.domain.commands import (
    PublishDataset,
    PublishRelease,
    QueuedCommand,
    RemoveDataset,
    SetOwner,
    StartRun,
)
from nimbus.domain.data.datasets import ReadGrant
from nimbus.domain.data.publications import Accepted, Partitioning, Read
from nimbus.domain.ids import CommandId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineState, ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.engine.rules.commands.checks import check_access
from tests.nimbus.children_stage import LOAD, Stage
from tests.nimbus.definitions import digest_of

ORDERS, REPORT = DatasetName("orders"), PipelineName("report")


def publisher(readers: tuple[str, ...] | None, name: str = "shop") -> PipelineSpec:
    """A pipeline whose dataset comes from outside."""
    accepts = (Accepted(dataset=ORDERS, partition=Partitioning.WHOLE),)
    limits = {} if readers is None else {ORDERS: readers}
    return replace(LOAD, name=PipelineName(name), accepts=accepts, readers=limits)


def reader(**said: Any) -> PipelineSpec:
    (task,) = LOAD.tasks
    reads = (Read(name="orders", dataset=ORDERS, **said),)
    return replace(LOAD, name=REPORT, reads=reads, tasks=(replace(task, uses=("orders",)),))


def stage_of(readers: tuple[str, ...] | None, *, is_published: bool = True, **said: Any) -> Stage:
    """A leader with both pipelines, of the teams `shop` and `sales`."""
    stage = Stage()
    stage.put(publisher(readers), owner="shop")
    stage.put(reader(**said), owner="sales")
    if is_published:
        publish(stage)
    return stage


def publish(stage: Stage) -> None:
    stage.ask(PublishDataset(dataset=ORDERS, uri="s3://in/1"))
    assert ORDERS in stage.state.catalog.datasets


def released(stage: Stage, spec: PipelineSpec, *, activate: bool = True) -> Any:
    """What the leader says about a release."""
    release = ReleaseOf(spec.name, digest_of(spec))
    stage.state.commands.releases.under_way.add(release)
    stage.state.commands.release_prepared(release, spec)
    stage.ask(PublishRelease(pipeline=spec.name, digest=release.digest, activate=activate))
    return stage.done[-1].about


@pytest.mark.parametrize("is_published", [True, False])
@pytest.mark.parametrize(
    ("readers", "code"), [(None, "ok"), (("sales",), "ok"), ((), "not_reader"), (("else",), "not_reader")]
)
def test_release_that_reads_needs_a_grant(
    readers: tuple[str, ...] | None, code: str, is_published: bool
) -> None:
    about = released(stage_of(readers, is_published=is_published), reader())

    assert about["code"] == code
    if code != "ok":
        assert about["message"] == (
            "pipeline report, which belongs to sales, may not read dataset orders: pipeline shop limits its "
            "readers. shop can add sales to datasets.orders.readers there, and activate that release."
        )


@pytest.mark.parametrize("owner", ["shop", None])
def test_pipelines_of_the_owner_and_of_admins_need_no_grant(owner: str | None) -> None:
    stage = stage_of(())
    stage.put(reader(), owner=owner)

    assert released(stage, reader())["code"] == "ok"


def test_run_is_not_created_when_the_grant_was_taken_away() -> None:
    stage = stage_of(("sales",))
    stage.put(publisher(()), owner="shop")
    stage.ask(StartRun(pipeline=REPORT, run_id=RunId("r")))

    assert stage.done[-1].about["code"] == "not_reader"


def failed(stage: Stage) -> bool:
    """True if the run has failed, because its pipeline may not read."""
    (error,) = [done.about["error"] for done in stage.done if done.name == "reads_refused"] or [""]
    return stage.run().tasks[TaskName("x")].state is TaskState.FAILED and "may not read" in error


def waiting_for_key() -> Stage:
    """A leader with a run that may read the dataset, and waits for a key of it."""
    by_key = replace(publisher(("sales",)), accepts=(Accepted(dataset=ORDERS, partition=Partitioning.KEY),))
    stage = Stage()
    stage.put(by_key, owner="shop")
    stage.put(reader(key="eu"), owner="sales")
    stage.ask(PublishDataset(dataset=ORDERS, uri="s3://in/1", partition="us"))
    stage.start("r", REPORT)
    assert stage.run().tasks[TaskName("x")].state is TaskState.WAITING
    return stage


def test_waiting_run_fails_at_once_when_the_grant_is_taken_away() -> None:
    stage = waiting_for_key()
    stage.put(publisher(()), owner="shop")
    stage.decide()

    assert failed(stage)


def test_waiting_run_fails_at_once_when_its_pipeline_gets_another_owner() -> None:
    stage = waiting_for_key()
    stage.ask(SetOwner(pipeline=REPORT, owner="else"))

    assert failed(stage)


def test_run_that_waits_for_the_first_version_fails_when_it_comes_without_the_grant() -> None:
    stage = stage_of(("sales",), is_published=False)
    stage.start("r", REPORT)
    stage.put(publisher(()), owner="shop")
    publish(stage)

    assert failed(stage)
    assert not stage.run().pins


def test_grant_that_is_taken_away_during_the_look_up_pins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[Any] = []
    find = Stage._find
    monkeypatch.setattr(Stage, "_find", lambda _stage, effect: looked_up.append(effect))
    stage = stage_of(("sales",))
    stage.start("r", REPORT)
    stage.put(publisher(()), owner="shop")
    (effect,) = looked_up
    find(stage, effect)
    stage.decide()

    assert failed(stage)
    assert not stage.run().pins


def test_rerun_that_keeps_its_pins_needs_the_grant() -> None:
    stage = stage_of(("sales",))
    stage.start("r", REPORT)
    stage.end(stage.run(), Outcome.FAILED)
    assert stage.run().pins.keys() == {"orders"}
    stage.put(publisher(()), owner="shop")
    again = Selection(scope=Scope.FAILED, reuse=RunId("r"), is_rerun=True)
    stage.start("again", REPORT, selection=again)

    assert stage.done[-1].about["code"] == "not_reader"


def test_grant_outlives_the_declaration_and_the_pipeline() -> None:
    stage = stage_of(("sales",))
    stage.put(replace(LOAD, name=PipelineName("shop")), owner="shop")
    stage.put(replace(reader(), name=PipelineName("other")), owner="else")
    assert released(stage, reader())["code"] == "ok"
    assert released(stage, replace(reader(), name=PipelineName("other")))["code"] == "not_reader"

    stage.state.forget_pipeline(PipelineName("shop"))
    assert released(stage, reader())["code"] == "ok"
    assert released(stage, replace(reader(), name=PipelineName("other")))["code"] == "not_reader"


def test_later_pipeline_of_the_same_name_is_not_that_of_the_versions() -> None:
    stage, shop = stage_of(()), PipelineName("shop")
    stage.state.forget_pipeline(shop)
    stage.put(replace(LOAD, name=shop), owner="else")

    assert released(stage, replace(reader(), name=shop))["code"] == "not_reader"
    assert released(stage, publisher(()))["code"] == "dataset_taken"
    removal = QueuedCommand(
        id=CommandId("cmd-900000"),
        command=RemoveDataset(dataset=ORDERS, reason="mine"),
        submitted_at=stage.now,
        asked_by=Principal(name="ada", role=AccessRole.AUTHOR, source=PrincipalSource.FILE, teams=("else",)),
    )
    with pytest.raises(AccessDeniedError, match="belongs to shop"):
        check_access(stage.state, removal, stage.now)
    stage.put(replace(LOAD, name=shop), owner="shop")
    assert released(stage, publisher(()))["code"] == "ok"


@pytest.mark.parametrize(
    ("readers", "owner", "code"),
    [(None, "else", "ok"), (("else",), "else", "dataset_taken"), ((), "shop", "ok"), ((), None, "ok")],
)
def test_versions_with_limited_readers_are_not_taken_over_by_another_owner(
    readers: tuple[str, ...] | None, owner: str | None, code: str
) -> None:
    stage = stage_of(readers)
    stage.put(replace(LOAD, name=PipelineName("shop")), owner="shop")  # it publishes no more
    stage.put(replace(LOAD, name=PipelineName("next")), owner=owner)

    assert released(stage, publisher(None, "next"))["code"] == code


def test_release_that_was_never_activated_limits_nobody() -> None:
    stage = stage_of(None, is_published=False)
    record = stage.state.catalog.pipelines[PipelineName("shop")]
    stage.put(publisher(()), owner="shop", state=PipelineState.INACTIVE, release=None)

    assert record.profile.readers == {}
    assert released(stage, reader())["code"] == "ok"


@pytest.mark.parametrize(
    ("role", "teams", "may"),
    [
        (AccessRole.OPERATOR, (), False),
        (AccessRole.AUTHOR, ("else",), False),
        (AccessRole.OPERATOR, ("sales",), True),
        (AccessRole.OPERATOR, ("shop",), True),
        (AccessRole.ADMIN, (), True),
    ],
)
def test_principal_reads_with_a_grant_as_owner_or_as_admin(
    role: AccessRole, teams: tuple[str, ...], may: bool
) -> None:
    grant = ReadGrant(ORDERS, PipelineName("shop"), "shop", ("sales",))
    principal = Principal(name="ada", role=role, source=PrincipalSource.FILE, teams=teams)
    try:
        grant.check_principal(principal)
    except AccessDeniedError as exc:
        assert not may
        assert exc.code == "not_reader"
    else:
        assert may


def test_principal_without_teams_does_not_read_what_has_no_owner() -> None:
    grant = ReadGrant(ORDERS, PipelineName("shop"), None, ())
    principal = Principal(name="ada", role=AccessRole.OPERATOR, source=PrincipalSource.FILE)
    with pytest.raises(AccessDeniedError, match="An admin can add ada to"):
        grant.check_principal(principal)
