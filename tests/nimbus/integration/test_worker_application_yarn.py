"""Drivers in YARN: Spark's own client, ApplicationMaster and executors, and a ResourceManager for tests.

The worker, the gateway and the bootstrap are real. See `tests.nimbus.yarn` for the simulated parts.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkPlace, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.application.executor import ClusterTarget
from nimbus.worker.application.spark_client import SparkClient
from nimbus.worker.application.yarn import CONTAINER_VARIABLE, VARIABLES, YarnManager, hadoop_user
from nimbus.worker.targets import SparkTarget, TargetKind
from nimbus.worker.worker import Worker
from tests.nimbus.cluster_bench import gateway
from tests.nimbus.java_source import HAS_JAVAC, numbers_jar
from tests.nimbus.worker_bench import Bench, eventually
from tests.nimbus.yarn.cluster import YarnCluster
from tests.nimbus.yarn.manager import QUEUE, Application, Size
from tests.nimbus.yarn.node import Launch
from tests.thorough import thorough

pytestmark = [thorough, pytest.mark.timeout(1800)]
TARGET = "hadoop"
ATTEMPT = "run1.task.1"
SPARK_S = 600.0
"""Time limit of JVMs on a busy machine."""
SUMS = """
import sys, time
from pathlib import Path
from nimbus.task import context
from pyspark.sql import SparkSession
from shared import plus_one

spark = SparkSession.builder.getOrCreate()
with open(sys.argv[1], "a") as file:
    file.write(f"{spark.sparkContext.applicationId}\\n")
print("application_1700000000000_0001", flush=True)  # of another user
until = time.monotonic() + 120
while not Path(sys.argv[2]).exists() and time.monotonic() < until:
    time.sleep(0.05)
total = spark.sparkContext.parallelize(range(1000), 4).map(plus_one).sum()
(context().output / "total").write_text(str(total))
"""
READS_JAR = """
assert spark.read.format("example.Numbers").load().first().told == "of the release"
"""


class YarnBench:
    """A worker with a target in YARN. The hosts' Python has no PySpark: Spark brings it."""

    def __init__(self, bench: Bench, endpoint: str, yarn: YarnCluster) -> None:
        self.bench, self.yarn, self._endpoint = bench, yarn, endpoint
        self.ran, self.gate = bench.root / "ran", bench.root / "gate"
        self.jars: tuple[str, ...] = ()
        self._workers: list[Worker] = []
        bench.script("lib/shared.py", "def plus_one(number):\n    return number + 1\n")

    def worker(self) -> None:
        """Start a worker."""
        python = f"{sys.base_prefix}/bin/python3"
        conf = {
            **self.yarn.conf,
            "spark.pyspark.python": python,
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.yarn.stagingDir": f"file://{self.bench.root}/staging",
        }
        place = SparkTarget(name=TARGET, kind=TargetKind.YARN, master="yarn", conf=conf)
        settings = {"stop_grace": timedelta(seconds=5), "targets": {TARGET: place}}
        target = ClusterTarget(
            name=TARGET,
            manager=YarnManager(
                [rest.url for rest in reversed(self.yarn.rest)], self._client(), hadoop_user({})
            ),
            endpoints=lambda: [self._endpoint],
            driver_id=CONTAINER_VARIABLE,
        )
        worker = self.bench.worker("w1", clusters={TARGET: target}, settings=settings)
        worker.start()
        self._workers.append(worker)

    def _client(self) -> SparkClient:
        return SparkClient(
            master="yarn",
            folder=self.bench.root / "client",
            java_home=lambda: self.yarn.java_home,
            variables=VARIABLES,
            environment={"HADOOP_CONF_DIR": str(self.yarn.conf_dir)},
            timeout=timedelta(seconds=SPARK_S),
        )

    def submit(self, name: str, text: str, kind: TaskKind = TaskKind.PYSPARK) -> None:
        """Assign an attempt to the worker."""
        made = self.bench.order(
            self.bench.script(name, text),
            attempt=ATTEMPT,
            jars=self.jars,
            args=(str(self.ran), str(self.gate)) if kind is TaskKind.PYSPARK else (),
            task_kind=kind,
            python_path=("lib",),
        )
        place = SparkPlace(target=TARGET, deploy=SparkDeploy.CLUSTER)
        self.bench.board.assign("w1", replace(made, task=replace(made.task, spark_place=place)))

    def begin(self, text: str = SUMS) -> Application:
        """Assign an attempt to the worker, and wait until it runs. Returns its application."""
        self.submit("jobs/sum.py", text)
        eventually(self.ran.exists, "the task computes", SPARK_S)
        return self.applications()[-1]

    def finish(self) -> End:
        """Let the task continue. Returns its END."""
        self.gate.touch()
        return self.bench.await_end(ATTEMPT, SPARK_S)

    def applications(self) -> list[Application]:
        return list(self.yarn.manager.applications.values())

    def runs(self) -> list[str]:
        """Applications in which the task ran."""
        return self.ran.read_text().split() if self.ran.exists() else []

    def is_forgotten(self) -> bool:
        return not list((self.bench.root / "w1" / "applications").glob("*.json"))

    def log(self) -> str:
        return self.bench.logs.read(AttemptId.parse(ATTEMPT)).decode()

    def close(self) -> None:
        for worker in self._workers:
            worker.close(timedelta(seconds=10))
            assert worker.failure is None


