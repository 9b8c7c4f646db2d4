"""Tasks of kind `spark_pipeline`, with real Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nimbus.domain.pipelines.pipeline import FailureClass, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.launcher import launch
from tests.nimbus.java_source import HAS_JAVAC, numbers_jar
from tests.nimbus.worker_bench import SPARK, Bench, eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.thorough,  # minutes of a JVM
    pytest.mark.skipif(SPARK < (4, 1), reason="there are none before Spark 4.1"),
    pytest.mark.usefixtures("java_home"),
    pytest.mark.timeout(900),
]

PYTHON = """
from pyspark import pipelines as dp
from nimbus.task import context

@dp.materialized_view
def numbers():
    return spark.read.parquet(str(context().inputs["load"])).limit(context().parameters["most"])
"""
OF_JAR = """
@dp.materialized_view
def of_jar():
    return spark.read.format("example.Numbers").load()
"""
SQL = """
CREATE MATERIALIZED VIEW evens AS
SELECT id, '${env:NIMBUS_TASK}' AS task FROM parquet.`${env:NIMBUS_INPUT_load}` WHERE id % 2 = 0
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.script("etl/flows/numbers.py", PYTHON + (OF_JAR if HAS_JAVAC else ""))
    if HAS_JAVAC:
        numbers_jar(made.release / "numbers.jar", "of the jar")
    made.script("etl/flows/evens.sql", SQL)
    spec = "name: etl\nstorage: file://{}\nlibraries: [{{glob: {{include: flows/**}}}}]\n"
    made.script("etl/spark-pipeline.yml", spec.format(tmp_path / "storage"))
    yield made
    made.close()


def _start(bench: Bench, attempt: str, *args: str) -> None:
    import pyarrow as pa

    loaded = bench.data / "bench/run1/load/1"
    loaded.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(range(10))}), loaded / "part-0.parquet")
    more: dict[str, Any] = {"inputs": {"load": "bench/run1/load/1"}, "parameters": {"most": 7}}
    order = bench.order(
        "etl/spark-pipeline.yml",
        attempt=attempt,
        task_kind=TaskKind.SPARK_PIPELINE,
        args=args or ("run",),
        **more,
    )
    folder = bench.folder(attempt)
    folder.create(order)
    launch(folder, bench.startup(jars=("numbers.jar",) if HAS_JAVAC else ()))


def test_two_declarative_pipelines_run_at_once_on_a_host_each_with_its_output(bench: Bench) -> None:
    attempts = ("run1.a.1", "run1.b.1")
    for attempt in attempts:
        _start(bench, attempt)

    eventually(lambda: "flows" in bench.slots(attempts[0]).progress, "progress by flow", 300)
    seen = bench.slots(attempts[0]).progress
    ends = [bench.await_end(attempt, 300) for attempt in attempts]

    logs = [bench.folder(attempt).log.read_text() for attempt in attempts]
    assert [end.outcome for end in ends] == [Outcome.SUCCEEDED] * 2, logs
    assert set(seen["flows"]) <= {f"spark_catalog.default.{name}" for name in ("numbers", "evens", "of_jar")}
    assert {"application", "stages", "tasks_done"} <= set(seen)
    for name in ("a", "b"):
        output = bench.data / f"bench/run1/{name}/1"
        assert pq.read_table(output / "numbers").num_rows == 7
        assert set(pq.read_table(output / "evens").column("task").to_pylist()) == {name}
        if HAS_JAVAC:
            assert set(pq.read_table(output / "of_jar").column("told").to_pylist()) == {"of the jar"}
    assert all(re.search("Run is COMPLETED", log) for log in logs)


def test_unknown_column_is_a_failure_of_analysis_and_nothing_is_written(bench: Bench) -> None:
    bench.script("etl/flows/evens.sql", SQL.replace("id % 2", "nope % 2"))

    _start(bench, "run1.a.1", "dry-run")
    end = bench.await_end("run1.a.1", 300)

    log = bench.folder("run1.a.1").log.read_text()
    assert (end.outcome, end.failure) == (Outcome.FAILED, FailureClass.ANALYSIS), log
    assert "nope" in log
    assert list((bench.data / "bench/run1/a/1").rglob("*.parquet")) == []


def test_declarative_pipeline_that_is_stopped_leaves_no_process(bench: Bench) -> None:
    slow = "import time\nfor n in range(6000):\n    print('tick', flush=True)\n    time.sleep(0.1)\n"
    bench.script("etl/flows/slow.py", slow)
    _start(bench, "run1.a.1")
    log = bench.folder("run1.a.1").log
    eventually(lambda: log.exists() and "tick" in log.read_text(), "its code runs", 300)

    bench.board.request_stop("run1.a.1")
    end = bench.await_end("run1.a.1", 120)

    assert end.outcome is Outcome.STOPPED
    eventually(lambda: bench.processes("run1.a.1") == [], "all processes are gone", 60)
