"""Attempts in pods: a real worker, a real gateway, the real bootstrap, and a kubelet that starts processes.

The first tests use a replacement for Spark's client and run no JVM. The others, `thorough`, use Spark's real
client, driver and executors, with the test server and, if there is one, with a real kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.java import find_java
from nimbus.worker.application.kubernetes import pod_name
from tests.nimbus.java_source import HAS_JAVAC, numbers_jar
from tests.nimbus.kubernetes.bench import kubernetes
from tests.nimbus.kubernetes.deploy import KubernetesBench, kubernetes_bench
from tests.nimbus.kubernetes.kubelet import spark_image
from tests.nimbus.worker_bench import eventually
from tests.thorough import thorough

ATTEMPT = "run1.task.1"
WAITS = """
import sys, time
from pathlib import Path
with open(sys.argv[1], "a") as file:
    file.write("ran\\n")
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""
SUMS = """
from nimbus.task import context
from pyspark.sql import SparkSession
from helper import plus_one

spark = SparkSession.builder.getOrCreate()
total = spark.sparkContext.parallelize(range(1000), 4).map(plus_one).sum()
print("app", spark.sparkContext.applicationId, spark.sparkContext.master)
spark.createDataFrame([(total,)], "total long").coalesce(1).write.csv(str(context().output / "data"))
"""
READS_JAR = """
assert spark.read.format("example.Numbers").load().first().told == "of the release"
"""
HANGS = """
import sys, time
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate().sparkContext.parallelize(range(2), 2).count()
open(sys.argv[1], "a").write("ran\\n")
time.sleep(600)
"""
SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[KubernetesBench]:
    """Without Spark."""
    with (
        kubernetes(tmp_path, "test") as place,
        kubernetes_bench(tmp_path, place, place.manager(), {}) as made,
    ):
        made.worker()
        yield made


