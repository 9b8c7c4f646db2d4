"""Real Spark whose executors do not see all folders of the driver's host: another mount namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.localstack.ports import free_port
from nimbus.localstack.s3 import S3Server
from nimbus.worker.launcher import launch
from tests.nimbus.java_source import needs_javac, numbers_jar
from tests.nimbus.spark_start import QUICK_JVM
from tests.nimbus.worker_bench import Bench, eventually
from tests.thorough import thorough

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
READS_ALL = """
import packed
from nimbus.task import context
from pyspark import SparkFiles
from pyspark.sql import SparkSession

def words(_):
    import packed
    from pathlib import Path
    Path(context_output).mkdir(parents=True, exist_ok=True)
    Path(context_output, "of-python").write_text("lost")
    return packed.VERSION, Path(SparkFiles.get("words.txt")).read_text()

spark, ctx = SparkSession.builder.getOrCreate(), context()
context_output = str(ctx.output)
version, word = spark.sparkContext.parallelize([1], 1).map(words).collect()[0]
told = {row.told for row in spark.read.format("example.Numbers").load().collect()}
earlier = spark.read.format("nimbus").load(ctx.input_uri("one", "table")).count() if ctx.inputs else 0
table = spark.range(1000).repartition(4)
table.write.format("nimbus").mode("append").save(ctx.output_uri + "/table")
ctx.result(version=version, beside=packed.VERSION, word=word, told=sorted(told), earlier=earlier)
"""
_PAGE = ("--host", "127.0.0.1", "--webui-port", "0")
_HIDE = 'mount -t tmpfs none "$0" && exec "$@"'


@pytest.fixture(scope="module")
def hidden_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that executors of `master` see empty."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture
def hidden(hidden_place: Path, tmp_path: Path) -> Path:
    """A folder of the test that executors of `master` do not see."""
    folder = hidden_place / tmp_path.name
    folder.mkdir()
    return folder


class Cluster:
    """A standalone cluster, whose workers each start an executor for an application."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
        if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
            pytest.skip("this user may not create mount namespaces")
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        self._root, self._stack, self._workers = root, stack, 0
        self._unshare, self._home = unshare, Path(spec.origin).parent
        port = str(free_port())
        self.url = f"spark://127.0.0.1:{port}"
        self._start("master", *self._class("master.Master"), "--port", port, *_PAGE)

    def _class(self, name: str) -> tuple[str, str]:
        return f"{self._home}/bin/spark-class", f"org.apache.spark.deploy.{name}"

    def worker(self, hidden: Path | None, cores: int) -> None:
        """Start a worker, and wait for it. `hidden`: a folder that it and its executors see empty."""
        self._workers += 1
        name = f"worker{self._workers}"
        hide = () if hidden is None else (*self._unshare, "sh", "-c", _HIDE, str(hidden))
        size = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(self._root / name))
        log = self._start(name, *hide, *self._class("worker.Worker"), *size, *_PAGE, self.url)
        eventually(lambda: "Successfully registered with master" in log.read_text(), name, 120)

    def _start(self, name: str, *words: str) -> Path:
        environment = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "SPARK_HOME": str(self._home),
        }
        log = self._root / f"{name}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(words, env=os.environ | environment, stdout=said, stderr=said)
        self._stack.callback(process.wait, 120)
        self._stack.callback(process.terminate)
        return log


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, hidden_place: Path, java_home: Path) -> Iterator[str]:
    """A standalone cluster with one worker."""
    with ExitStack() as stack:
        cluster = Cluster(tmp_path_factory.mktemp("cluster"), stack)
        cluster.worker(hidden_place, 2)
        yield cluster.url


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


