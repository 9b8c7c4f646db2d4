"""Tasks in `mode: connect` on a real Spark Connect server of a worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.pipeline import SparkMode, TaskKind
from nimbus.domain.run import Outcome
from nimbus.domain.slots import End
from nimbus.java import find_java
from nimbus.worker import connect_server, procfs
from nimbus.worker.connect_server import LocalServer, LocalServerSettings
from nimbus.worker.procfs import ProcessId
from nimbus.worker.testing_bench import Bench, eventually
from nimbus.worker.worker import Worker

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_home"), pytest.mark.timeout(900)]

SOON = timedelta(seconds=10)
SUM = "SELECT sum(id) AS total FROM range(1000)"
ADOPTS = """
import os
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from nimbus.task import context

spark = SparkSession.builder.appName("mine").getOrCreate()
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
spark.range(5).createOrReplaceTempView("five")
spark.stop()
spark = SparkSession.builder.getOrCreate()
assert spark.table("five").count() == 5, "another session"
twice = udf(lambda n: 2 * n, "long")
spark.range(10).select(twice("id").alias("n")).write.parquet(str(context().output / "data"))
"""
BEATS = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

file = sys.argv[1]

def beat(n):
    import time
    for _ in range(6000):
        with open(file, "a") as beats:
            beats.write(".")
        time.sleep(0.05)
    return n

spark = SparkSession.builder.getOrCreate()
spark.range(1).select(udf(beat, "long")("id")).collect()
"""


class Stage:
    """A bench whose workers have Connect servers."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.beats = bench.root / "beats"
        self._workers: list[Worker] = []

    def server(self, idle_timeout: timedelta = timedelta(minutes=10)) -> LocalServer:
        return LocalServer(
            LocalServerSettings(
                folder=self.bench.root / "w1" / "connect",
                master="local[2]",
                spark_conf={},
                env={},
                java_home=lambda: find_java().java_home,
                idle_timeout=idle_timeout,
            )
        )

    def worker(self, **more: Any) -> Worker:
        worker = self.bench.worker("w1", settings={"connect": self.server(**more)})
        worker.start()
        self._workers.append(worker)
        return worker

    def end_workers(self) -> None:
        for worker in self._workers:
            worker.close(SOON)
        self._workers.clear()

    def assign(self, script: str, attempt: str = "run1.task.1", **more: Any) -> None:
        kind = TaskKind.SQL if script.endswith(".sql") else TaskKind.PYSPARK
        order = self.bench.order(
            script, attempt=attempt, task_kind=kind, spark_mode=SparkMode.CONNECT, **more
        )
        self.bench.board.assign("w1", order)

    def beating(self, attempt: str = "run1.task.1") -> None:
        """Have an operation run that shows that it does."""
        self.assign(self.bench.script("beats.py", BEATS), attempt, args=(str(self.beats),))
        eventually(self.beats.exists, "an operation", 120)

    def servers(self) -> list[ProcessId]:
        return [
            found.id
            for found in procfs.living()
            if found.session == found.id.pid
            and procfs.has_variable(found.id.pid, "TMPDIR", str(self._folder_of(found.id) / "tmp"))
        ]

    def _folder_of(self, process: ProcessId) -> Path:
        for file in (self.bench.root / "w1" / "connect").glob("*/server.json"):
            if f'"pid":{process.pid},' in file.read_text():
                return file.parent
        return Path("/nowhere")

    def has_stopped_beating(self) -> bool:
        """The last operation has ended: nothing was written for longer than its pauses."""
        return time.time() - self.beats.stat().st_mtime > 1.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    bench = Bench(tmp_path)
    made = Stage(bench)
    yield made
    made.end_workers()
    for server in made.servers():
        connect_server.end_server(server)
    bench.close()


def succeeded(bench: Bench, attempt: str) -> End:
    end = bench.await_end(attempt, 120)
    assert end.outcome is Outcome.SUCCEEDED, bench.folder(attempt).log.read_text()
    return end


def test_tasks_share_one_server_each_with_a_session_of_its_own(stage: Stage) -> None:
    pq: Any = pytest.importorskip("pyarrow.parquet")
    bench = stage.bench
    worker = stage.worker()

    stage.assign(bench.script("sum.sql", SUM), "run1.sum.1")
    succeeded(bench, "run1.sum.1")
    stage.assign(
        bench.script("adopts.py", ADOPTS), "run1.adopts.1", spark_conf={"spark.sql.shuffle.partitions": "3"}
    )
    succeeded(bench, "run1.adopts.1")

    assert pq.read_table(bench.data / "bench/run1/sum/1/data").to_pylist() == [{"total": 499500}]
    assert sum(pq.read_table(bench.data / "bench/run1/adopts/1/data")["n"].to_pylist()) == 90
    sessions = [bench.slots(attempt).claim.session for attempt in ("run1.sum.1", "run1.adopts.1")]  # type: ignore[union-attr]
    assert all(session is not None and session.server_session_id for session in sessions)
    assert len({session.session_id for session in sessions if session is not None}) == 2
    assert len({session.url for session in sessions if session is not None}) == 1
    assert "token" not in bench.folder("run1.sum.1").driver_file.read_text()
    assert worker.failure is None

    stage.end_workers()

    assert stage.servers() == []
