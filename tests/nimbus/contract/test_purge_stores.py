"""Purges on all stores: S3 with outputs in a bucket or a folder, and the fake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from blobsync import ObjectStore, S3Config, S3ObjectStore, Secret
from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.config.sections import RetentionSection
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.ids import AttemptId, DatasetName, RunId, TaskName
from nimbus.domain.runs.run import Run, RunPart
from nimbus.localstack.s3 import S3Server
from nimbus.ports import KeptLog
from nimbus.scheduler.output_deletion import BucketOutputs, FolderOutputs
from nimbus.scheduler.purge import OutputPlace, RunPurge
from nimbus.telemetry.daemon import GarbageMetrics
from nimbus.worker.data.folder_checks import MARK
from tests.nimbus.contract.test_history import NOW, RUN


@dataclass
class Place:
    """Outputs of runs `old` and `old-2`."""

    place: OutputPlace
    runs: Callable[[], set[str]]


class Clock:
    def now(self) -> object:
        return NOW + timedelta(days=30)

    def elapsed_s(self) -> float:
        return 0.0


class NothingLive:
    def dataset(self, name: DatasetName) -> Dataset | None:
        return None

    def all_commands(self) -> tuple[()]:
        return ()

    def all_pipelines(self) -> tuple[()]:
        return ()

    def all_runs(self) -> tuple[()]:
        return ()


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    if request.param == "memory":
        yield MemoryObjectStore()
        return
    server: S3Server = request.getfixturevalue("s3_server")
    config = S3Config(
        endpoint_url=server.endpoint_url,
        bucket=request.getfixturevalue("s3_bucket"),
        access_key_id=server.access_key,
        secret_access_key=Secret(server.secret_key),
    )
    found = S3ObjectStore(config)
    yield found
    found.close()


@pytest.fixture(params=["bucket", "folder"])
def outputs(request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path) -> Place:
    metrics = GarbageMetrics(CollectorRegistry())
    if request.param == "bucket":
        for run in ("old", "old-2"):
            store.write(f"p/{run}/t/1-0/rows.csv", b"1,2")
        there = lambda: {info.key.split("/")[1] for info in store.list("p/")}  # noqa: E731
        return Place(BucketOutputs(store, lambda: True, metrics), there)
    for run in ("old", "old-2"):
        (tmp_path / "p" / run / "t" / "1").mkdir(parents=True)
        (tmp_path / "p" / run / "t" / "1" / "rows.csv").write_text("1,2")
    (tmp_path / MARK).write_text("m")
    return Place(
        FolderOutputs(tmp_path, lambda _: "m", metrics),
        lambda: {path.name for path in (tmp_path / "p").iterdir()},
    )


def test_purge_deletes_all_of_one_run_and_nothing_of_another(store: ObjectStore, outputs: Place) -> None:
    history, logs = S3History(store), S3LogArchive(store)
    runs: list[Run] = [
        replace(RUN, id=RunId("old"), finished_at=NOW),
        replace(RUN, id=RunId("old-2"), finished_at=NOW + timedelta(days=20)),
    ]
    for run in runs:
        history.store_results(run.id, {TaskName("t"): {"rows": 1}})
        history.store(run)
        for kept in KeptLog:
            logs.append(AttemptId(run.id, TaskName("t"), 1), 0, b"hello", kept)
    logs.append_all({AttemptId(runs[0].id, TaskName("t"), 2): b"small"})
    days = timedelta(days=15)
    purge = RunPurge(
        history=history,
        store=store,
        outputs=outputs.place,
        state=NothingLive(),
        leads=lambda: True,
        retention=RetentionSection(logs=days, outputs=days, history=days),
        clock=Clock(),  # type: ignore[arg-type]
        metrics=GarbageMetrics(CollectorRegistry()),
    )

    for _ in range(2):
        purge.apply_retention(threading.Event())

    assert outputs.runs() == {"old-2"}
    assert [*history.created_before(NOW + days, None)] == ["old-2"]
    assert history.read(RunId("old-2")) == runs[1]
    assert history.given(runs[1].id).results == {TaskName("t"): {"rows": 1}}
    assert logs.read(AttemptId(runs[1].id, TaskName("t"), 1)) == b"hello"
    assert [info.key for info in store.list("logs/old/")] == []
    assert [info.key for info in store.list("history/") if "old-2" not in info.key] == [
        "history/purged/runs/old.json"
    ]
    gone = history.purged(RunId("old"))
    assert gone is not None
    assert gone.parts.keys() == set(RunPart)
