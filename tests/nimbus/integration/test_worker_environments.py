"""Tasks in environments of their own: real interpreters without Nimbus, and an older Spark."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.pipeline import Isolation, TaskKind
from nimbus.domain.slots import End
from nimbus.domain.task_run import Outcome
from nimbus.java import find_java
from nimbus.worker.environments import TaskEnvironment, find_environment
from tests.nimbus.worker_bench import Bench
from tests.thorough import thorough

BARE = """
import importlib.util, sys, packed
from nimbus.task import context
ctx = context()
assert importlib.util.find_spec("pydantic") is None, "our packages are not in this environment"
(ctx.output / "said").write_text(f"{sys.prefix} {packed.WORD} {ctx.parameters}")
ctx.result(python=sys.version.split()[0])
"""
SPARK = """
import sys
from nimbus.task import context
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()
def where(_):
    import sys
    return sys.prefix
table = spark.range(10).select("id", udf(where)("id").alias("place"))
assert {row.place for row in table.collect()} == {sys.prefix}
table.write.parquet(str(context().output / "data"))
context().result(spark=spark.version)
try:
    table.write.format("nimbus").mode("append").partitionBy("place").save(context().output_uri + "/table")
    print("read:", spark.read.format("nimbus").load(context().output_uri + "/table").count(), flush=True)
except NotImplementedError as exc:
    print("refused:", exc, flush=True)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def _ended(bench: Bench, interpreter: Path, *orders: Any) -> End:
    """The end of the last order; each is given after the end of the one before."""
    environment = TaskEnvironment(name="other", python=interpreter)
    found = find_environment(environment, find_java().java_home)
    settings = {"environments": {"other": found}, "java_home": lambda: find_java().java_home}
    worker = bench.worker(settings=settings)
    worker.start()
    try:
        for order in orders:
            bench.board.assign("w1", order)
            ended = bench.await_end(order.attempt, 300)
        return ended
    finally:
        worker.close(timedelta(seconds=20))


@pytest.mark.parametrize("isolation", list(Isolation))
def test_task_runs_in_an_interpreter_without_our_packages(
    bench: Bench, tmp_path: Path, isolation: Isolation
) -> None:
    place = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    (packages / "packed.py").write_text("WORD = 'packed'")
    before = bench.order(bench.script("plain.py", ""), attempt="run1.plain.1", isolation=isolation)
    order = bench.order(bench.script("task.py", BARE), environment="other", isolation=isolation)

    ended = _ended(bench, place / "bin" / "python", before, order)

    assert (ended.outcome, ended.reason) == (Outcome.SUCCEEDED, "")
    assert (bench.data / str(ended.output) / "said").read_text() == f"{place} packed {{}}"


def _with_spark(version: str) -> Path:
    """The interpreter of a virtual environment with the newest PySpark of a version; made once."""
    place = Path(__file__).parents[3] / "build" / "environments" / f"spark{version}"
    if not (place / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        pip = [place / "bin" / "pip", "install", "--quiet"]
        subprocess.run([*pip, f"pyspark=={version}.*", "pyarrow", "pandas"], check=True, timeout=900)
        (place / "made").touch()
    return place / "bin" / "python"


@thorough
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("java_home")
@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("3.5", "refused: the format nimbus needs Spark 4.0 or newer, and this is 3.5."),
        ("4.0", "read: 10"),
        ("4.2", "read: 10"),
    ],
)
def test_tasks_run_with_an_older_spark_and_what_it_lacks_is_refused_with_the_version(
    bench: Bench, version: str, said: str
) -> None:
    interpreter = _with_spark(version)
    script = bench.script("task.py", SPARK)
    made = _ended(bench, interpreter, bench.order(script, task_kind=TaskKind.PYSPARK, environment="other"))
    assert (made.outcome, made.reason) == (Outcome.SUCCEEDED, "")
    assert str((made.result or {})["spark"]).startswith(f"{version}.")
    assert made.cost is not None
    assert (made.cost.task_ms or 0) > 0
    assert made.cost.spill_bytes == 0
    assert said in (bench.root / "w1" / "attempts" / "run1.task.1" / "log").read_text()

    assert made.output is not None
    order = bench.order(
        bench.script("count.sql", "SELECT count(*) n FROM make"),
        task_kind=TaskKind.SQL,
        environment="other",
        attempt="run1.count.1",
        inputs={"make": made.output},
    )
    counted = _ended(bench, interpreter, order)
    assert (counted.outcome, counted.reason) == (Outcome.SUCCEEDED, "")
