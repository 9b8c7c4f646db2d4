"""Tasks in environments of their own: real interpreters without Nimbus, and an older Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.pipelines.pipeline import Isolation, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.java import find_java, java_version
from nimbus.worker.environments import Environments, TaskEnvironment
from tests.nimbus.worker_bench import Bench, RecordingRegistrations, eventually
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


COUNT = """
from nimbus.task import context
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()
assert spark.range(3).select(udf(lambda n: n + 1, "long")("id").alias("n")).agg({"n": "sum"}).first()[0] == 6
context().result(spark=spark.version)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def _ended(bench: Bench, interpreter: Path, *orders: Any, spark_home: Path | None = None) -> End:
    """The end of the last order; each is given after the end of the one before."""
    environment = TaskEnvironment(name="other", python=interpreter, spark_home=spark_home)
    java_home = partial(getattr, find_java(), "java_home")
    settings = {"environments": Environments([environment], java_home), "java_home": java_home}
    worker = bench.worker(settings=settings)
    worker.start()
    try:
        for order in orders:
            bench.board.assign("w1", order)
            ended = bench.await_end(order.attempt, 300)
        return ended
    finally:
        worker.close(timedelta(seconds=20))


def _bare(place: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    return place


@pytest.mark.parametrize("isolation", list(Isolation))
def test_task_runs_in_an_interpreter_without_our_packages(
    bench: Bench, tmp_path: Path, isolation: Isolation
) -> None:
    place = _bare(tmp_path / "other")
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    (packages / "packed.py").write_text("WORD = 'packed'")
    before = bench.order(bench.script("plain.py", ""), attempt="run1.plain.1", isolation=isolation)
    order = bench.order(bench.script("task.py", BARE), environment="other", isolation=isolation)

    ended = _ended(bench, place / "bin" / "python", before, order)

    assert (ended.outcome, ended.reason) == (Outcome.SUCCEEDED, "")
    assert (bench.data / str(ended.output) / "said").read_text() == f"{place} packed {{}}"


def test_worker_tells_that_an_environment_is_mended(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nimbus.worker.worker._PROBE_ENVIRONMENTS_EVERY_S", 0.05)
    place, told = tmp_path / "python", RecordingRegistrations()
    settings = {
        "environments": Environments([TaskEnvironment(name="other", python=place)]),
        "heartbeat": timedelta(milliseconds=50),
    }
    worker = bench.worker(settings=settings, registrations=told)
    worker.start()
    try:
        eventually(lambda: told.workers, "the registration")
        assert "No such file" in told.workers[0].environments["other"]
        assert told.workers[0].labels == ()
        place.symlink_to(sys.executable)
        eventually(lambda: told.workers[-1].labels == ("environment:other",), "the label", 60)
    finally:
        worker.close(timedelta(seconds=20))


def _with_spark(version: str) -> Path:
    """The interpreter of a virtual environment with the newest PySpark of a version; made once.

    With another Python than ours: NIMBUS_TEST_PYTHON.
    """
    python = Path(os.environ.get("NIMBUS_TEST_PYTHON", sys.executable))
    told = subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout
    name = f"python{told.split()[-1]}-spark{version}"
    place = Path(__file__).parents[3] / "build" / "environments" / name
    if not (place / "made").exists():
        subprocess.run([python, "-m", "venv", "--clear", place], check=True)
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
        ("4.3", "read: 10"),
    ],
)
def test_tasks_run_with_another_spark_and_what_it_lacks_is_refused_with_the_version(
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


@thorough
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java_home")
def test_interpreter_without_pyspark_has_that_of_its_spark_home(bench: Bench, tmp_path: Path) -> None:
    (home,) = _with_spark("4.0").parents[1].glob("lib/python3.*/site-packages/pyspark")
    script = bench.script("task.py", COUNT)
    order = bench.order(script, task_kind=TaskKind.PYSPARK, environment="other")

    ended = _ended(bench, _bare(tmp_path / "other") / "bin" / "python", order, spark_home=home)

    assert (ended.outcome, ended.reason) == (Outcome.SUCCEEDED, "")
    assert str((ended.result or {})["spark"]).startswith("4.0.")


@thorough
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_does_not_start_on_the_java_that_is_refused() -> None:
    new = [home for home in Path("/usr/lib/jvm").glob("*") if (java_version(home) or 0) >= 24]
    if not new:
        pytest.skip("there is no Java 24 or newer in /usr/lib/jvm")
    python = _with_spark("3.5")

    said = Environments([TaskEnvironment(name="other", python=python, java_home=new[0])])["other"]
    start = "from pyspark.sql import SparkSession; SparkSession.builder.master('local[1]').getOrCreate()"
    variables = {**os.environ, "JAVA_HOME": str(new[0])}
    tried = subprocess.run([python, "-c", start], env=variables, check=False, capture_output=True, text=True)

    assert "needs Java 8 to 23" in str(said)
    assert tried.returncode != 0
    assert "getSubject is not supported" in tried.stderr