@pytest.fixture
def stage(tmp_path: Path, java_home: Path) -> Iterator[YarnBench]:
    assert java_home.is_dir()
    bench, yarn = Bench(tmp_path), YarnCluster(tmp_path / "yarn")
    try:
        yarn.start()
        with gateway(bench) as endpoint:
            made = YarnBench(bench, endpoint, yarn)
            try:
                yield made
            finally:
                made.close()
    finally:
        yarn.stop()
        bench.close()


def foreign(stage: YarnBench, *, tags: frozenset[str] = frozenset()) -> Application:
    """A running application of the same user that does not belong to Nimbus."""
    number = stage.yarn.manager.new_id()
    made = Application(
        id=f"application_1700000000000_{number:04}",
        name="their job",
        user=hadoop_user({}),
        queue=QUEUE,
        tags=tags,
        most_attempts=1,
        master_size=Size(100, 1),
        launch=Launch(["sleep 600"], {}, {}),
    )
    stage.yarn.manager.submit(made)
    eventually(lambda: made.master is not None, "it runs")
    return made


def test_pyspark_task_runs_in_yarn_with_its_release_on_executors(stage: YarnBench) -> None:
    if HAS_JAVAC:
        numbers_jar(stage.bench.release / "numbers.jar", "of the release")
        stage.jars = ("numbers.jar",)
    stage.worker()
    application = stage.begin(SUMS + (READS_JAR if HAS_JAVAC else ""))

    end = stage.finish()

    assert end.outcome is Outcome.SUCCEEDED, stage.log()
    assert (stage.bench.data / "bench/run1/task/1/total").read_text() == "500500"
    claim = stage.bench.slots().claim
    assert claim is not None
    assert claim.driver is not None
    assert claim.driver.id == application.id
    assert stage.runs() == [application.id]
    eventually(stage.is_forgotten, "the submission is forgotten", SPARK_S)
    assert (application.state, application.final_status) == ("FINISHED", "SUCCEEDED")
    assert application.most_attempts == 1


def test_sql_task_runs_in_yarn(stage: YarnBench) -> None:
    stage.worker()
    stage.submit("told.sql", "SELECT sum(id) AS total FROM range(10)", TaskKind.SQL)

    end = stage.bench.await_end(ATTEMPT, SPARK_S)

    assert end.outcome is Outcome.SUCCEEDED, stage.log()
    assert list((stage.bench.data / "bench/run1/task/1").rglob("*.parquet"))


def test_stopped_task_is_gone_from_yarn_and_nobody_elses_application_is_touched(stage: YarnBench) -> None:
    theirs = foreign(stage)
    assert theirs.id == "application_1700000000000_0001", "the one that the task prints"
    stage.worker()
    application = stage.begin()
    tagged = foreign(stage, tags=application.tags)

    stage.bench.board.request_stop(ATTEMPT)

    assert stage.bench.await_end(ATTEMPT, SPARK_S).outcome is Outcome.STOPPED
    eventually(stage.is_forgotten, "the cluster says that it is gone", SPARK_S)
    assert application.state in {"FINISHED", "FAILED", "KILLED"}
    assert [one.state for one in (theirs, tagged)] == ["ACCEPTED", "ACCEPTED"]
    assert all(one.master and stage.yarn.manager.node.runs(one.master) for one in (theirs, tagged))


