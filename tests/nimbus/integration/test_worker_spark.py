"""Real Spark with a real runner."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.data.publications import OutsideData, Version
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import Limits, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.launcher import launch
from tests.nimbus.worker_bench import Bench, eventually

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_home"), pytest.mark.timeout(900)]

WRITES = """
import os, threading
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from nimbus.task import context
from shared import double

spark = SparkSession.builder.getOrCreate()
conf = spark.sparkContext.getConf()
assert conf.get("spark.app.name") == "run1.make-numbers.1", conf.get("spark.app.name")
assert conf.get("spark.sql.shuffle.partitions") == "3"
assert conf.get("spark.of.release") == f"{context().release_root}/lib"
assert os.environ["SPARK_LOCAL_DIRS"].split("/")[-3:] == ["run1.make-numbers.1", "work", "spark-local"]
assert os.listdir(os.environ["SPARK_LOCAL_DIRS"])
frame = spark.range(100).withColumn("twice", udf(double, "long")("id"))
frame.write.parquet(str(context().output / "data"))

server, stopped, saw = spark.sparkContext._accumulatorServer, threading.Event(), []
end = server.shutdown
server.shutdown = lambda: (saw.append(stopped.wait(300)), end())
spark.stop()
stopped.set()
[thread.join() for thread in threading.enumerate() if thread.name == "driver-accumulators"]
assert saw == [True], "the stop of Spark waits for the server of accumulators"
"""
SUMS = """
-- the semicolon; in this comment ends nothing
CREATE TEMPORARY VIEW some AS SELECT * FROM make_numbers WHERE id < {{ params.below }};
SELECT count(*) AS n, sum(twice) AS total, '{{ ds }}; {{ run.id }}' AS told,
  (SELECT count(*) FROM numbers) AS read, (SELECT sum(rate) FROM rates) AS rates FROM some;
"""
LOADS = """
CREATE TABLE orders USING parquet PARTITIONED BY (day) AS
  SELECT id, :name AS name, :day AS day FROM range(3);
