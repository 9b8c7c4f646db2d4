"""Tasks of kind `spark_submit`, with real Spark."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.launcher import launch
from tests.nimbus.java_source import compile_jar, needs_javac, numbers_jar
from tests.nimbus.worker_bench import Bench, eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("java_home"),
    pytest.mark.timeout(900),
    needs_javac,
]

JOB = """
package example;

import java.util.Arrays;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSession;

public class Job {
    public static void main(String[] args) throws Exception {
        SparkSession spark = SparkSession.builder().getOrCreate();
        SparkConf conf = spark.sparkContext().getConf();
        for (String name : Arrays.asList("app.name", "master", "x", "y")) {
            System.out.println("spark." + name + "=" + conf.get("spark." + name));
        }
        System.out.println("java.io.tmpdir=" + System.getProperty("java.io.tmpdir"));
        System.out.println("args=" + Arrays.asList(args));
        if (args[0].equals("--conf")) {
            System.out.println("numbers=" + spark.read().format("example.Numbers").load().count());
        }
        // Not a daemon: without System.exit, which Spark calls since 4.1, the JVM waits for it.
        Thread left = new Thread(() -> { while (true) { java.util.concurrent.locks.LockSupport.park(); } });
        left.setDaemon(spark.version().startsWith("4.0."));
        left.start();
        if (args[0].equals("hang")) {
            Thread.sleep(600_000);
        }
        if (args[0].equals("fail")) {
            throw new IllegalStateException("no such month");
        }
        spark.range(100).write().parquet(System.getenv("NIMBUS_OUTPUT") + "/data");
        spark.stop();
    }
}
"""


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_jar(tmp_path_factory.mktemp("jar") / "job.jar", "example.Job", JOB)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbers_jar(tmp_path_factory.mktemp("jar") / "numbers.jar", "x")


@pytest.fixture
def bench(tmp_path: Path, jar: Path, numbers: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    (made.release / "lib").mkdir()
    shutil.copy(numbers, made.release / "lib" / "numbers.jar")
    shutil.copy(jar, made.release / "lib" / "job.jar")
    yield made
    made.close()


def _start(bench: Bench, *args: str) -> None:
    folder = bench.folder()
    order = bench.order(
        "lib/job.jar",
        task_kind=TaskKind.SPARK_SUBMIT,
        main_class="example.Job",
        args=args,
        spark_conf={"spark.x": "of the task"},
    )
    folder.create(order)
    conf = {"spark.x": "of the worker", "spark.y": "a b"}
    launch(folder, bench.startup(spark_conf=conf, jars=("lib/numbers.jar",)))


def _run(bench: Bench, *args: str) -> tuple[End, str]:
    _start(bench, *args)
    eventually(lambda: bench.folder().is_delivered, "delivery", 150)
    end = bench.slots().end
    assert end is not None
    return end, bench.folder().log.read_text()


def test_jar_runs_with_the_properties_of_a_pyspark_task(bench: Bench) -> None:
    end, log = _run(bench, "--conf", "2013-01-31")

    folder = bench.folder()
    assert end.outcome is Outcome.SUCCEEDED, log
    assert {line for line in log.splitlines() if "=" in line} >= {
        "spark.app.name=run1.task.1",
        "spark.master=local[2]",
        "spark.x=of the task",
        "spark.y=a b",
        f"java.io.tmpdir={folder.scratch}",
        "args=[--conf, 2013-01-31]",
        "numbers=2",
    }
    assert (bench.data / "bench/run1/task/1/data/_SUCCESS").exists()
    assert not folder.spark_local.exists()


def test_exception_of_the_main_class_is_a_failure_that_says_it(bench: Bench) -> None:
    end, log = _run(bench, "fail")

    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 1), log
    assert end.reason.startswith("java.lang.IllegalStateException: no such month")


def test_jvm_of_a_jar_dies_with_its_runner(bench: Bench) -> None:
    _start(bench, "hang")
    log = bench.folder().log
    eventually(lambda: log.exists() and "args=[hang]" in log.read_text(), "the main class runs", 300)
    runner = bench.runner()
    assert runner is not None
    assert [Path(f"/proc/{found.pid}/comm").read_text() for found in bench.driver_tree()] == ["java\n"]

    os.kill(runner.pid, signal.SIGKILL)

    eventually(lambda: bench.driver_tree() == [], "the JVM is gone", 60)
