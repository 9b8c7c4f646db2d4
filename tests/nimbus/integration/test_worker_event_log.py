"""Spark's event log of an attempt, read by Spark's own history server."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest

from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.localstack.ports import free_port
from nimbus.ports import KeptLog
from nimbus.worker.launcher import launch
from tests.nimbus.worker_bench import Bench, eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.thorough,  # JVMs
    pytest.mark.timeout(900),
]

JOB = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("counted", spark.range(0, 100, 1, 3).selectExpr("id % 7 AS k").groupBy("k").count().count())
if "die" in sys.argv:
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.script("job.py", JOB)
    yield made
    made.close()


class HistoryServer:
    """Spark's own history server, from PySpark's jars."""

    def __init__(self, java_home: Path, logs: Path, scratch: Path) -> None:
        jars = Path(pyspark.__file__).parent / "jars"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/api/v1"
        conf = {
            "spark.history.fs.logDirectory": f"file://{logs}",
            "spark.history.ui.port": str(port),
            "spark.history.fs.update.interval": "1s",
        }
        said = [f"-D{name}={value}" for name, value in conf.items()]
        with (scratch / "history.log").open("wb") as out:
            self._process = subprocess.Popen(
                [
                    str(java_home / "bin" / "java"),
                    *("-Xmx512m", f"-Djava.io.tmpdir={scratch}", *said),
                    *("-cp", f"{jars}/*", "org.apache.spark.deploy.history.HistoryServer"),
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=scratch,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def get(self, path: str) -> Any:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/{path}", timeout=60) as answer:
            return json.load(answer)
        return None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _run(bench: Bench, attempt: str, *args: str) -> Outcome:
    order = bench.order(
        "job.py",
        attempt=attempt,
        task_kind=TaskKind.PYSPARK,
        args=args,
        spark_conf={"spark.eventLog.enabled": "true"},
    )
    folder = bench.folder(attempt)
    folder.create(order)
    launch(folder, bench.startup())
    eventually(lambda: folder.is_delivered, "delivery", 300)
    return bench.await_end(attempt).outcome


@pytest.mark.usefixtures("stored_logs")
def test_history_server_reads_the_event_logs_of_ended_and_of_killed_applications(
    bench: Bench, java_home: Path, tmp_path: Path
) -> None:
    outcomes = [_run(bench, "run1.a.1"), _run(bench, "run1.b.1", "die")]
    assert outcomes == [Outcome.SUCCEEDED, Outcome.FAILED], bench.folder("run1.a.1").log.read_text()
    (logs := tmp_path / "spark-events").mkdir()
    for task, suffix in (("a", "zstd"), ("b", "zstd.inprogress")):
        attempt = bench.folder(f"run1.{task}.1").attempt
        (logs / f"run1.{task}.1.{suffix}").write_bytes(bench.logs.read(attempt, 0, 1 << 30, KeptLog.EVENTS))

    server = HistoryServer(java_home, logs, tmp_path)
    try:
        found = eventually(lambda: len(got := server.get("applications") or []) == 2 and got, "both", 120)
        by_name = {one["name"]: one for one in found}
        ended = by_name["run1.a.1"]
        jobs = server.get(f"applications/{ended['id']}/jobs")
    finally:
        server.close()

    assert [by_name[name]["attempts"][0]["completed"] for name in sorted(by_name)] == [True, False]
    assert jobs
    assert {job["status"] for job in jobs} == {"SUCCEEDED"}
