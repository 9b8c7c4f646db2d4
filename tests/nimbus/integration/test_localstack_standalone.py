"""`nimbus up --spark standalone`: what happens to tasks when the leading master is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest

from nimbus.localstack.daemons import StackTuning
from nimbus.localstack.folder import tagged_processes
from nimbus.localstack.stack import LocalStack

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NIMBUS = [sys.executable, "-m", "nimbus.cli.main"]
PIPELINE = """\
schema: 1
name: sums
tasks:
  sum: {type: pyspark, script: sum.py, spark: {target: standalone}}
"""
SCRIPT = """\
import json, os, time
from pathlib import Path
from nimbus.task import context
from pyspark.sql import SparkSession

ctx = context()
spark = SparkSession.builder.getOrCreate()
spark.range(10).count()
(ctx.output / "begun").touch()
until = time.monotonic() + 120
while not Path({go!r}).exists() and time.monotonic() < until:
    time.sleep(0.05)
total = spark.range(1000).selectExpr("sum(id) as total").first()["total"]
folders = spark.sparkContext.parallelize(range(8), 4).map(lambda _: os.getcwd()).collect()
told = {{"total": total, "master": spark.sparkContext.master, "folders": folders}}
(ctx.output / "told.json").write_text(json.dumps(told))
"""


@pytest.mark.thorough
def test_tasks_run_on_the_cluster_while_and_after_its_leading_master_is_killed(
    tmp_path: Path, java_home: Path, eventually: Callable[..., None]
) -> None:
    pipeline, folder, go = tmp_path / "sums", tmp_path / "stack", tmp_path / "go"
    pipeline.mkdir()
    (pipeline / "pipeline.yaml").write_text(PIPELINE)
    (pipeline / "sum.py").write_text(SCRIPT.format(go=str(go)))
    stack = LocalStack(folder, 1, standalone=True, tuning=StackTuning(keeps_jvms=False))

    def ask(*words: str) -> str:
        done = subprocess.run(
            [*NIMBUS, *words],
            env={**os.environ, "NIMBUS_SERVER": stack.addresses.schedulers[0]},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def output(run: str) -> Path:
        return folder / "data" / "sums" / run / "sum" / "1"

    def check_output(run: str) -> None:
        told = json.loads((output(run) / "told.json").read_text())
        assert (told["total"], told["master"]) == (499_500, stack.spark.master)
        assert all(place.startswith(str(folder / "spark" / "spark-worker-")) for place in told["folders"])

    try:
        stack.start()
        stack.wait_ready(timedelta(seconds=120))
        ask("pipeline", "publish", str(pipeline), "--activate", "--config", str(stack.config_file(1)))
        (worker,) = json.loads(ask("cluster", "workers", "-o", "json"))["workers"]
        assert worker["targets"] == {"standalone": 2}
        doctor = json.loads(ask("doctor", "--config", str(stack.config_file(1)), "-o", "json"))
        (found,) = (check for check in doctor["checks"] if check["check"] == "target standalone")
        assert found["verdict"] == "ok"
        assert found["detail"].endswith(f" leads, Spark {version('pyspark')}")
        ask("run", "start", "sums", "--run-id", "while")
        eventually((output("while") / "begun").exists, within_s=120, what="the task computes")
        first = stack.spark.leader()
        assert first is not None

        first.kill()

        eventually(lambda: stack.spark.leader() is not None, within_s=60, what="the other master leads")
        go.touch()
        ask("run", "watch", "while", "--watch-timeout", "280")
        check_output("while")
        ask("run", "start", "sums", "--run-id", "after", "--watch", "--watch-timeout", "280")
        check_output("after")
    finally:
        stack.stop()

    assert tagged_processes(folder) == []
