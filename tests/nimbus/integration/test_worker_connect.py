"""Tasks in `mode: connect` on a real Spark Connect server of a worker."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from nimbus.cli.doctor import Level
from nimbus.cli.doctor.services import targets
from nimbus.domain.attempts.slots import End
from nimbus.domain.pipelines.pipeline import SparkMode, SparkPlace, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.java import find_java
from nimbus.worker.connect import server_folder
from nimbus.worker.connect.plan import ConnectPlan, ConnectProvider
from nimbus.worker.connect.server import ConnectServerError, LocalServer, LocalServerSettings, RemoteServer
from nimbus.worker.host import procfs
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.targets import SparkTarget, TargetKind
from nimbus.worker.worker import Worker
from tests.nimbus.java_source import HAS_JAVAC, numbers_jar
from tests.nimbus.worker_bench import Bench, eventually
from tests.thorough import thorough

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_home"), pytest.mark.timeout(900)]

SOON = timedelta(seconds=60)
SUM = "SELECT sum(id) AS total FROM range(1000)"
ADOPTS = """
import os
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from nimbus.task import context

spark = SparkSession.builder.appName("mine").getOrCreate()
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
spark.range(5).createOrReplaceTempView("five")
spark.stop()
spark = SparkSession.builder.getOrCreate()
assert spark.table("five").count() == 5, "another session"
twice = udf(lambda n: 2 * n, "long")
spark.range(10).select(twice("id").alias("n")).write.parquet(str(context().output / "data"))
"""
BEATS = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

file = sys.argv[1]

def beat(n):
    import time
    for _ in range(6000):
        with open(file, "a") as beats:
            beats.write(".")
        time.sleep(0.05)
    return n

spark = SparkSession.builder.getOrCreate()
spark.range(1).select(udf(beat, "long")("id")).collect()
"""

STARTS_A_PROGRAM = """
import sys
from pyspark.sql import SparkSession

program = f"/bin/sh {sys.argv[2]} {sys.argv[1]}"
spark = SparkSession.builder.getOrCreate()
spark.sql(f"SELECT TRANSFORM(id) USING '{program}' AS (line) FROM range(1)").collect()
"""
BEATING_PROGRAM = 'while :; do printf . >> "$1"; sleep 0.05; done\n'


NUMBERS = """
CREATE TEMPORARY VIEW numbers USING example.Numbers;
SELECT id, told FROM numbers
"""


class QuietServer(LocalServer):
    """A server without the exercise beside its first task, which takes more processor time than the tests."""

    def _exercise(self, plan: ConnectPlan) -> None:
        pass