def test_application_that_a_stranger_kills_is_lost_with_the_words_of_yarn(stage: YarnBench) -> None:
    stage.worker()
    application = stage.begin()

    stage.yarn.manager.kill(application.id, "Application killed by user ops")

    end = stage.bench.await_end(ATTEMPT, SPARK_S)
    assert end.outcome is Outcome.LOST
    assert "KILLED, KILLED: Application killed by user ops" in end.reason
    assert stage.yarn.manager.submissions == 1


def test_task_goes_on_while_the_resource_manager_is_away(stage: YarnBench) -> None:
    stage.worker()
    application = stage.begin()
    stage.yarn.go_away()
    silent_until = stage.bench.slots().progress["number"] + 6
    eventually(lambda: stage.bench.slots().progress["number"] > silent_until, "it was away for 18 s", SPARK_S)
    assert stage.bench.slots().end is None

    stage.yarn.come_back()

    assert stage.finish().outcome is Outcome.SUCCEEDED, stage.log()
    assert stage.runs() == [application.id]
    eventually(stage.is_forgotten, "the cluster says that it is gone", SPARK_S)


def test_nothing_is_submitted_while_the_resource_manager_is_away_and_once_when_it_is_back(
    stage: YarnBench,
) -> None:
    stage.yarn.go_away()
    stage.worker()
    stage.submit("jobs/sum.py", SUMS)
    eventually(stage.is_forgotten, "it could not be submitted")
    assert stage.bench.slots().end is None

    stage.yarn.come_back()

    assert stage.finish().outcome is Outcome.SUCCEEDED, stage.log()
    assert (stage.yarn.manager.submissions, len(stage.runs())) == (1, 1)


def test_submission_is_followed_when_its_client_dies_before_the_reply(stage: YarnBench) -> None:
    replied = threading.Event()
    stage.yarn.manager.before_reply = lambda: replied.wait(SPARK_S)
    stage.worker()
    stage.submit("jobs/sum.py", SUMS)
    eventually(stage.applications, "it is taken", SPARK_S)

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended
            if any("spark.yarn.appMasterEnv" in word or "SparkSubmit" in word for word in process.cmdline()):
                process.kill()
    replied.set()

    assert stage.finish().outcome is Outcome.SUCCEEDED, stage.log()
    (application,) = stage.applications()
    assert (stage.yarn.manager.submissions, stage.runs()) == (1, [application.id])


def test_submission_of_which_the_client_hears_an_error_runs_at_most_once(stage: YarnBench) -> None:
    """Spark's client then deletes its uploads, so the application may not start."""

    def lost() -> None:
        raise RuntimeError("the reply is lost")

    stage.yarn.manager.before_reply = lost
    stage.worker()
    stage.submit("jobs/sum.py", SUMS)

    end = stage.finish()

    assert stage.yarn.manager.submissions == 1
    assert len(stage.runs()) == (end.outcome is Outcome.SUCCEEDED)
    assert end.outcome in {Outcome.SUCCEEDED, Outcome.REFUSED}


def test_task_waits_for_room_in_a_full_queue_and_tells_why(stage: YarnBench) -> None:
    theirs = foreign(stage)
    stage.yarn.manager.capacity = Size(200, 2)
    stage.worker()
    stage.submit("jobs/sum.py", SUMS)

    def words() -> str:
        return str(stage.bench.slots().progress.get("cluster", ""))

    eventually(
        lambda: "50.0 % of the queue's capacity are used: 100 MB and 1 cores" in words(), "it tells", SPARK_S
    )
    assert "waits in queue default for 896 MB and 1 cores" in words()
    assert stage.bench.slots().end is None
    assert theirs.master is not None

    stage.yarn.manager.capacity = Size(8192, 16)

    assert stage.finish().outcome is Outcome.SUCCEEDED, stage.log()
    assert len(stage.runs()) == 1


def test_queue_that_is_not_there_refuses_the_attempt_with_the_words_of_yarn(stage: YarnBench) -> None:
    stage.yarn.manager.submitters = {"ops"}
    stage.worker()
    stage.submit("jobs/sum.py", SUMS)

    end = stage.bench.await_end(ATTEMPT, SPARK_S)

    assert end.outcome is Outcome.REFUSED
    assert "does not have permission to submit" in end.reason
    assert stage.runs() == []
