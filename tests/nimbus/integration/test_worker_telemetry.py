"""What tasks know of their trace and their lineage, in real processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.domain.ids import AttemptId, RunId
from nimbus.domain.pipelines.pipeline import Isolation, SparkMode, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.runs.traces import attempt_uuid, run_uuid, traceparent
from nimbus.worker.application.startup import startup_document
from nimbus.worker.driver.files import driver_plan
from nimbus.worker.host import procfs
from nimbus.worker.host.remains import EXECUTOR_VARIABLE
from nimbus.worker.launcher import launch
from nimbus.worker.settings import TaskTelemetry
from tests.nimbus.worker_bench import Bench

TOLD = TaskTelemetry(
    traces=True,
    namespace="prod",
    transport={"transport.type": "http", "transport.url": "http://lineage:5000"},
)
WRITES = """
import os, pathlib
from nimbus.task import context
pathlib.Path(context().output, "told").write_text(os.environ.get("TRACEPARENT", "none"))
"""
SPARK = """
import json, os
from nimbus.task import context
from pyspark.sql import SparkSession
conf = SparkSession.builder.getOrCreate().sparkContext.getConf().getAll()
told = {name: value for name, value in conf if name.startswith("spark.openlineage.")}
print("told:", json.dumps(told, sort_keys=True))
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def told(bench: Bench, attempt: AttemptId) -> str:
    return (bench.data / "bench" / attempt.run / attempt.task / str(attempt.number) / "told").read_text()


def test_each_task_of_a_worker_is_told_its_own_parent(bench: Bench) -> None:
    worker = bench.worker("w1", settings={"telemetry": TOLD})
    worker.start()
    try:
        script = bench.script("main.py", WRITES)
        for number, isolation in enumerate([Isolation.ISOLATED, Isolation.POOLED, Isolation.POOLED]):
            attempt = AttemptId.parse(f"run{number}.task.1")
            bench.board.assign("w1", bench.order(script, attempt=str(attempt), isolation=isolation))
            assert bench.await_end(str(attempt)).outcome is Outcome.SUCCEEDED
            assert told(bench, attempt) == traceparent(bench.board.cluster(), attempt)
        order = bench.order(script, attempt="run9.task.1")
        bench.board.assign("w1", replace(order, task=replace(order.task, env={"TRACEPARENT": "mine"})))
        assert bench.await_end("run9.task.1").outcome is Outcome.SUCCEEDED
        assert told(bench, AttemptId.parse("run9.task.1")) == "mine"
    finally:
        worker.close(timedelta(seconds=10))
        mine = str(bench.root / "w1")
        procfs.kill_all(lambda: procfs.with_variable(EXECUTOR_VARIABLE, mine), deadline_s=60.0)


def test_a_worker_without_traces_tells_nothing(bench: Bench) -> None:
    folder = bench.folder()
    folder.create(bench.order(bench.script("main.py", WRITES)))
    launch(folder, bench.startup())

    assert bench.await_end().outcome is Outcome.SUCCEEDED
    assert told(bench, AttemptId.parse("run1.task.1")) == "none"


def test_a_driver_in_a_cluster_is_told_its_parent_in_its_startup_document(bench: Bench) -> None:
    order = bench.order("main.py", task_kind=TaskKind.PYSPARK)
    plan = bench.startup(telemetry=TOLD).plan

    document = startup_document(
        order, plan, target="t", endpoints=(), key=b"k", release_sha256="", driver_id="folder"
    )

    assert f'"TRACEPARENT":"{traceparent(plan.cluster, AttemptId.parse(order.attempt))}"' in document
    assert (
        f'"spark.openlineage.parentRunId":"{attempt_uuid(plan.cluster, AttemptId.parse(order.attempt))}"'
        in document
    )


@pytest.mark.parametrize(
    ("kind", "mode"), [(TaskKind.PYTHON, SparkMode.CLASSIC), (TaskKind.PYSPARK, SparkMode.CONNECT)]
)
def test_tasks_without_a_spark_of_their_own_get_no_properties(
    bench: Bench, kind: TaskKind, mode: SparkMode
) -> None:
    order = bench.order("main.py", task_kind=kind, spark_mode=mode)

    assert driver_plan(bench.startup(telemetry=TOLD).plan, order).worker_conf == {}


def test_properties_of_the_worker_win(bench: Bench) -> None:
    own = {"spark.openlineage.transport.url": "http://other"}
    plan = bench.startup(telemetry=TOLD, spark_conf=own).plan

    conf = driver_plan(plan, bench.order("main.py", task_kind=TaskKind.PYSPARK)).worker_conf

    assert conf["spark.openlineage.transport.url"] == "http://other"
    assert conf["spark.openlineage.parentJobName"] == "bench.task"


@pytest.mark.spark
@pytest.mark.usefixtures("java_home")
@pytest.mark.timeout(900)
def test_a_real_spark_sees_whom_its_listener_names_as_its_parent(bench: Bench) -> None:
    folder, attempt = bench.folder(), AttemptId.parse("run1.task.1")
    folder.create(bench.order(bench.script("main.py", SPARK), task_kind=TaskKind.PYSPARK))
    launch(folder, bench.startup(telemetry=TOLD))

    assert bench.await_end(deadline_s=300).outcome is Outcome.SUCCEEDED, folder.log.read_text()

    cluster = bench.board.cluster()
    for name, value in {
        "transport.type": "http",
        "transport.url": "http://lineage:5000",
        "parentJobNamespace": "prod",
        "parentJobName": "bench.task",
        "parentRunId": attempt_uuid(cluster, attempt),
        "rootParentJobNamespace": "prod",
        "rootParentJobName": "bench",
        "rootParentRunId": run_uuid(cluster, RunId("run1")),
    }.items():
        assert f'"spark.openlineage.{name}": "{value}"' in folder.log.read_text()