class Stage:
    """A bench whose workers have Connect servers."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._workers: list[Worker] = []
        self.seen: set[int] = set()

    def server(
        self, owner: str = "w1", idle_timeout: timedelta = timedelta(minutes=10), exercised: bool = False
    ) -> LocalServer:
        return (LocalServer if exercised else QuietServer)(
            LocalServerSettings(
                folder=self.bench.root / owner / "connect",
                master="local[2]",
                spark_conf={},
                env={},
                java_home=lambda: find_java().java_home,
                idle_timeout=idle_timeout,
            )
        )

    def worker(self, connect: ConnectProvider | None = None, **settings: Any) -> Worker:
        settings["connect"] = connect or self.server()
        return self.keep(self.bench.worker("w1", settings=settings))

    def keep(self, worker: Worker) -> Worker:
        """Start a worker that ends together with the others."""
        worker.start()
        self._workers.append(worker)
        return worker

    def end_workers(self) -> None:
        for worker in self._workers:
            worker.close(SOON)
        self._workers.clear()

    def assign(self, script: str, attempt: str = "run1.task.1", **more: Any) -> None:
        kind = TaskKind.SQL if script.endswith(".sql") else TaskKind.PYSPARK
        order = self.bench.order(
            script, attempt=attempt, task_kind=kind, spark_mode=SparkMode.CONNECT, **more
        )
        self.bench.board.assign("w1", order)

    def beating(self, attempt: str = "run1.task.1") -> None:
        """Start an operation that shows periodically that it runs."""
        self.beats = self.bench.root / f"beats-{attempt}"
        self.assign(self.bench.script("beats.py", BEATS), attempt, args=(str(self.beats),))
        eventually(self.beats.exists, "an operation", 300)

    def beating_program(self, attempt: str) -> None:
        """Start an operation with a program that does not check whether the server is alive."""
        self.beats = self.bench.root / f"beats-{attempt}"
        program = self.bench.release / self.bench.script("beats.sh", BEATING_PROGRAM)
        script = self.bench.script("starts.py", STARTS_A_PROGRAM)
        self.assign(script, attempt, args=(str(self.beats), str(program)))
        eventually(self.beats.exists, "a program of an operation", 300)

    def servers(self) -> list[ProcessId]:
        """Living servers."""
        ours = f"TMPDIR={self.bench.root}/".encode()
        found = [
            process.id
            for process in procfs.living()
            if process.session == process.id.pid
            and ours in (variables := procfs.environment_of(process.id.pid) or b"")
            and b"SPARK_CONNECT_AUTHENTICATE_TOKEN=" in variables
        ]
        self.seen |= {process.pid for process in found}
        return found

    def has_stopped_beating(self) -> bool:
        """Whether the last operation has ended: it wrote nothing for longer than its pauses."""
        return time.time() - self.beats.stat().st_mtime > 1.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    bench = Bench(tmp_path)
    made = Stage(bench)
    yield made
    made.end_workers()
    for server in made.servers():
        server_folder.end_server(server)
    for pid in made.seen:
        with suppress(ChildProcessError):  # a child of a closed worker is a child of this process
            os.waitpid(pid, 0)
    bench.close()


def succeeded(bench: Bench, attempt: str) -> End:
    end = bench.await_end(attempt, 300)
    assert end.outcome is Outcome.SUCCEEDED, bench.folder(attempt).log.read_text()
    return end


def has_its_jars_alone(stage: Stage) -> None:
    """The session of a task has the jars of this task alone."""
    pq: Any = pytest.importorskip("pyarrow.parquet")
    (stage.bench.release / "jars").mkdir()
    for told in ("first", "second"):
        numbers_jar(stage.bench.release / "jars" / f"{told}.jar", told)
        stage.assign(stage.bench.script("n.sql", NUMBERS), f"run1.{told}.1", jars=(f"jars/{told}.jar",))
        end = succeeded(stage.bench, f"run1.{told}.1")

        assert end.output is not None
        rows = pq.read_table(stage.bench.data / end.output / "data").to_pylist()
        assert rows == [{"id": 0, "told": told}, {"id": 1, "told": told}]

    stage.assign("n.sql", "run1.without.1")
    assert "example.Numbers" in stage.bench.await_end("run1.without.1", 300).reason


def test_tasks_share_one_server_each_with_a_session_and_jars_of_its_own(stage: Stage) -> None:
    pq: Any = pytest.importorskip("pyarrow.parquet")
    bench = stage.bench
    worker = stage.worker()

    stage.assign(bench.script("sum.sql", SUM), "run1.sum.1")
    succeeded(bench, "run1.sum.1")
    stage.assign(
        bench.script("adopts.py", ADOPTS), "run1.adopts.1", spark_conf={"spark.sql.shuffle.partitions": "3"}
    )
    succeeded(bench, "run1.adopts.1")

    assert pq.read_table(bench.data / "bench/run1/sum/1/data").to_pylist() == [{"total": 499500}]
    assert sum(pq.read_table(bench.data / "bench/run1/adopts/1/data")["n"].to_pylist()) == 90
    sessions = [bench.slots(attempt).claim.session for attempt in ("run1.sum.1", "run1.adopts.1")]  # type: ignore[union-attr]
    assert all(session is not None and session.server_session_id for session in sessions)
    assert len({session.session_id for session in sessions if session is not None}) == 2
    assert len({session.url for session in sessions if session is not None}) == 1
    assert "token" not in bench.folder("run1.sum.1").driver_file.read_text()
    assert worker.failure is None

    if HAS_JAVAC:
        has_its_jars_alone(stage)

    # A static property is refused by the server before the task starts.
    stage.assign(bench.script("sum.sql", SUM), spark_conf={"spark.sql.warehouse.dir": "/elsewhere"})
    end = bench.await_end(deadline_s=300)
    assert end.outcome is Outcome.REFUSED
    assert end.reason.startswith("the Spark Connect server says INTERNAL: [CANNOT_MODIFY_")
    assert end.pipeline_at_fault
    # A worker that ends leaves a server that a runner still uses to the next worker.
    (server,) = server_folder.servers_below(bench.root / "w1" / "connect")
    eventually(lambda: server_folder.is_unused(server[0], 0.0), "the release of the last session")

    stage.end_workers()

    assert stage.servers() == []


@thorough
def test_server_is_exercised_beside_its_first_task_until_its_worker_ends(stage: Stage) -> None:
    bench = stage.bench
    stage.worker(stage.server(exercised=True))

    before = set(psutil.Process().children())
    stage.assign(bench.script("sum.sql", SUM), "run1.sum.1")
    succeeded(bench, "run1.sum.1")

    (folder, _), *_ = server_folder.servers_below(bench.root / "w1" / "connect")
    written = folder / "tmp" / "exercise"
    eventually(written.exists, "a file of the exercise", 60)

    stage.end_workers()

    assert stage.servers() == []
    left = set(psutil.Process().children()) - before
    assert not [child for child in left if "connect_session" in " ".join(child.cmdline())]


@thorough
def test_statement_that_is_no_query_leaves_no_result(stage: Stage) -> None:
    bench = stage.bench
    stage.worker()

    stage.assign(bench.script("view.sql", "CREATE TEMP VIEW one AS SELECT 1 AS n"))

    assert bench.await_end(deadline_s=300).outcome is Outcome.SUCCEEDED
    assert (
        "result: none, because the last statement is no query" in bench.folder("run1.task.1").log.read_text()
    )
    assert not list(bench.data.rglob("*.parquet"))


def test_no_operation_goes_on_after_its_attempt_has_ended(stage: Stage) -> None:
    bench = stage.bench
    stage.worker()
    stage.beating("run1.stopped.1")

    bench.board.request_stop("run1.stopped.1")

    assert bench.await_end("run1.stopped.1").outcome is Outcome.STOPPED
    eventually(stage.has_stopped_beating, "the operation's end", 60)

    stage.beating("run1.driver.1")
    driver = bench.slots("run1.driver.1").claim
    assert driver is not None
    assert driver.pid is not None
    os.kill(driver.pid, signal.SIGKILL)

    assert bench.await_end("run1.driver.1").outcome is Outcome.FAILED
    eventually(stage.has_stopped_beating, "the operation's end", 60)

    stage.beating("run1.runner.1")
    runner = bench.runner("run1.runner.1")
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)

    assert bench.await_end("run1.runner.1").outcome is Outcome.LOST
    eventually(stage.has_stopped_beating, "the operation's end", 60)
    (server,) = stage.servers()

    stage.beating_program("run1.server.1")
    os.kill(server.pid, signal.SIGKILL)

    end = bench.await_end("run1.server.1", 300)
    assert end.outcome is Outcome.LOST
    assert "Spark Connect server" in end.reason
    eventually(stage.has_stopped_beating, "the program's end", 60)


@thorough
def test_operation_is_stopped_though_its_server_does_not_answer(stage: Stage) -> None:
    bench = stage.bench
    stage.worker()
    stage.beating()
    (server,) = stage.servers()

    os.kill(server.pid, signal.SIGSTOP)  # so it is killed before the end
    bench.board.request_stop("run1.task.1")

    assert bench.await_end(deadline_s=300).outcome is Outcome.STOPPED
    assert stage.servers() == []
    eventually(stage.has_stopped_beating, "the operation's end", 60)


def test_attempt_and_server_outlive_their_worker(stage: Stage) -> None:
    bench = stage.bench
    stage.worker()
    stage.beating("run1.outlives.1")
    (first,) = stage.servers()

    stage.end_workers()
    stage.worker(stage.server(idle_timeout=timedelta(seconds=1)))
    stage.assign(bench.script("sum.sql", SUM), "run1.sum.1")

    succeeded(bench, "run1.sum.1")
    assert stage.servers() == [first]
    beats = stage.beats.stat().st_size
    eventually(lambda: stage.beats.stat().st_size > beats, "the operation goes on", 60)

    bench.board.request_stop("run1.outlives.1")

    assert bench.await_end("run1.outlives.1", 300).outcome is Outcome.STOPPED
    eventually(lambda: stage.servers() == [], "the end of the idle server", 60)


@thorough
def test_operation_ends_whose_server_and_runner_are_killed(stage: Stage) -> None:
    bench = stage.bench
    stage.worker()
    stage.beating_program("run1.both.1")
    (server,) = stage.servers()
    runner = bench.runner("run1.both.1")
    assert runner is not None
    os.kill(runner.pid, signal.SIGSTOP)
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: not procfs.is_alive(server), "the server's end")
    os.kill(runner.pid, signal.SIGKILL)

    assert bench.await_end("run1.both.1", 300).outcome is Outcome.LOST
    eventually(stage.has_stopped_beating, "the program's end", 60)


@thorough
def test_operation_on_a_server_of_somebody_else_ends_before_its_attempt_is_lost(stage: Stage) -> None:
    bench = stage.bench
    somebody = stage.server("somebody")
    there = somebody.plan()
    stage.worker(RemoteServer(there.url, there.token), executors_see="host")
    stage.beating()
    runner = bench.runner()
    assert runner is not None

    os.kill(runner.pid, signal.SIGKILL)

    assert bench.await_end(deadline_s=300).outcome is Outcome.LOST
    eventually(stage.has_stopped_beating, "the operation's end", 60)
    stage.assign(bench.script("sum.sql", SUM), "run1.sum.1")
    succeeded(bench, "run1.sum.1")
    stage.end_workers()
    assert len(stage.servers()) == 1, "the server of another owner is not ended"
    somebody.close()


@thorough
def test_task_runs_on_the_connect_server_of_its_target_which_the_doctor_finds_well(stage: Stage) -> None:
    somebody = stage.server("somebody")
    there = somebody.plan()
    shared = SparkTarget(
        name="shared",
        kind=TargetKind.CONNECT,
        url=there.url,
        executors_see="host",
        token=lambda: there.token,
    )
    worker = stage.bench.worker("w1", settings={"targets": {"shared": shared}})
    stage.keep(worker)
    place = SparkPlace(target="shared")

    stage.assign(stage.bench.script("sum.sql", SUM), "run1.sum.1", spark_place=place)

    succeeded(stage.bench, "run1.sum.1")
    (well,) = targets({"shared": shared})
    (stranger,) = targets({"shared": replace(shared, token=lambda: "wrong")})
    assert (well.verdict, well.detail) == (
        Level.OK,
        f"{there.url} answers, Spark {version('pyspark')}",
    )
    assert stranger.verdict is Level.FAIL
    assert "UNAUTHENTICATED" in stranger.detail
    somebody.close()


@thorough
def test_operation_ends_within_a_minute_when_runner_and_worker_are_gone(stage: Stage) -> None:
    stage.worker()
    stage.beating()
    runner = stage.bench.runner()
    assert runner is not None
    servers = stage.servers()
    stage.end_workers()

    os.kill(runner.pid, signal.SIGKILL)

    eventually(stage.has_stopped_beating, "the operation's end", 90)
    assert stage.servers() == servers


class SlowServer(RemoteServer):
    """A server that does not run yet and starts slowly."""

    def __init__(self) -> None:
        super().__init__("sc://localhost:1", None)
        self.may_start = threading.Event()
        self.looks = 0

    def is_up(self) -> bool:
        return False

    def plan(self) -> ConnectPlan:
        self.may_start.wait(60)
        raise ConnectServerError("there is none")

    def look_after(self) -> bool:
        self.looks += 1
        return False


def test_fork_server_for_connect_stays_while_an_order_is_prepared(stage: Stage) -> None:
    server = SlowServer()
    worker = stage.worker(server)
    stage.assign(stage.bench.script("sum.sql", SUM))
    eventually(lambda: worker._connect_forks.pid, "the fork server")
    seen = server.looks

    eventually(lambda: server.looks > seen + 1, "two looks")

    assert worker._connect_forks.pid is not None
    server.may_start.set()
    stage.bench.await_end(deadline_s=300)
    eventually(lambda: worker._connect_forks.pid is None, "the fork server's end")
