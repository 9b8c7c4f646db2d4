"""Cluster deploy mode on a real standalone cluster, while its schedulers and workers are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.localstack.daemons import StackTuning
from nimbus.localstack.folder import tagged_processes
from nimbus.localstack.stack import LocalStack
from tests.nimbus.java_source import needs_javac, numbers_jar
from tests.thorough import thorough

pytestmark = [thorough, needs_javac]
Eventually = Callable[..., None]
NIMBUS = [sys.executable, "-m", "nimbus.cli.main"]
PIPELINE = """\
schema: 1
name: sums
python_path: [lib]
jars: [jars/*.jar]
defaults:
  spark: {target: standalone, deploy: cluster}
  retries: {limit: 1, delay: 1s}
tasks:
  sum: {type: pyspark, script: jobs/sum.py}
  told: {type: sql, script: told.sql, needs: [sum]}
"""
SCRIPT = """\
import time
from pathlib import Path
from nimbus.task import context
from pyspark.sql import SparkSession
from shared import plus_one

ctx = context()
spark = SparkSession.builder.getOrCreate()
with open({ran!r}, "a") as file:
    file.write(f"{{ctx.run_id}} {{ctx.attempt}} {{spark.sparkContext.applicationId}}\\n")
print("application_1700000000000_0001 driver-20200101000000-0000")  # of another user
until = time.monotonic() + 120
while not (Path({gates!r}) / ctx.run_id).exists() and time.monotonic() < until:
    time.sleep(0.05)
assert spark.read.format("example.Numbers").load().first().told == "of the release"
total = spark.sparkContext.parallelize(range(1000), 4).map(plus_one).sum()
spark.createDataFrame([(total,)], "total long").write.parquet(str(ctx.output / "data"))
"""


class Cluster:
    """A stack with a standalone cluster, and a pipeline that runs on it."""

    def __init__(self, root: Path, eventually: Eventually, tuning: StackTuning) -> None:
        self.root, self.folder, self.eventually = root, root / "stack", eventually
        self.ran, self.gates = root / "ran", root / "gates"
        self.stack = LocalStack(self.folder, 2, standalone=True, tuning=tuning)

    def files(self) -> dict[str, str]:
        """Files of the pipeline."""
        return {
            "pipeline.yaml": PIPELINE,
            "jobs/sum.py": SCRIPT.format(ran=str(self.ran), gates=str(self.gates)),
            "lib/shared.py": "def plus_one(number):\n    return number + 1\n",
            "told.sql": "SELECT total FROM sum",
        }

    def start(self) -> None:
        self.gates.mkdir()
        place = self.root / "sums"
        for name, text in self.files().items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        (place / "jars").mkdir()
        numbers_jar(place / "jars" / "numbers.jar", "of the release")
        self.stack.start()
        self.stack.wait_ready(timedelta(seconds=120))
        config = str(self.stack.config_file(1))
        self.ask("pipeline", "publish", str(place), "--activate", "--config", config)

    def ask(self, *words: str) -> str:
        servers = ",".join(self.stack.addresses.schedulers)
        done = subprocess.run(
            [*NIMBUS, *words],
            env={**os.environ, "NIMBUS_SERVER": servers},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def begin(self, run: str) -> None:
        """Start a run, and wait until its task runs."""
        self.ask("run", "start", "sums", "--run-id", run)
        self.eventually(lambda: self.runs(run), within_s=600, what="the task computes")

    def runs(self, run: str) -> list[list[str]]:
        """Attempt and application of each execution of a run's task."""
        lines = self.ran.read_text().splitlines() if self.ran.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(f"{run} ")]

    def application(self, run: str) -> object:
        """The application of a run's task, as `run show` reports it; None while it does not."""
        tasks = json.loads(self.ask("run", "show", run, "-o", "json"))["tasks"]
        (attempt,) = next(task for task in tasks if task["name"] == "sum")["attempts"]
        return (attempt["progress"] or {}).get("application")

    def finish(self, run: str) -> dict[str, Any]:
        """Let the task continue. Returns the run, which has succeeded."""
        (self.gates / run).touch()
        self.ask("run", "watch", run, "--watch-timeout", "880")
        found: dict[str, Any] = json.loads(self.ask("run", "show", run, "-o", "json"))
        assert found["state"] == "succeeded"
        return found

    def leader(self) -> int:
        """Number of the leading scheduler."""
        told = json.loads(self.ask("cluster", "status", "-o", "json"))
        return next(
            number
            for number, address in enumerate(self.stack.addresses.schedulers, 1)
            if told["leader"] is not None and told["leader"]["address"] == address
        )


@pytest.fixture
def cluster(tmp_path: Path, java_home: Path, eventually: Eventually) -> Iterator[Cluster]:
    made = Cluster(tmp_path, eventually, StackTuning(keeps_jvms=False))
    try:
        made.start()
        yield made
    finally:
        made.stack.stop()
    assert tagged_processes(made.folder) == []


def test_application_goes_on_when_leader_submitter_and_master_are_killed(cluster: Cluster) -> None:
    cluster.begin("while")
    ((_, application),) = cluster.runs("while")
    cluster.eventually(lambda: cluster.application("while") == application, what="people can find it")
    number = cluster.leader()
    cluster.stack.kill_scheduler(number)  # with its worker; one of the two workers has submitted
    master = cluster.stack.spark.leader()
    assert master is not None
    master.kill()
    cluster.eventually(
        lambda: cluster.stack.spark.leader() is not None, within_s=60, what="the other master leads"
    )
    cluster.stack.kill_scheduler(3 - number)
    cluster.stack.restart_scheduler(number)
    cluster.stack.restart_scheduler(3 - number)
    cluster.stack.wait_ready(timedelta(seconds=120))

    tasks = {task["name"]: task for task in cluster.finish("while")["tasks"]}

    assert len(cluster.runs("while")) == 1, "in the same application"
    cost = tasks["sum"]["attempts"][-1]["cost"]
    assert cost["peak_memory_bytes"] > 150 << 20, "that of the driver's JVM"
    assert cost["cpu_ms"] > 1000
    assert cost["task_ms"] > 0


def test_task_is_repeated_once_when_the_workers_of_spark_are_killed(cluster: Cluster) -> None:
    cluster.begin("again")
    for worker in cluster.stack.spark.workers:
        worker.kill()
    for worker in cluster.stack.spark.workers:
        worker.spawn()
    (cluster.gates / "again").touch()

    cluster.finish("again")

    assert [attempt for attempt, _ in cluster.runs("again")] == ["1", "2"]