INSERT INTO orders SELECT 10 + id, "b;b", DATE'2026-01-01' FROM range(:rows);
CREATE VIEW big AS SELECT * FROM orders WHERE id >= 10;
CREATE TABLE names (name STRING);
INSERT INTO names SELECT DISTINCT name FROM big;
SET spark.sql.of.password
"""
READS = """
SELECT count(*) AS n, max(name) AS name, (SELECT max(name) FROM load_all_names) AS other
FROM load_all_orders WHERE day = :day
"""
SPILLS = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import desc
builder = SparkSession.builder.config("spark.sql.adaptive.enabled", "false")
spark = builder.config("spark.shuffle.spill.numElementsForceSpillThreshold", "2000").getOrCreate()
spark.range(20_000).sortWithinPartitions(desc("id")).write.format("noop").mode("overwrite").save()
spark.stop()
SparkSession.builder.getOrCreate().range(20_000).repartition(2).foreach(lambda row: None)
"""
HANGS = """
import time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.parallelize(range(2), 2).map(lambda n: time.sleep(600)).collect()
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_sql_task_reads_what_a_pyspark_task_wrote(bench: Bench) -> None:
    pq: Any = pytest.importorskip("pyarrow.parquet")

    bench.script("lib/shared.py", "def double(n):\n    return 2 * n\n")
    made = bench.order(
        bench.script("make.py", WRITES),
        attempt="run1.make-numbers.1",
        task_kind=TaskKind.PYSPARK,
        python_path=("lib",),
        spark_conf={"spark.sql.shuffle.partitions": "3", "spark.of.release": "{{ release_root }}/lib"},
    )
    first = bench.folder("run1.make-numbers.1")
    first.create(made)
    launch(first, bench.startup(spark_conf={"spark.sql.shuffle.partitions": "5"}))
    eventually(lambda: first.is_delivered, "the first task", 300)
    end = bench.slots("run1.make-numbers.1").end
    assert end is not None
    assert end.outcome is Outcome.SUCCEEDED, first.log.read_text()
    assert "spark.local.dir" not in first.log.read_text()

    (csv := bench.root / "in [of] march.csv").write_text("currency,rate\neur,1.5\n")
    (lines := bench.root / "in.jsonl").write_text('{"rate": 2.0}\n{"rate": 4.0}\n')
    summed = bench.order(
        bench.script("sum.sql", SUMS),
        attempt="run1.sum.1",
        task_kind=TaskKind.SQL,
        inputs={"make-numbers": made.output, "numbers:0": made.output, "numbers:1": made.output},
        parameters={"below": 10},
        pins={
            "numbers": (version_of(made, "k0"), version_of(made, "k1")),
            "rates": tuple(outside(file) for file in (csv, lines)),
        },
    )
    second = bench.folder("run1.sum.1")
    second.create(summed)
    launch(second, bench.startup())
    eventually(lambda: second.is_delivered, "the second task", 300)

    end = bench.slots("run1.sum.1").end
    assert end is not None
    assert end.outcome is Outcome.SUCCEEDED, second.log.read_text()
    rows = pq.read_table(bench.data / summed.output / "data").to_pylist()
    count = pq.read_table(bench.data / made.output / "data").num_rows
    assert rows == [{"n": 10, "total": 90, "told": "2013-01-31; run1", "read": 2 * count, "rates": 7.5}]


def version_of(made: Assignment, partition: str) -> Version:
    return Version(
        partition=partition,
        number=1,
        run=made.run,
        task=made.task.name,
        source=AttemptId.parse(made.attempt),
        output=made.output,
        at=made.logical_date,
    )


def outside(file: Path) -> Version:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Version(
        partition=file.suffix[1:], number=1, at=at, outside=OutsideData(uri=file.as_uri(), sha256=digest)
    )


def said_by_events(folder: Path) -> str:
    import pyarrow as pa

    (log,) = folder.rglob("*.zstd")
    with pa.input_stream(str(log), compression="zstd") as events:
        return str(events.read().decode())


def test_sql_task_makes_several_tables_that_another_one_reads(bench: Bench) -> None:
    pq: Any = pytest.importorskip("pyarrow.parquet")
    conf = {"spark.sql.of.password": "{{ secrets.PW }}", "spark.eventLog.enabled": "true"}
    hostile = "it's \"; DROP TABLE orders; --"

    def run(attempt: str, text: str, **more: Any) -> Path:
        script = bench.script(f"{attempt}.sql", text)
        order = bench.order(script, attempt=attempt, task_kind=TaskKind.SQL, spark_conf=conf, **more)
        folder = bench.folder(attempt)
        folder.create(order)
        launch(folder, bench.startup(secrets={"PW": "hush-hush"}))
        assert bench.await_end(attempt, 300).outcome is Outcome.SUCCEEDED, folder.log.read_text()
        return Path(order.output)

    parameters = {"name": hostile, "day": "2026-01-01", "rows": 2}
    loaded = run("run1.load-all.1", LOADS, parameters=parameters)
    read = run("run1.read.1", READS, parameters=parameters, inputs={"load-all": str(loaded)})

    assert sorted(place.name for place in (bench.data / loaded).iterdir()) == ["data", "names", "orders"]
    (shown,) = pq.read_table(bench.data / loaded / "data").to_pylist()
    assert shown["key"] == "spark.sql.of.password"
    assert "redacted" in shown["value"]
    assert said_by_events(bench.folder("run1.load-all.1").work).count("spark.sql.of.password") > 5
    for place in bench.root.rglob("*"):
        assert not place.is_file() or b"hush-hush" not in place.read_bytes(), place
    assert "hush-hush" not in said_by_events(bench.folder("run1.load-all.1").work)
    rows = pq.read_table(bench.data / read / "data").to_pylist()
    assert rows == [{"n": 5, "name": hostile, "other": "b;b"}]


def test_spark_reports_progress_and_dies_with_its_runner(bench: Bench) -> None:
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", HANGS), task_kind=TaskKind.PYSPARK))
    launch(folder, bench.startup())
    eventually(lambda: bench.slots().progress.get("tasks_active") == 2, "progress", 300)
    assert bench.slots().progress["tasks_total"] == 2
    runner = bench.runner()
    assert runner is not None

    os.kill(runner.pid, signal.SIGKILL)

    # PDEATHSIG ends Python; its JVM and Spark's workers end by themselves, before they are killed.
    eventually(lambda: bench.driver_tree() == [], "the tree is gone", 60)


def test_spark_task_above_its_limit_of_memory_is_ended_with_its_jvm(bench: Bench) -> None:
    order = bench.order(
        bench.script("task.py", HANGS), task_kind=TaskKind.PYSPARK, limits=Limits(memory_bytes=150 << 20)
    )
    folder = bench.folder()
    folder.create(order)
    launch(folder, bench.startup())

    end = bench.await_end(deadline_s=300)

    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 137)
    assert end.reason.startswith("ended: it used ")
    assert end.reason.endswith("MiB of memory, and its limit is 150.0 MiB")
    assert bench.driver_tree() == []


def test_end_says_what_the_spark_of_all_its_contexts_did(bench: Bench) -> None:
    order = bench.order(bench.script("task.py", SPILLS), task_kind=TaskKind.PYSPARK)
    folder = bench.folder()
    folder.create(order)
    launch(folder, bench.startup())
    end = bench.await_end(deadline_s=300)

    assert (end.outcome, end.reason) == (Outcome.SUCCEEDED, ""), folder.log.read_text()
    cost = end.cost
    assert cost is not None
    assert (cost.peak_memory_bytes or 0) > 150 << 20, "that of the JVM"
    assert (cost.cpu_ms or 0) > 1000
    assert (cost.task_ms or 0) > 100
    assert (cost.spill_bytes or 0) > 10_000, "of the first context, which the task has stopped"
    assert (cost.shuffle_write_bytes or 0) > 10_000, "of the second, which the driver stops"
    assert cost.shuffle_read_bytes == cost.shuffle_write_bytes
