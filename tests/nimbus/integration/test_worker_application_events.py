"""Spark's event log of a driver in a cluster: the real bootstrap as a process, a real gateway over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkPlace, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import KeptLog
from tests.nimbus.cluster_bench import TARGET, ClusterBench, cluster_bench

ATTEMPT = "run1.task.1"
WRITES = """
from pathlib import Path
Path("../app-1.zstd.inprogress").write_bytes(b"old")
Path("../progress.json").write_text('{"application": "app-2"}')
Path("../app-2.zstd").write_bytes(bytes(200_000) + b"events")
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterBench]:
    with cluster_bench(tmp_path) as made:
        yield made


def test_event_log_and_application_of_a_driver_in_a_cluster_are_kept_at_its_end(
    cluster: ClusterBench,
) -> None:
    cluster.worker()
    script = cluster.bench.script("jobs/main.py", WRITES)
    conf = {"spark.eventLog.enabled": "true"}
    order = cluster.bench.order(script, attempt=ATTEMPT, task_kind=TaskKind.PYSPARK, spark_conf=conf)
    place = SparkPlace(target=TARGET, deploy=SparkDeploy.CLUSTER)
    cluster.bench.board.assign("w1", replace(order, task=replace(order.task, spark_place=place)))

    end = cluster.bench.await_end(ATTEMPT)

    assert end.outcome is Outcome.SUCCEEDED, end.reason
    assert end.application == "app-2"
    assert cluster.manager.last is not None
    assert cluster.manager.last.conf["spark.eventLog.dir"] == "nimbus/work"
    stored = cluster.bench.logs.read(AttemptId.parse(ATTEMPT), 0, 1 << 20, KeptLog.EVENTS)
    assert stored == bytes(200_000) + b"events"
