"""The collections that a daemon runs, by its settings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from nimbus.bootstrap.collector import build_collector
from nimbus.bootstrap.resources import SystemClock
from nimbus.config.sections import ArtifactsSection, DataSection, StorageSection
from nimbus.telemetry.daemon import GarbageMetrics


def yes() -> bool:
    return True


@pytest.mark.parametrize(
    ("artifacts", "leads", "intervals_s"),
    [
        (ArtifactsSection(), yes, [3600]),
        (ArtifactsSection(gc=True), yes, [3600, 6 * 3600]),
        (ArtifactsSection(gc=True), None, [3600]),
        (ArtifactsSection(gc=True, local_gc=False), yes, [6 * 3600]),
        (ArtifactsSection(local_gc=False), yes, []),
    ],
    ids=["as-it-comes", "bucket-too", "worker-never-in-the-bucket", "bucket-alone", "nothing"],
)
def test_bucket_is_collected_only_where_it_is_asked_for_and_somebody_may_lead(
    artifacts: ArtifactsSection, leads: Callable[[], bool] | None, intervals_s: list[int]
) -> None:
    settings = SimpleNamespace(
        artifacts=artifacts,
        cluster=SimpleNamespace(root="/nimbus"),
        worker=SimpleNamespace(data_uri=None),
        sync=SimpleNamespace(retry_max=ArtifactsSection().gc_interval),
    )
    resources: Any = SimpleNamespace(
        settings=settings, session=object(), store=object(), local=object(), run=yes, clock=SystemClock()
    )

    collector = build_collector(resources, GarbageMetrics(CollectorRegistry()), leads=leads)

    assert [task.interval_s for task in collector._tasks] == intervals_s
    assert [task.may for task in collector._tasks if task.interval_s == 6 * 3600] == (
        [leads] if 6 * 3600 in intervals_s else []
    )


@pytest.mark.parametrize(
    ("uri", "gc", "leads", "intervals_s"),
    [
        ("s3://results", True, yes, [900]),
        ("s3://results", False, yes, []),
        ("s3://results", True, None, []),
        (None, True, yes, []),
    ],
    ids=["leader", "off", "worker", "folder"],
)
def test_lost_outputs_are_collected_in_a_bucket_by_who_may_lead(
    uri: str | None, gc: bool, leads: Callable[[], bool] | None, intervals_s: list[int]
) -> None:
    settings = SimpleNamespace(
        artifacts=ArtifactsSection(local_gc=False),
        cluster=SimpleNamespace(root="/nimbus"),
        worker=SimpleNamespace(data_uri=uri),
        data=DataSection(gc=gc, gc_interval=timedelta(minutes=15)),
        storage=StorageSection(bucket="artifacts"),
    )
    resources: Any = SimpleNamespace(
        settings=settings, session=object(), store=object(), local=object(), run=yes, clock=SystemClock()
    )

    collector = build_collector(resources, GarbageMetrics(CollectorRegistry()), leads=leads)

    assert [task.interval_s for task in collector._tasks] == intervals_s
