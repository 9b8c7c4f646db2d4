"""The data source for Spark in real drivers: one script, with outputs in a folder and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.pipelines.pipeline import SparkMode, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.localstack.s3 import S3Server
from nimbus.worker.connect.server import LocalServer, LocalServerSettings
from tests.nimbus.worker_bench import Bench, eventually
from tests.thorough import thorough

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_home"), pytest.mark.timeout(900)]

WRITES = """
from pyspark.sql import SparkSession
from nimbus.task import context
spark, ctx = SparkSession.builder.getOrCreate(), context()
frame = spark.range(1000).selectExpr("id", "id * 2 AS twice", "cast(id AS string) AS name").repartition(3)
frame.write.format("nimbus").mode("append").save(ctx.output_uri + "/table")
frame.where("id < 0").write.format("nimbus").mode("append").save(ctx.output_uri + "/none")
parts = spark.range(100).selectExpr("id", "cast(id % 5 AS int) AS k").repartition(1)
parts.write.format("nimbus").mode("append").partitionBy("k").save(ctx.output_uri + "/parts")
anew = parts.where("k = 1").selectExpr("id + 1000 AS id", "k")
anew.write.format("nimbus").mode("overwrite").option("partitionBy", "k").save(ctx.output_uri + "/parts")
SparkSession.builder.getOrCreate()
"""
READS = """
from pyspark.sql import SparkSession
from nimbus.task import context
spark, ctx = SparkSession.builder.getOrCreate(), context()
frame = spark.read.format("nimbus").load(ctx.input_uri("make", "table"))
found = frame.where("id < 10").selectExpr("count(*)", "sum(twice)", "max(name)").first()
none = spark.read.format("nimbus").load(ctx.input_uri("make", "none"))
assert (none.columns, none.count()) == (frame.columns, 0)
parts = spark.read.format("nimbus").load(ctx.input_uri("make", "parts"))
table = ctx.input_uri("make", "parts")
one = spark.read.format("nimbus").option("basePath", table).load(table + "/k=1")
assert parts.schema["k"].dataType.simpleString() == "int"
assert (parts.where("k = 1").count(), parts.count(), one.count()) == (20, 100, 20)
assert tuple(one.selectExpr("min(id)", "min(k)").first()) == (1001, 1)
beside = spark.read.parquet(str(ctx.inputs["make"] / "table")).count()
(ctx.output / "found").write_text(repr((*found, beside, ctx.input_files("make", "table")[0][:5])))
print(ctx)
"""


def access_to(server: S3Server) -> dict[str, str]:
    return {
        "endpoint_url": server.endpoint_url,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
    }


@pytest.fixture
def bench(tmp_path: Path, place: str, s3_server: S3Server, s3_bucket: str) -> Iterator[Bench]:
    made = Bench(tmp_path)
    if place == "bucket":
        made.keep_outputs_in(f"s3://{s3_bucket}/data", **access_to(s3_server))
    yield made
    made.close()


@thorough
@pytest.mark.parametrize("place", ["bucket", "folder"])
@pytest.mark.parametrize("mode", list(SparkMode))
def test_table_that_one_task_wrote_is_read_by_the_next(
    bench: Bench, s3_server: S3Server, java_home: Path, mode: SparkMode
) -> None:
    settings: dict[str, Any] = {"idle_jvms": 0, "java_home": lambda: java_home}
    if bench.data_uri is not None:
        settings["data_access"] = access_to(s3_server)
    server = _connect_server(bench, java_home) if mode is SparkMode.CONNECT else None
    worker = bench.worker(settings={**settings, "connect": server})
    worker.start()
    try:
        _give(bench, WRITES, "run1.make.1", spark_mode=mode)
        made = bench.await_end("run1.make.1", 300)
        assert made.output is not None, made.reason

        _give(bench, READS, "run1.use.1", spark_mode=mode, inputs={"make": made.output})
        used = bench.await_end("run1.use.1", 300)
        assert used.outcome is Outcome.SUCCEEDED, used.reason
        if server is not None:
            eventually(lambda: not server.look_after(), "the server has ended", 60)
    finally:
        worker.close(timedelta(seconds=10))

    log = bench.folder("run1.use.1").log.read_text()
    assert s3_server.secret_key not in log
    assert _content(bench, used.output or "") == repr((10, 90, "9", 1000, (bench.data_uri or "file:")[:5]))


def _connect_server(bench: Bench, java_home: Path) -> LocalServer:
    pytest.importorskip("grpc")
    return LocalServer(
        LocalServerSettings(
            folder=bench.root / "w1" / "connect",
            master="local[2]",
            spark_conf={},
            env={},
            java_home=lambda: java_home,
            idle_timeout=timedelta(seconds=5),
        )
    )


def _give(bench: Bench, text: str, attempt: str, **order: object) -> None:
    script = bench.script(f"{attempt}.py", text)
    bench.board.assign("w1", bench.order(script, attempt=attempt, task_kind=TaskKind.PYSPARK, **order))


def _content(bench: Bench, reference: str) -> str:
    if bench.data_uri is None:
        return (bench.data / reference / "found").read_text()
    place = bench.place("other")
    place.fetch(reference)
    return (place.input(reference) / "found").read_text()
