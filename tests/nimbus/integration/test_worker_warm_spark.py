"""Real Spark in warm drivers: what a task sees, and settings that a warm JVM cannot apply."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from nimbus.domain.pipeline import TaskKind
from nimbus.domain.task_run import Outcome
from nimbus.domain.workers import Assignment
from nimbus.worker import procfs
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.fork_launcher import ForkLauncher
from nimbus.worker.task_telemetry import TaskTelemetry
from nimbus.worker.warm.launcher import WarmLauncher
from nimbus.worker.warm.pair import WarmPair
from nimbus.worker.warm.plan import warm_plan
from tests.nimbus.worker_bench import Bench, RecordingRegistrations, eventually
from tests.thorough import thorough

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_home"), pytest.mark.timeout(1800)]

SEES_ITS_ATTEMPT = """
import os, sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from nimbus.task import context
from shared import double

assert SparkContext._active_spark_context is None
assert "exercise" not in os.listdir(os.getcwd()), os.listdir(os.getcwd())
print("at first:", os.listdir(os.getcwd()))
os.environ["PYTHONPATH"] += os.pathsep + "/of/the/task"
spark = SparkSession.builder.getOrCreate()
assert not spark.sparkContext.statusTracker().getJobIdsForGroup()
folder = "/attempts/run1.task.1"
work = os.path.join(folder, "work")
conf = dict(spark.sparkContext.getConf().getAll())
assert conf["spark.app.name"] == spark.sparkContext.appName == "run1.task.1", conf
assert conf["spark.sql.warehouse.dir"].endswith(work + "/tmp/spark-warehouse"), conf
assert work + "/tmp " in conf["spark.driver.extraJavaOptions"] + " ", conf
assert not [value for value in conf.values() if "/warm/" in value], conf
assert conf["spark.openlineage.parentJobName"] == "bench.task", conf
assert conf["spark.openlineage.parentRunId"] and os.environ["TRACEPARENT"]
for session in (spark, spark.newSession()):
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    assert session.catalog.listTables() == []
assert os.getcwd().endswith(work + "/tmp") and os.path.samefile(".", os.environ["TMPDIR"])
java = spark._jvm.java.io.File.createTempFile("abc", "def").getPath()
assert os.path.realpath(java).startswith(os.getcwd() + "/"), java
assert [name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("blockmgr-")]

def told(n):
    assert "/of/the/task" in os.environ["PYTHONPATH"]
    return f"{os.environ['NIMBUS_ATTEMPT'].split('/')[1]} {context().task} {double(int(n))}"

assert spark.range(1).select(udf(told)("id")).first()[0] == "run1.task.1 task 0"
spark.range(10).write.parquet(str(context().output / "data"))
print("all is well")
"""
OWN_CONTEXT = """
from pyspark import SparkConf, SparkContext
context = SparkContext("local[1]", "my own", conf=SparkConf().set("spark.default.parallelism", "7"))
assert (context.master, context.appName, context.defaultParallelism) == ("local[1]", "my own", 7)
assert context.parallelize(range(10)).sum() == 45
context.stop()
again = SparkContext("local[2]", "another")
assert (again.master, again.appName) == ("local[2]", "another")
print("all is well")
"""
OWN_MEMORY = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.driver.memory", "600m").appName("own").getOrCreate()
assert spark.sparkContext.getConf().get("spark.driver.memory") == "600m"
heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
assert 500 < heap <= 600, heap
assert spark.sparkContext.appName == "own"
assert spark.range(10).count() == 10
print("all is well")
"""
SUMS = "SELECT sum(id) AS total FROM range(10)"


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[WarmLauncher]:
    launcher = WarmLauncher(ForkLauncher(), tmp_path / "w1", limit=1, slots=2, memory=lambda: 64 << 30)
    launcher.start()
    yield launcher
    launcher.close()


@pytest.fixture
def bench(tmp_path: Path, warm: WarmLauncher) -> Iterator[Bench]:
    made = Bench(tmp_path, warm)
    made.script("lib/shared.py", "def double(n):\n    return 2 * n\n")
    yield made
    made.close()


def _warmed(bench: Bench, warm: WarmLauncher, order: Assignment) -> WarmPair:
    """Prepare a driver that fits an order."""
    plan = warm_plan(bench.startup().plan, order)
    assert plan is not None
    pair = WarmPair(bench.root / "w1", warm._forks, plan)
    warm.pairs.append(pair)

    def ready() -> bool:
        assert pair.look(), pair.last_words
        return pair.is_ready

    eventually(ready, "a warm driver", 600)
    return pair


def _ran(bench: Bench, folder: AttemptFolder) -> str:
    end = bench.await_end(deadline_s=600)
    assert end.outcome is Outcome.SUCCEEDED, folder.log.read_text()
    eventually(lambda: folder.is_delivered, "delivery")
    assert "driver_was_warm" in folder.runner_log.read_text()
    return folder.log.read_text()


