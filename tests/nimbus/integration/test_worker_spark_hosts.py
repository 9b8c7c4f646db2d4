"""Real Spark whose executors do not see all folders of the driver's host: another mount namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from nimbus.domain.pipeline import TaskKind
from nimbus.domain.slots import End
from nimbus.domain.task_run import Outcome
from nimbus.localstack.ports import free_port
from nimbus.worker.launcher import launch
from tests.nimbus.spark_start import QUICK_JVM
from tests.nimbus.worker_bench import Bench, eventually

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_home"), pytest.mark.timeout(900)]

WRITES = """
from nimbus.task import context
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
numbers = spark.range(100).selectExpr("id", "id % 2 AS half")
numbers.write.parquet(str(context().output / "numbers"))
numbers.where("id < 0").write.partitionBy("half").parquet(str(context().output / "none"))
spark.stop()
"""
WRITES_ANEW = """
from nimbus.task import context
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(100).write.mode("overwrite").parquet(str(context().output))
"""
IMPORTS = """
import beside, packed, shared
from nimbus.task import context
from pyspark.sql import SparkSession

def words(_):
    import os
    import beside, packed, shared
    return beside.WORD, packed.WORD, shared.WORD, os.environ["INTERPRETER"]

spark = SparkSession.builder.getOrCreate()
print(*spark.sparkContext.parallelize([1], 1).map(words).collect()[0], flush=True)
"""
_HIDE = 'mount -t tmpfs none "$0" && exec "$@"'


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """A folder that executors of `master` see empty."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    return folder


@pytest.fixture
def master(tmp_path: Path, hidden: Path) -> Iterator[str]:
    """A standalone cluster with one worker."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not create mount namespaces")
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    url = f"spark://127.0.0.1:{free_port()}"
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        "SPARK_HOME": str(home),
    }
    run = f"{home}/bin/spark-class"
    page = ["--host", "127.0.0.1", "--webui-port", "0"]
    port = url.rpartition(":")[2]
    log = tmp_path / "worker.log"
    with ExitStack() as stack, log.open("wb") as said:

        def start(*words: str) -> None:
            process = subprocess.Popen(words, env=os.environ | environment, stdout=said, stderr=said)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)

        start(run, "org.apache.spark.deploy.master.Master", "--port", port, *page)
        start(
            *(*unshare, "sh", "-c", _HIDE, str(hidden)),
            *(run, "org.apache.spark.deploy.worker.Worker", "--cores", "2", "--memory", "1g"),
            *("--work-dir", str(tmp_path / "work"), *page, url),
        )
        eventually(lambda: "Successfully registered with master" in log.read_text(), "the worker", 120)
        yield url


@pytest.fixture
def conf() -> dict[str, str]:
    """Properties for Spark on `master`."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.ui.enabled": "false",
        "spark.pyspark.python": sys.executable,
    }


def _ended(root: Path, master: str, text: str, conf: dict[str, str]) -> End:
    bench = Bench(root)
    try:
        folder = bench.folder()
        folder.create(bench.order(bench.script("task.py", text), task_kind=TaskKind.PYSPARK))
        launch(folder, bench.startup(master=master, spark_conf=conf))
        return bench.await_end(deadline_s=300)
    finally:
        bench.close()


def test_executors_import_the_release_and_its_wheels_from_what_the_driver_sends(
    tmp_path: Path, hidden: Path, master: str, conf: dict[str, str]
) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nINTERPRETER=named exec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    bench = Bench(hidden)
    try:
        script = bench.script("jobs/task.py", IMPORTS)
        bench.script("jobs/beside.py", "WORD = 'beside'")
        bench.script("src/shared.py", "WORD = 'shared'")
        wheel = hidden / "wheels" / "packed-1"
        wheel.mkdir(parents=True)
        (wheel / "packed.py").write_text("WORD = 'packed'")
        folder = bench.folder()
        folder.create(bench.order(script, task_kind=TaskKind.PYSPARK, python_path=("src",)))
        sent = bench.startup(
            master=master,
            spark_conf=conf | {"spark.pyspark.python": str(interpreter)},
            wheels=(wheel,),
            sends_files=True,
        )

        launch(folder, sent)
        ended = bench.await_end(deadline_s=300)

        assert (ended.outcome, ended.reason) == (Outcome.SUCCEEDED, "")
        assert "beside packed shared named" in folder.log.read_text()
    finally:
        bench.close()


def test_task_fails_when_executors_do_not_see_its_output_and_succeeds_when_they_do(
    tmp_path: Path, hidden: Path, master: str, conf: dict[str, str]
) -> None:
    unmarked = {"spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    lost = _ended(hidden, master, WRITES_ANEW, conf | unmarked)
    kept = _ended(tmp_path / "shared", master, WRITES, conf)

    assert lost.outcome is Outcome.FAILED, "its output is an empty folder"
    assert "but executors do not see that folder" in lost.reason
    assert "format('nimbus')" in lost.reason
    assert (kept.outcome, kept.reason) == (Outcome.SUCCEEDED, ""), "an empty partitioned table has no data"
    output = tmp_path / "shared" / "data" / str(kept.output)
    assert sorted(path.name for path in output.iterdir()) == ["none", "numbers"]