@pytest.fixture(params=["test", "real"])
def spark(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KubernetesBench]:
    """With Spark's own client, drivers and executors."""
    java_home, is_real = find_java().java_home, request.param == "real"
    image = spark_image(SPARK_HOME, java_home, without_service=is_real)
    with kubernetes(tmp_path, request.param, image) as place:
        mounted = "spark.kubernetes.authenticate.driver.mounted"
        conf = {
            "spark.kubernetes.driver.master": place.url,
            f"{mounted}.oauthTokenFile": str(place.token_file),
            "spark.kubernetes.authenticate.executor.oauthTokenFile": str(place.token_file),
            "spark.executor.instances": "1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        if is_real:
            # Kubernetes 1.20 cannot apply a Service of Spark 4.3, which has a port without a protocol.
            step = "org.apache.spark.deploy.k8s.features.DriverServiceFeatureStep"
            conf |= {
                f"{mounted}.caCertFile": str(place.ca_file),
                "spark.kubernetes.driver.pod.excludedFeatureSteps": step,
                "spark.kubernetes.executor.useDriverPodIP": "true",
            }
        manager = place.manager(spark_home=SPARK_HOME, java_home=lambda: java_home, timeout_s=240)
        with kubernetes_bench(tmp_path, place, manager, conf) as made:
            made.worker()
            yield made


def order(bench: KubernetesBench, text: str, *args: str, **more: Any) -> Any:
    script = bench.bench.script("jobs/main.py", text)
    more.setdefault("task_kind", TaskKind.PYSPARK)
    return bench.bench.order(script, attempt=ATTEMPT, args=args, **more)


def starts(bench: KubernetesBench, text: str = WAITS) -> None:
    """Assign an attempt, and wait until its task runs."""
    root = bench.bench.root
    bench.assign(order(bench, text, str(root / "ran"), str(root / "gate")))
    eventually((root / "ran").exists, "the task runs", 240)


def log(bench: KubernetesBench) -> str:
    return bench.bench.logs.read(AttemptId.parse(ATTEMPT)).decode()


def name(bench: KubernetesBench) -> str:
    return pod_name(f"nimbus-{bench.bench.board.cluster()}-{ATTEMPT}")


def test_attempt_in_a_pod_succeeds_and_its_pod_is_deleted(pods: KubernetesBench) -> None:
    text = "from nimbus.task import context\n(context().output / 'told').write_text('of a pod: 5$')"
    pods.assign(order(pods, text))

    end = pods.bench.await_end()

    assert (end.outcome, end.written_by) == (Outcome.SUCCEEDED, "driver")
    assert (pods.bench.data / "bench/run1/task/1/told").read_text() == "of a pod: 5$"
    claim = pods.bench.slots().claim
    assert claim is not None
    assert claim.driver is not None
    assert claim.driver.id == name(pods)
    eventually(lambda: not pods.at.pods(), "its pod is deleted")


def test_attempt_whose_pod_a_stranger_deletes_is_lost(pods: KubernetesBench) -> None:
    starts(pods)

    pods.at.ask("DELETE", f"namespaces/{pods.at.namespace}/pods/{name(pods)}").raise_for_status()

    end = pods.bench.await_end()
    assert end.outcome is Outcome.LOST
    assert "is gone from the cluster" in end.reason


def test_attempt_goes_on_while_the_api_server_is_away(pods: KubernetesBench) -> None:
    starts(pods)
    pods.at.faults.stop()
    (pods.bench.root / "gate").touch()

    assert pods.bench.await_end().outcome is Outcome.SUCCEEDED

    pods.at.faults.start()
    eventually(lambda: not pods.at.pods(), "its pod is deleted", 60)
    assert pods.at.kubelet.started == [name(pods)]


def test_attempt_waits_for_a_full_cluster_without_being_closed(pods: KubernetesBench) -> None:
    pods.at.kubelet.pods_at_most = 0
    root = pods.bench.root
    pods.assign(order(pods, WAITS, str(root / "ran"), str(root / "gate")))
    eventually(lambda: pods.bench.slots().has_heartbeat, "the worker says that it is submitted")
    eventually(lambda: "Insufficient cpu" in pods.pods.probe(name(pods)).words, "it is known why")
    assert pods.bench.slots().end is None
    (root / "gate").touch()
    pods.at.kubelet.pods_at_most = 1

    assert pods.bench.await_end().outcome is Outcome.SUCCEEDED


@thorough
def test_pyspark_task_computes_in_executor_pods_with_its_release(spark: KubernetesBench) -> None:
    spark.bench.script("lib/helper.py", "def plus_one(number):\n    return number + 1\n")
    if HAS_JAVAC:
        numbers_jar(spark.bench.release / "numbers.jar", "of the release")
    jars = ("numbers.jar",) if HAS_JAVAC else ()
    spark.assign(order(spark, SUMS + (READS_JAR if jars else ""), python_path=("lib",), jars=jars))

    end = spark.bench.await_end(deadline_s=300)

    assert end.outcome is Outcome.SUCCEEDED, (end, log(spark), spark.at.kubelet.said(name(spark)))
    (part,) = (spark.bench.data / "bench/run1/task/1/data").glob("part-*.csv")
    assert part.read_text() == "500500\n"
    assert "k8s://" in log(spark)
    assert len(spark.at.kubelet.started) == 2, "a driver and an executor"
    eventually(lambda: not spark.at.pods(), "driver and executor are deleted", 60)


@thorough
def test_sql_task_succeeds_in_pods(spark: KubernetesBench) -> None:
    script = spark.bench.script("told.sql", "SELECT sum(id) AS total FROM range(0, 1000, 1, 4)")
    spark.assign(spark.bench.order(script, attempt=ATTEMPT, task_kind=TaskKind.SQL))

    end = spark.bench.await_end(deadline_s=300)

    assert end.outcome is Outcome.SUCCEEDED, (end, log(spark), spark.at.kubelet.said(name(spark)))


@thorough
def test_stopped_task_leaves_no_pod(spark: KubernetesBench) -> None:
    starts(spark, HANGS)

    spark.bench.board.request_stop(ATTEMPT)

    assert spark.bench.await_end(deadline_s=120).outcome is Outcome.STOPPED
    eventually(lambda: not spark.at.pods(), "driver and executor are deleted", 60)


@thorough
def test_executors_of_a_deleted_driver_are_deleted(spark: KubernetesBench) -> None:
    starts(spark, HANGS)
    place = f"namespaces/{spark.at.namespace}/pods/{name(spark)}"

    spark.at.ask("DELETE", place, {"gracePeriodSeconds": 0}).raise_for_status()

    assert spark.bench.await_end(deadline_s=120).outcome is Outcome.LOST
    eventually(lambda: not spark.at.pods(), "its executors are deleted", 60)


@thorough
def test_lost_reply_of_the_create_submits_one_driver(spark: KubernetesBench) -> None:
    if spark.at.server is None:
        pytest.skip("a real server loses no reply on demand")
    spark.at.faults.lose_reply("POST", "/pods$")
    spark.bench.script("lib/helper.py", "def plus_one(number):\n    return number + 1\n")
    spark.assign(order(spark, SUMS, python_path=("lib",)))

    end = spark.bench.await_end(deadline_s=300)

    assert end.outcome is Outcome.SUCCEEDED, (end, log(spark))
    assert spark.at.kubelet.started.count(name(spark)) == 1
