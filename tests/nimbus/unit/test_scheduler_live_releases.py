"""Which releases count as in use."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from blobsync import ReleaseRef
from nimbus.adapters.store.cluster import TreeWholeState
from nimbus.domain.commands import ActivatePipeline, Command, CreateBackfill, PausePipeline, PublishRelease
from nimbus.domain.ids import BackfillId, PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.backfill import BackfillRequest
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.pipeline import FailureStrategy, PipelineSpec, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.children import ChildSpec
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.ports import StoreUnavailableError
from nimbus.scheduler.garbage import NothingKnownError, live_releases
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import ROOT, DictCluster

NOW = datetime(2026, 3, 1, tzinfo=UTC)
P = PipelineName("p")


def digest(letter: str) -> ReleaseDigest:
    return ReleaseDigest(letter * 64)


def record(state: PipelineState = PipelineState.ACTIVE, release: str | None = "a") -> PipelineRecord:
    spec = PipelineSpec(name=P)
    found = digest(release) if release else None
    return active(spec, published=digest("b"), state=state, release=found, updated_at=NOW)


def run(state: RunState) -> Run:
    return Run(
        id=RunId("r"),
        pipeline=P,
        release=digest("c"),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks=Tasks(),
        state=state,
    )


def whole(cluster: DictCluster) -> TreeWholeState:
    return TreeWholeState(cluster.calls(), ROOT)


def letters(cluster: DictCluster) -> str:
    found = live_releases(whole(cluster))
    assert {ref.name for ref in found} == {"p"}
    return "".join(sorted(ref.digest[0] for ref in found))


@pytest.mark.parametrize("state", list(PipelineState))
def test_active_and_newest_release_of_every_pipeline_are_in_use(state: PipelineState) -> None:
    cluster = DictCluster()
    cluster.put(record(state))

    assert letters(cluster) == "ab"


def test_release_of_a_backfill_is_in_use_from_its_command_until_it_is_over() -> None:
    cluster = DictCluster()
    cluster.put(record())
    request = BackfillRequest(first=NOW, last=NOW)
    cluster.queue().submit(
        CreateBackfill(pipeline=P, backfill=BackfillId("b"), request=request, digest=digest("d")),
        submitted_by="test",
    )
    assert letters(cluster) == "abd"

    cluster = DictCluster()
    cluster.put(replace(record(), pinned=(digest("e"),)))
    assert letters(cluster) == "abe"


@pytest.mark.parametrize("state", list(RunState))
def test_release_of_a_run_is_in_use_until_the_run_has_ended(state: RunState) -> None:
    cluster = DictCluster()
    cluster.put(record(), run(state))

    assert letters(cluster) == ("ab" if state.is_final else "abc")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (PublishRelease(pipeline=P, digest=digest("d")), "abd"),
        (ActivatePipeline(pipeline=P, digest=digest("e")), "abe"),
        (ActivatePipeline(pipeline=P), "ab"),
        (PausePipeline(pipeline=P), "ab"),
    ],
)
def test_release_that_a_waiting_command_names_is_in_use(command: Command, found: str) -> None:
    cluster = DictCluster()
    cluster.put(record())
    cluster.queue().submit(command, submitted_by="me")

    assert letters(cluster) == found


def test_release_that_is_activated_between_two_reads_is_seen() -> None:
    class Moving(TreeWholeState):
        def all_pipelines(self) -> tuple[PipelineRecord, ...]:
            cluster.set("commands", waiting, None)
            cluster.put(record(release="d"))
            return super().all_pipelines()

    cluster = DictCluster()
    command = ActivatePipeline(pipeline=P, digest=digest("d"))
    waiting = cluster.queue().submit(command, submitted_by="me")

    assert ReleaseRef("p", digest("d")) in live_releases(Moving(cluster.calls(), ROOT))


def test_empty_catalog_is_no_answer_even_with_runs() -> None:
    cluster = DictCluster()
    cluster.put(replace(run(RunState.RUNNING)))

    with pytest.raises(NothingKnownError, match=r"cluster\.root"):
        live_releases(whole(cluster))


def test_zookeeper_that_does_not_answer_is_no_answer() -> None:
    cluster = DictCluster()
    cluster.put(record())
    cluster.available = False

    with pytest.raises(StoreUnavailableError):
        live_releases(whole(cluster))


@pytest.mark.parametrize(("state", "kept"), [(TaskState.WAITING, "abcd"), (TaskState.FAILED, "abc")])
def test_releases_of_child_runs_are_in_use_until_their_task_has_ended(state: TaskState, kept: str) -> None:
    cluster = DictCluster()
    children = ChildSpec(pipeline=P, release=digest("d"))
    task = TaskSpec(name=TaskName("fan"), kind=TaskKind.PIPELINE, script="", children=children)
    cluster.put(record())
    cluster.put(replace(run(RunState.RUNNING), tasks=Tasks([TaskRun(spec=task, state=state)])))

    assert letters(cluster) == kept
