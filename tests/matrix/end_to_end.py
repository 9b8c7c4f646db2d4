"""What a cell of the matrix must do, with the installed wheel alone: publish, run with Spark, fail over.

`python end_to_end.py FOLDER [--s3 rclone|moto|seaweedfs] [--zookeeper FOLDER_OF_JARS]` prints the versions
that it ran with as JSON. Imports nothing of `tests`: it also runs in a Debian that has only the wheel.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nimbus.client import Client
from nimbus.java import find_java
from nimbus.localstack import stack, zookeeper
from nimbus.localstack.daemons import BUCKET, DATA_BUCKET, StackTuning
from nimbus.localstack.ports import LOOPBACK, free_port
from nimbus.localstack.process import Report, silent
from nimbus.localstack.s3 import DATA_ACCESS_KEY, S3Server

PIPELINE = """\
schema: 1
name: cell
files: ["*.py"]
parameters: {gate: {type: string, default: ""}}
defaults: {timeout: 5m}
tasks:
  count: {type: pyspark, script: count.py, args: ["{{ params.gate }}"]}
  check: {type: python, script: check.py, needs: [count]}
"""
COUNT = """\
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from nimbus.task import context

spark = SparkSession.builder.getOrCreate()
double = udf(lambda number: 2 * number, "long")
rows = spark.range(1000).select(double("id").alias("double"))
rows.write.parquet(str(context().output / "rows"))
while sys.argv[1] and not Path(sys.argv[1]).exists():
    time.sleep(0.1)
context().result(sum=spark.read.parquet(str(context().output / "rows")).groupBy().sum().first()[0])
"""
CHECK = """\
from nimbus.task import context

assert list((context().inputs["count"] / "rows").glob("*.parquet"))
"""
LIMIT_S = 600.0


class Moto(S3Server):
    """moto's server, which keeps objects in memory and checks no signature."""

    def start(self, report: Report = silent) -> None:
        super().start(report)
        for bucket in (BUCKET, DATA_BUCKET):
            self.create_bucket(bucket)

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self.port)]


class SeaweedFs(Moto):
    """SeaweedFS: a distributed store, here with one server of each kind."""

    def _command(self) -> Sequence[str]:
        self.objects.mkdir(parents=True, exist_ok=True)
        pairs = ((self.access_key, self.secret_key), (DATA_ACCESS_KEY, self.data_secret_key))
        identities = [
            {
                "name": key,
                "credentials": [{"accessKey": key, "secretKey": secret}],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            }
            for key, secret in pairs
        ]
        config = self.objects.parent / "s3.json"
        config.write_text(json.dumps({"identities": identities}))
        ports = [f"-{name}.port={free_port()}" for name in ("master", "volume", "filer")]
        grpc = [f"-{name}.port.grpc={free_port()}" for name in ("master", "volume", "filer", "s3")]
        weed = Path(sys.executable).parent / "weed"
        s3 = ["-s3", f"-s3.port={self.port}", f"-s3.config={config}"]
        return [str(weed), "server", f"-dir={self.objects}", f"-ip={LOOPBACK}", *ports, *grpc, *s3]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--s3", choices=("rclone", "moto", "seaweedfs"), default="rclone")
    parser.add_argument("--zookeeper", type=Path)
    given = parser.parse_args()
    vars(stack)["S3Server"] = {"rclone": S3Server, "moto": Moto, "seaweedfs": SeaweedFs}[given.s3]
    if given.zookeeper is not None:
        others = [jar for jar in zookeeper._jars() if not jar.name.startswith("zookeeper-")]
        zookeeper._jars = lambda: [*given.zookeeper.glob("*.jar"), *others]
    tuning = StackTuning(slots=2, data_in_s3=True)
    with stack.LocalStack(given.folder, 2, workers=1, tuning=tuning, report=_report) as running:
        running.wait_ready()
        client = Client(*running.addresses.schedulers)
        try:
            _publish(given.folder, running)
            _run(client)
            _fail_over(client, running, given.folder / "gate")
            server = running.zookeeper.ask("srvr").decode().split("\n")[0].split(": ")[1].split("-")[0]
        finally:
            client.close()
    java = find_java()
    told = {"python": platform.python_version(), "pyspark": version("pyspark"), "java": str(java.version)}
    sys.stdout.write(json.dumps({**told, "zookeeper": server, "s3": given.s3}) + "\n")


def _publish(folder: Path, running: stack.LocalStack) -> None:
    pipeline = folder / "cell"
    pipeline.mkdir(exist_ok=True)
    for name, text in (("pipeline.yaml", PIPELINE), ("count.py", COUNT), ("check.py", CHECK)):
        (pipeline / name).write_text(text)
    where = ["--config", str(running.config_file(1)), "--server", running.addresses.schedulers[0]]
    words = [sys.executable, "-m", "nimbus.cli.main", "pipeline", "publish", str(pipeline), "--activate"]
    subprocess.run([*words, *where], check=True, timeout=LIMIT_S, stdout=sys.stderr)


def _run(client: Client) -> None:
    """A run with Spark, whose output the next task reads."""
    done = client.wait(client.start("cell", run_id="first").id, timeout_s=LIMIT_S)
    assert done.state == "succeeded", done.reason
    assert client.results("first") == {"count": {"sum": 999_000}}, client.results("first")


def _fail_over(client: Client, running: stack.LocalStack, gate: Path) -> None:
    """The leader is killed while a Spark task runs; the next one accepts the end of the same attempt."""
    client.start("cell", {"gate": str(gate)}, run_id="second")
    _until(lambda: _tasks(client)["count"]["state"] == "running")
    before = client.leader()
    assert before is not None
    running.kill_scheduler(int(before["id"].rpartition("-")[2]))
    _until(lambda: (now := client.leader()) is not None and now["id"] != before["id"])
    gate.touch()
    done = client.wait("second", timeout_s=LIMIT_S)
    assert done.state == "succeeded", done.reason
    assert [len(task["attempts"]) for task in _tasks(client).values()] == [1, 1]


def _tasks(client: Client) -> dict[str, Any]:
    return {task["name"]: task for task in client.run("second").document["tasks"]}


def _until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < ends, "not in time"
        time.sleep(0.1)


def _report(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