def _launched(bench: Bench, order: Assignment, **plan: Any) -> AttemptFolder:
    folder = bench.folder()
    folder.create(order)
    bench.launch(folder, bench.startup(**plan))
    return folder


def test_task_in_a_warm_driver_sees_its_own_attempt_and_nothing_of_before(
    bench: Bench, warm: WarmLauncher
) -> None:
    order = bench.order(
        bench.script("task.py", SEES_ITS_ATTEMPT),
        task_kind=TaskKind.PYSPARK,
        python_path=("lib",),
        spark_conf={"spark.sql.shuffle.partitions": "3"},
    )
    _warmed(bench, warm, order)

    told = TaskTelemetry(traces=True, namespace="prod", transport={"transport.type": "http"})
    folder = _launched(bench, order, telemetry=told)

    eventually(bench.driver_tree, "the driver bears the attempt's tag")
    log = _ran(bench, folder)
    assert "all is well" in log
    assert "Spark is started anew" not in log
    eventually(lambda: bench.processes() == [], "all its processes end")
    eventually(lambda: list((bench.root / "w1" / "warm").iterdir()) == [], "the link is removed")
    assert not folder.spark_local.exists()


@thorough
def test_task_that_makes_its_own_context_gets_it_as_it_asks_for_it(bench: Bench, warm: WarmLauncher) -> None:
    order = bench.order(bench.script("task.py", OWN_CONTEXT), task_kind=TaskKind.PYSPARK)
    _warmed(bench, warm, order)

    log = _ran(bench, _launched(bench, order))

    assert "all is well" in log
    assert "Spark is started anew" not in log


@thorough
def test_task_that_sets_what_a_running_jvm_cannot_change_gets_another_jvm(
    bench: Bench, warm: WarmLauncher
) -> None:
    order = bench.order(bench.script("task.py", OWN_MEMORY), task_kind=TaskKind.PYSPARK)
    _warmed(bench, warm, order)

    log = _ran(bench, _launched(bench, order))

    assert "all is well" in log
    assert "Spark is started anew: the task sets spark.driver.memory" in log


def test_worker_warms_a_driver_after_a_spark_task_and_gives_it_the_next_one(
    tmp_path: Path, java_home: Path
) -> None:
    bench, told = Bench(tmp_path), RecordingRegistrations()
    settings = {"java_home": lambda: java_home}
    worker = bench.worker(registrations=told, settings=settings)
    worker.start()
    try:
        first = bench.order(
            bench.script("task.py", "print(1)\n"), attempt="run1.first.1", task_kind=TaskKind.PYSPARK
        )
        bench.board.assign("w1", first)
        bench.await_end("run1.first.1", 600)
        eventually(lambda: told.workers[-1].warm_drivers == "1 ready", "a warm driver", 600)

        order = bench.order(bench.script("sum.sql", SUMS), task_kind=TaskKind.SQL)
        bench.board.assign("w1", order)

        folder = bench.folder()
        eventually(folder.runner_log.exists, "the attempt is launched")
        assert "result: " in _ran(bench, folder)
        assert told.workers[-1].class_archive == "off"
    finally:
        worker.close(timedelta(seconds=10))
        bench.close()


def test_worker_with_less_memory_than_warming_needs_warms_nothing_and_says_so(
    tmp_path: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2 << 30))
    bench, told = Bench(tmp_path), RecordingRegistrations()
    settings = {"java_home": lambda: java_home}
    worker = bench.worker(registrations=told, settings=settings)
    worker.start()
    try:
        order = bench.order(bench.script("task.py", "print(1)\n"), task_kind=TaskKind.PYSPARK)
        bench.board.assign("w1", order)
        assert bench.await_end(deadline_s=600).outcome is Outcome.SUCCEEDED

        why = "none: 2.0 GiB of memory are available, 3.4 GiB would be needed"
        eventually(lambda: told.workers[-1].warm_drivers == why, "the worker says why", 60)
        assert told.workers[-1].memory_available_bytes == 2 << 30
        assert not [one for one in told.workers if one.warm_drivers[0].isdigit()], "none was ever started"
        assert not list((bench.root / "w1").glob("warm/*"))
    finally:
        worker.close(timedelta(seconds=10))
        bench.close()


def test_waiting_jvm_ends_with_its_worker(bench: Bench, warm: WarmLauncher) -> None:
    pair = _warmed(bench, warm, bench.order("task.py", task_kind=TaskKind.PYSPARK))

    def session() -> list[procfs.ProcessStat]:
        return [found for found in procfs.living() if found.session == pair.runner.pid]

    assert len(session()) >= 3

    warm.close()

    eventually(lambda: session() == [], "runner, driver and JVM end", 60)
    eventually(lambda: list((bench.root / "w1" / "warm").iterdir()) == [], "their folder is removed")
