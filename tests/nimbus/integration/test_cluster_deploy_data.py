"""Cluster deploy mode on a real standalone cluster, outputs in a real bucket, while its parts are killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nimbus.localstack.daemons import StackTuning
from nimbus.localstack.folder import tagged_processes
from nimbus.localstack.standalone import SparkWorker
from tests.nimbus.integration.test_cluster_deploy import PIPELINE, Cluster, Eventually
from tests.thorough import thorough

pytestmark = [thorough, pytest.mark.timeout(3600)]
SCRIPT = """\
import os, time
from pathlib import Path
from nimbus.task import context
from pyspark.sql import SparkSession
from shared import plus_one

ctx = context()
spark = SparkSession.builder.getOrCreate()
application = spark.sparkContext.applicationId
for number in range(100):
    start = f"{ran}/{{ctx.run_id}} {{ctx.attempt}} {{application}} {{number}}"
    try:
        os.close(os.open(start, os.O_CREAT | os.O_EXCL))
        break
    except FileExistsError:
        continue
until = time.monotonic() + 900
while not (Path({gates!r}) / ctx.run_id).exists() and time.monotonic() < until:
    time.sleep(0.05)
numbers = spark.sparkContext.parallelize(range(1000), 4).map(lambda number: (plus_one(number),))
place = ctx.output_uri + "/data"
spark.createDataFrame(numbers, "number long").write.format("nimbus").mode("append").save(place)
ours = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("nimbus").__file__).first()
(ctx.output / "told").write_text(f"{{spark.read.format('nimbus').load(place).count()}} {{ours}}")
"""


class DataCluster(Cluster):
    """A stack whose outputs are in its bucket."""

    def files(self) -> dict[str, str]:
        self.ran.mkdir()
        return {
            "pipeline.yaml": PIPELINE,
            "jobs/sum.py": SCRIPT.format(ran=str(self.ran), gates=str(self.gates)),
            "lib/shared.py": "def plus_one(number):\n    return number + 1\n",
            "told.sql": "SELECT sum(number) AS total, count(*) AS many FROM sum",
        }

    def runs(self, run: str) -> list[list[str]]:
        return sorted(path.name.split()[1:3] for path in self.ran.glob(f"{run} *"))

    def submitter(self) -> int:
        """Number of the scheduler whose worker submitted the driver."""
        (driver,) = self.drivers()
        records = self.folder.glob("scheduler-*/**/applications/*.json")
        (place,) = [path for path in records if json.loads(path.read_text())["driver"] == driver]
        return int(place.relative_to(self.folder).parts[0].removeprefix("scheduler-"))

    def drivers(self) -> list[str]:
        leader = self.stack.spark.leader()
        assert leader is not None
        return [driver["id"] for driver in leader.state()["activedrivers"]]

    def worker_with_the_driver(self) -> SparkWorker:
        (driver,) = self.drivers()
        (found,) = [one for one in self.stack.spark.workers if (one.folder / "work" / driver).is_dir()]
        return found

    def check(self, run: dict[str, Any], attempts: list[str]) -> None:
        """Check that every start of user code left a file, and that the outputs are complete."""
        assert [attempt for attempt, _ in self.runs(run["id"])] == attempts
        outputs = {task["name"]: task["attempts"][-1]["output"] for task in run["tasks"]}
        count, _, ours = self.content(outputs["sum"], "told")[0].read_text().partition(" ")
        assert (count, "nimbus_bundle" in ours) == ("1000", True), "executors take ours from the bundle"
        numbers = pq.read_table(self.content(outputs["sum"], "data/"))["number"].to_pylist()
        assert sorted(numbers) == list(range(1, 1001))
        assert pq.read_table(self.content(outputs["told"], "data/")).to_pylist() == [
            {"total": 500_500, "many": 1000}
        ]

    def content(self, reference: str, begins: str) -> list[Path]:
        """Files of an output, from its manifest."""
        manifest = self.stack.s3.objects / "nimbus-data" / reference
        named = [file["path"] for file in json.loads(manifest.read_text())["files"]]
        return [manifest.parent / path for path in named if path.startswith(begins)]


@pytest.fixture
def cluster(tmp_path: Path, java_home: Path, eventually: Eventually) -> Iterator[DataCluster]:
    made = DataCluster(tmp_path, eventually, StackTuning(keeps_jvms=False, data_in_s3=True))
    try:
        made.start()
        yield made
    finally:
        made.stack.stop()
    assert tagged_processes(made.folder) == []


def test_application_goes_on_with_its_output_in_the_bucket_when_one_of_its_keepers_is_killed(
    cluster: DataCluster,
) -> None:
    def kill_scheduler(which: Callable[[], int]) -> Callable[[], None]:
        def kill() -> None:
            number = which()
            cluster.stack.kill_scheduler(number)
            cluster.stack.restart_scheduler(number)
            cluster.stack.wait_ready(timedelta(seconds=240))

        return kill

    def kill_master() -> None:
        master = cluster.stack.spark.leader()
        assert master is not None
        master.kill()
        cluster.eventually(
            lambda: cluster.stack.spark.leader() is not None, within_s=120, what="the other master leads"
        )
        master.spawn()

    for run, kill in (
        ("leader", kill_scheduler(cluster.leader)),
        ("submitter", kill_scheduler(cluster.submitter)),
        ("master", kill_master),
    ):
        cluster.begin(run)
        kill()
        cluster.check(cluster.finish(run), ["1"])


def test_work_of_a_spark_worker_that_is_killed_is_done_again_and_no_other(cluster: DataCluster) -> None:
    cluster.begin("driver")
    with_driver = cluster.worker_with_the_driver()
    with_driver.kill()
    with_driver.spawn()
    (cluster.gates / "driver").touch()
    cluster.check(cluster.finish("driver"), ["1", "2"])

    cluster.begin("executor")
    with_driver = cluster.worker_with_the_driver()
    (other,) = [worker for worker in cluster.stack.spark.workers if worker is not with_driver]
    other.kill()
    other.spawn()
    cluster.check(cluster.finish("executor"), ["1"])
