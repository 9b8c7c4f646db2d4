"""When a scheduler purges runs, and where it finds their outputs, by its settings."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from nimbus.bootstrap.collector import add_purges, output_place
from nimbus.bootstrap.resources import SystemClock
from nimbus.config.sections import DataSection, RetentionSection, StorageSection, WorkerSection
from nimbus.scheduler.collector import Collector
from nimbus.scheduler.output_deletion import BucketOutputs, FolderOutputs
from nimbus.telemetry.daemon import GarbageMetrics


def a_worker(**keys: Any) -> WorkerSection:
    return WorkerSection(id="w1", work_dir=Path("/w"), **keys)


def some_settings(worker: WorkerSection, retention: RetentionSection | None = None) -> Any:
    return SimpleNamespace(
        worker=worker,
        data=DataSection(),
        storage=StorageSection(bucket="artifacts"),
        cluster=SimpleNamespace(root="/nimbus"),
        retention=retention or RetentionSection(),
    )


@pytest.mark.parametrize(
    ("retention", "intervals_s"),
    [
        (RetentionSection(), [60]),
        (RetentionSection(logs=timedelta(days=30), interval=timedelta(hours=2)), [60, 7200]),
    ],
    ids=["orders-alone", "by-age-too"],
)
def test_scheduler_that_leads_does_purges(retention: RetentionSection, intervals_s: list[int]) -> None:
    resources: Any = SimpleNamespace(
        settings=some_settings(a_worker(), retention), session=object(), store=object(), clock=SystemClock()
    )
    collector, leads = Collector(resources.clock), lambda: True

    add_purges(collector, resources, GarbageMetrics(CollectorRegistry()), leads, str)

    assert [task.interval_s for task in collector._tasks] == intervals_s
    assert {task.may for task in collector._tasks} == {leads}


@pytest.mark.parametrize(
    ("worker", "folder"),
    [
        (a_worker(data="/mnt/data"), Path("/mnt/data")),
        (a_worker(embedded=False), None),
    ],
    ids=["folder", "not-known"],
)
def test_outputs_are_deleted_in_the_folder_of_the_workers(worker: WorkerSection, folder: Path | None) -> None:
    place = output_place(some_settings(worker), lambda: True, str, GarbageMetrics(CollectorRegistry()))

    assert isinstance(place, FolderOutputs)
    assert place._folder == folder


def test_outputs_are_deleted_in_the_bucket_of_the_workers() -> None:
    settings = some_settings(a_worker(data="s3://results/x"))

    place = output_place(settings, lambda: True, str, GarbageMetrics(CollectorRegistry()))

    assert isinstance(place, BucketOutputs)