def test_task_fails_when_executors_do_not_see_its_output(
    hidden: Path, master: str, conf: dict[str, str]
) -> None:
    unmarked = {"spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    lost = _ended(hidden, master, WRITES_ANEW, conf | unmarked)

    assert lost.outcome is Outcome.FAILED, "its output is an empty folder"
    assert "but executors do not see that folder" in lost.reason
    assert "format('nimbus')" in lost.reason


@thorough
def test_task_whose_output_executors_see_succeeds(tmp_path: Path, master: str, conf: dict[str, str]) -> None:
    kept = _ended(tmp_path / "shared", master, WRITES, conf)

    assert (kept.outcome, kept.reason) == (Outcome.SUCCEEDED, ""), "an empty partitioned table has no data"
    output = tmp_path / "shared" / "data" / str(kept.output)
    assert sorted(path.name for path in output.iterdir()) == ["none", "numbers"]


@thorough
def test_part_of_a_table_is_no_success_when_one_of_two_hosts_does_not_see_the_output(
    cluster: Cluster, hidden: Path, conf: dict[str, str]
) -> None:
    cluster.worker(None, 1)
    cluster.worker(hidden, 1)
    both = {"spark.scheduler.minRegisteredResourcesRatio": "1.0"} | {
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.default.parallelism": "8",
    }

    lost = _ended(hidden, cluster.url, WRITES_ANEW, conf | both)

    (part, *more) = (hidden / "data" / "bench").rglob("part-*")
    assert part.is_file()
    assert len(more) < 7, "each host wrote some of its eight files"
    assert (lost.outcome, lost.output) == (Outcome.FAILED, None)
    assert "but executors do not see that folder" in lost.reason


@thorough
def test_reason_names_the_interpreter_that_executors_do_not_have(
    tmp_path: Path, master: str, conf: dict[str, str]
) -> None:
    text = "from pyspark import SparkContext\nSparkContext().parallelize([1]).map(lambda n: n).count()\n"

    ended = _ended(tmp_path / "shared", master, text, conf | {"spark.pyspark.python": "/none/python"})

    assert ended.outcome is Outcome.FAILED
    assert "/none/python" in ended.reason


@needs_javac
@thorough
def test_executors_that_see_nothing_of_the_worker_have_all_that_tasks_bring_and_lose_no_table(
    hidden: Path, master: str, conf: dict[str, str], java_home: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    access = {
        "endpoint_url": s3_server.endpoint_url,
        "access_key_id": s3_server.access_key,
        "secret_access_key": s3_server.secret_key,
    }
    bench = Bench(hidden)
    bench.keep_outputs_in(f"s3://{s3_bucket}/data", **access)
    script = bench.script("task.py", READS_ALL)
    bench.script("words.txt", "of the release")
    numbers_jar(bench.release / "jars" / "numbers.jar", "of a jar")
    for version in (1, 2):
        bench.wheel(f"v{version}/packed-{version}.0-py3-none-any.whl", packed=f"VERSION = {version}\n")
    worker = bench.worker(
        settings={
            "master": master,
            "spark_conf": conf | {"spark.executor.heartbeatInterval": "500ms"},
            "java_home": lambda: java_home,
            "data_access": access,
        }
    )
    worker.start()
    ends: list[End] = []
    try:
        for task, wheels in (("one", "v1/*.whl"), ("two", "v2/*.whl")):
            order = bench.order(
                script,
                attempt=f"run1.{task}.1",
                task_kind=TaskKind.PYSPARK,
                dependencies=(wheels,),
                jars=("jars/*.jar",),
                spark_conf={"spark.files": "{{ release_root }}/words.txt"},
                inputs={end.attempt.split(".")[1]: str(end.output) for end in ends},
            )
            bench.board.assign("w1", order)
            ends.append(bench.await_end(order.attempt, 300))
            log = bench.folder(order.attempt).log
            assert (ends[-1].outcome, ends[-1].reason) == (Outcome.SUCCEEDED, ""), log.read_text()
        cost = ends[0].cost
    finally:
        worker.close(timedelta(seconds=20))
        bench.close()

    said = {"word": "of the release", "told": ["of a jar"]}
    assert [end.result for end in ends] == [
        {**said, "version": 1, "beside": 1, "earlier": 0},
        {**said, "version": 2, "beside": 2, "earlier": 1000},
    ]
    assert cost is not None
    assert (cost.executor_peak_bytes or 0) > 50 << 20
    assert not list(hidden.rglob("of-python")), "what plain Python writes on an executor's disk is lost"
