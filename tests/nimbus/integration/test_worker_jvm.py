"""Kept JVMs with real Spark: what an attempt sees, what its predecessor cannot leave, and how JVMs end."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.attempts.workers import jvm_release
from nimbus.domain.pipelines.pipeline import Limits, SparkReuse, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host import procfs
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.jvm.java import MAX_ATTEMPTS
from nimbus.worker.jvm.launcher import JvmLauncher
from nimbus.worker.launcher import ForkLauncher
from nimbus.worker.settings import TaskTelemetry
from tests.nimbus.worker_bench import Bench, RecordingRegistrations, eventually
from tests.thorough import thorough

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_home"), pytest.mark.timeout(1800)]

SEES_ITS_ATTEMPT = """
import os, sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from nimbus.task import context
from shared import double

assert SparkContext._active_spark_context is None
left = [name for name in os.listdir(os.getcwd()) if not name.startswith("spark-")]  # of a JVM that starts
assert left == [], left
os.environ["PYTHONPATH"] += os.pathsep + "/of/the/task"
spark = SparkSession.builder.config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
assert "PYSPARK_GATEWAY_SECRET" not in os.environ
jvm = spark._jvm
print("jvm:", jvm.java.lang.ProcessHandle.current().pid())
attempt = os.environ["NIMBUS_ATTEMPT"].split("/")[1]
work = os.path.join("/attempts", attempt, "work")
conf = dict(spark.sparkContext.getConf().getAll())
assert conf["spark.app.name"] == spark.sparkContext.appName == attempt, conf
assert conf["spark.sql.warehouse.dir"].endswith(work + "/tmp/spark-warehouse"), conf
assert conf["spark.openlineage.parentJobName"] == "bench." + context().task, conf
assert conf["spark.openlineage.parentRunId"] and os.environ["TRACEPARENT"]
for session in (spark, spark.newSession()):
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    assert session.catalog.listTables() == []
assert os.getcwd().endswith(work + "/tmp") and os.path.samefile(".", os.environ["TMPDIR"])
java = jvm.java.io.File.createTempFile("abc", "def").getPath()
assert os.path.realpath(java).startswith(os.getcwd() + "/"), java
assert [name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("blockmgr-")]
spark.sql("CREATE TABLE own AS SELECT 1 AS one")
assert os.path.isdir("spark-warehouse/own")

def told(n):
    assert "/of/the/task" in os.environ["PYTHONPATH"]
    open("relative", "w").close()
    own = os.environ["NIMBUS_ATTEMPT"].split("/")[1]
    return f"{own} {context().task} {os.environ['TRACEPARENT'] != ''} {double(int(n))}"

assert spark.range(1).select(udf(told)("id")).first()[0] == f"{attempt} {context().task} True 0"
assert os.path.exists("relative")
jvm.java.lang.System.err.println("from the JVM of " + attempt)
spark.range(10).write.parquet(str(context().output / "data"))
print("all is well")
"""
OWN_MEMORY = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.driver.memory", "600m").appName("own").getOrCreate()
heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
assert 500 < heap <= 600, heap
assert spark.range(10).count() == 10
"""
HEAVY = """
import os
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()
java = spark._jvm.java.lang.ProcessHandle.current().pid()
frame = spark.range(1000).withColumn("n", udf(lambda n: n + 1, "long")("id"))
frame.groupBy("n").count().write.parquet("out")
assert spark.read.parquet("out").count() == 1000
print("jvm:", java, len(os.listdir(f"/proc/{java}/task")), len(os.listdir(f"/proc/{java}/fd")))
"""
JVM_OF_IT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
jvm = spark._jvm
system = jvm.java.lang.System
print("jvm:", jvm.java.lang.ProcessHandle.current().pid())
def resource():
    return jvm.java.lang.Thread.currentThread().getContextClassLoader().getResource("left-in-jar.txt")
"""


@pytest.fixture
def jvms(tmp_path: Path) -> Iterator[JvmLauncher]:
    launcher = JvmLauncher(ForkLauncher(), tmp_path / "w1", limit=2, memory=lambda: 64 << 30)
    launcher.start()
    yield launcher
    launcher.close()


@pytest.fixture
def bench(tmp_path: Path, jvms: JvmLauncher) -> Iterator[Bench]:
    made = Bench(tmp_path, jvms)
    made.script("lib/shared.py", "def double(n):\n    return 2 * n\n")
    yield made
    made.close()


class Stage:
    """Runs attempts, one after the other."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self._count = bench, 0

    def begin(self, script: str, **more: Any) -> AttemptFolder:
        self._count += 1
        plan = more.pop("plan", {})
        order = self.bench.order(
            self.bench.script(f"task{self._count}.py", script),
            attempt=f"run1.task{self._count}.1",
            **{"task_kind": TaskKind.PYSPARK, "python_path": ("lib",), **more},
        )
        folder = self.bench.folder(order.attempt)
        folder.create(order)
        self.bench.launch(folder, self.bench.startup(**plan))
        return folder

    def ended(self, folder: AttemptFolder) -> End:
        end = self.bench.await_end(str(folder.attempt), 600)
        eventually(lambda: folder.is_delivered, "delivery")
        return end

    def ran(self, script: str, **more: Any) -> tuple[str, str]:
        """Run an attempt that succeeds; return its JVM and its log."""
        folder = self.begin(script, **more)
        end = self.ended(folder)
        log = folder.log.read_text()
        assert end.outcome is Outcome.SUCCEEDED, (end.reason, log, folder.runner_log.read_text())
        return jvm_in(log), log


def jvm_in(log: str) -> str:
    found = re.search(r"^jvm: (\d+)$", log, re.MULTILINE)
    return found[1] if found else ""


def lives(pid: int | str) -> bool:
    found = procfs.read_stat(int(pid))
    return found is not None and not found.is_dead


@pytest.fixture
def stage(bench: Bench) -> Stage:
    return Stage(bench)


def test_next_attempt_has_the_jvm_of_the_one_before_and_sees_only_its_own(
    stage: Stage, jvms: JvmLauncher
) -> None:
    telemetry = TaskTelemetry(traces=True, namespace="prod", transport={"transport.type": "http"})
    more = {"spark_conf": {"spark.sql.shuffle.partitions": "3"}, "plan": {"telemetry": telemetry}}

    (first, _), (second, log) = (stage.ran(SEES_ITS_ATTEMPT, **more) for _ in range(2))

    assert first == second != ""
    assert "all is well" in log
    assert "from the JVM of run1.task2.1" in log
    assert "task1.1" not in log
    folder = stage.bench.folder("run1.task2.1")
    ends = [stage.bench.slots(f"run1.task{number}.1").end for number in (1, 2)]
    assert [end.jvm for end in ends if end] == ["new", "kept, its attempt 2"]
    costs = [end.cost for end in ends if end and end.cost]
    cpus_ms = [cost.cpu_ms or 0 for cost in costs]
    assert max(cpus_ms[1:]) < cpus_ms[0], "each has its own part of the time of the JVM"
    assert all((cost.peak_memory_bytes or 0) > 150 << 20 and cost.task_ms for cost in costs), costs
    assert not folder.scratch.exists()
    assert folder.jvm_keeper() is None
    jvms.look_after()
    assert jvms.state == "1 idle"
    jvms.close()
    eventually(lambda: not lives(first), "the JVM ends with its worker")


TIMER = """
timer = jvm.java.util.Timer("mine", True)
"""
HOSTILE = {
    "sets system properties": (
        "system.setProperty('spark.sql.shuffle.partitions', '9')\n"
        "system.setProperty('user.timezone', 'Asia/Tokyo')\n"
        "system.setProperty('mine', 'left')\nsystem.clearProperty('java.version')\n"
    ),
    "sets time zone and locale": (
        "jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone('Asia/Tokyo'))\n"
        "jvm.java.util.Locale.setDefault(jvm.java.util.Locale.GERMANY)\n"
    ),
    "silences logs": (
        "spark.sparkContext.setLogLevel('OFF')\n"
        "jvm.org.apache.logging.log4j.core.config.Configurator.setLevel('org.apache.spark', "
        "jvm.org.apache.logging.log4j.Level.OFF)\n"
    ),
    "redirects output": "system.setErr(jvm.java.io.PrintStream(jvm.java.io.FileOutputStream('/dev/null')))\n",
    "registers listeners": (
        "import pyspark.sql.streaming.listener as api\n"
        "from pyspark.java_gateway import ensure_callback_server_started\n"
        "class OfStreams(api.StreamingQueryListener):\n"
        "    def onQueryStarted(self, event): print('left')\n"
        "    onQueryProgress = onQueryIdle = onQueryTerminated = onQueryStarted\n"
        "class OfQueries:\n"
        "    def onSuccess(self, name, execution, took): print('left')\n"
        "    class Java:\n"
        "        implements = ['org.apache.spark.sql.util.QueryExecutionListener']\n"
        "spark.streams.addListener(OfStreams())\n"
        "ensure_callback_server_started(spark.sparkContext._gateway)\n"
        "spark._jsparkSession.listenerManager().register(OfQueries())\n"
        "spark.sparkContext._jsc.sc().addSparkListener(jvm.org.apache.spark.scheduler.StatsReportListener())\n"
        "assert spark.range(3).count() == 3\n"
    ),
    "adds files and jars": (
        "import os, zipfile\n"
        "for name in ('left.txt', 'left.jar'):\n"
        "    with zipfile.ZipFile(name, 'w') as file:\n"
        "        file.writestr('left-in-jar.txt', 'left')\n"
        "spark.sparkContext.addFile(os.path.abspath('left.txt'))\n"
        "spark.sparkContext._jsc.addJar(os.path.abspath('left.jar'))\n"
        "spark.sql('ADD JAR ' + os.path.abspath('left.jar'))\n"
        "assert resource() is not None\n"
    ),
    "adds a hook of the JVM's shutdown": (
        "jvm.java.lang.Runtime.getRuntime().addShutdownHook(jvm.java.lang.Thread('mine'))\n"
    ),
    "registers a dialect of JDBC": (
        "dialects = jvm.org.apache.spark.sql.jdbc.JdbcDialects\n"
        "dialects.unregisterDialect(dialects.get('jdbc:postgresql://h/d'))\n"
    ),
    "changes Java's proxies": "jvm.java.net.ProxySelector.setDefault(None)\n",
    "leaves views, functions and settings": (
        "spark.range(3).createOrReplaceTempView('left')\n"
        "spark.range(3).createOrReplaceGlobalTempView('left')\n"
        "spark.udf.register('mine', lambda: 1)\nspark.conf.set('spark.sql.shuffle.partitions', '9')\n"
        "spark.range(3).cache().count()\nspark.sparkContext.setJobGroup('left', 'left')\n"
        "spark.sparkContext.setLocalProperty('left', 'left')\n"
    ),
    "does not stop": "",
    "leaves a stream": ("spark.readStream.format('rate').load().writeStream.format('noop').start()\n"),
    "changes Hadoop's configuration": (
        "spark.sparkContext._jsc.hadoopConfiguration().set('fs.defaultFS', 'file:///left')\n"
    ),
    "changes Spark's configuration of Hadoop": (
        "jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf().set('fs.defaultFS', 'file:///left')\n"
    ),
    "adds a resource of Hadoop": (
        "jvm.org.apache.hadoop.conf.Configuration.addDefaultResource('left.xml')\n"
    ),
    "leaves a thread": TIMER,
    "runs out of memory": (
        "import py4j\ntry:\n    jvm.java.util.ArrayList(1 << 30)\n"
        "except py4j.protocol.Py4JJavaError as exc:\n    assert 'OutOfMemory' in str(exc)\n"
    ),
    "leaves files": "open('left', 'w').close()\njvm.java.io.File.createTempFile('left', '')\n",
    "forks": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n",
    "leaves a program": "jvm.java.lang.ProcessBuilder(['sleep', '600']).start()\n",
    "leaves a job in a thread": (
        "import threading, time\n"
        "threading.Thread(target=lambda: spark.sparkContext.parallelize([1]).map(lambda n: time.sleep(600))"
        ".collect(), daemon=True).start()\ntime.sleep(1)\n"
    ),
}
DEADLY = {
    "exits the JVM": "system.exit(0)\n",
    "halts the JVM": "jvm.java.lang.Runtime.getRuntime().halt(3)\n",
    "leaves without an end": "import os\nos._exit(0)\n",
    "fails": "raise ValueError('mine')\n",
    "kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
}
INNOCENT = (
    JVM_OF_IT
    + """
import os
from pyspark.sql import SparkSession
assert os.listdir(os.getcwd()) == [name for name in os.listdir(os.getcwd()) if "left" not in name]
assert system.getProperty("mine") is None and system.getProperty("java.version")
assert spark.conf.get("spark.sql.shuffle.partitions") == "200"
assert spark.catalog.listTables() == [] and spark.catalog.listTables("global_temp") == []
assert not spark.catalog.functionExists("mine")
assert spark.sparkContext.getLocalProperty("left") is None
assert spark.sparkContext.statusTracker().getJobIdsForGroup("left") == []
assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0
assert len(spark.streams.active) == len(spark.streams._jsqm.listListeners()) == 0
assert len(spark._jsparkSession.listenerManager().listListeners()) == 0
assert "StatsReport" not in spark.sparkContext._jsc.sc().listenerBus().listeners().toString()
assert spark.sparkContext.listFiles == [] and spark.sparkContext._jsc.sc().listJars().isEmpty()
assert resource() is None
dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get("jdbc:postgresql://h/d").toString()
assert "Postgres" in dialect, dialect
assert jvm.java.net.ProxySelector.getDefault() is not None
assert jvm.org.apache.hadoop.conf.Configuration().get("fs.defaultFS") == "file:///"
assert spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") == "file:///"
names = [thread.getName() for thread in jvm.java.lang.Thread.getAllStackTraces().keySet()]
assert "mine" not in names
system.err.println("the JVM is heard")
log = jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.some")
log.warn("the log is heard")
print("zone:", jvm.java.util.TimeZone.getDefault().getID(), jvm.java.util.Locale.getDefault().toString())
print("zone of SQL:", spark.conf.get("spark.sql.session.timeZone"))
assert spark.range(10).selectExpr("sum(id)").first()[0] == 45
"""
)


def told(log: str) -> list[str]:
    """What the innocent one and its JVM print, in any order, that must not depend on its predecessor."""
    return sorted(line[-20:] for line in log.splitlines() if line.startswith("zone") or "is heard" in line)


@thorough
def test_innocent_attempt_does_not_notice_a_careless_predecessor(stage: Stage, jvms: JvmLauncher) -> None:
    """In one launcher, so that each JVM that is kept has seen all before it."""
    _, alone = stage.ran(INNOCENT)
    assert "the log is heard" in alone
    assert "the JVM is heard" in alone
    kept = {}

    for name, does in HOSTILE.items():
        before, _ = stage.ran(JVM_OF_IT + does)
        after, log = stage.ran(INNOCENT)
        kept[name] = before == after
        assert all(procfs.descendants(jvm.id.pid) <= {int(after)} for jvm in jvms.jvms), name
        assert told(log) == told(alone), (name, log)

    gone = {name for name, is_kept in kept.items() if not is_kept}
    assert gone - {"leaves a job in a thread"} == {
        "changes Spark's configuration of Hadoop",
        "adds a resource of Hadoop",
        "registers a dialect of JDBC",
        "changes Java's proxies",
        "leaves a thread",
        "runs out of memory",
    }


@thorough
@pytest.mark.parametrize("name", DEADLY)
def test_innocent_attempt_does_not_notice_how_its_predecessor_died(name: str, stage: Stage) -> None:
    folder = stage.begin(JVM_OF_IT + DEADLY[name])
    assert stage.ended(folder).outcome is Outcome.FAILED
    before = jvm_in(folder.log.read_text())
    assert not lives(before), "the JVM has ended before the attempt"

    after, _ = stage.ran(INNOCENT)

    assert after != before


HANGS = (
    JVM_OF_IT
    + """
import time
print("runs", flush=True)
spark.sparkContext.parallelize(range(2), 2).map(lambda n: time.sleep(600)).collect()
"""
)


def keeper_of(folder: AttemptFolder) -> ProcessId:
    found = folder.jvm_keeper()
    assert found is not None
    return found


def driver_of(stage: Stage, folder: AttemptFolder) -> int:
    return stage.bench.driver_tree(str(folder.attempt))[0].pid


def runner_of(stage: Stage, folder: AttemptFolder) -> int:
    runner = stage.bench.runner(str(folder.attempt))
    assert runner is not None
    return runner.pid


KILLED: dict[str, Callable[[Stage, AttemptFolder], int]] = {
    "driver": driver_of,
    "JVM": lambda _, folder: int(jvm_in(folder.log.read_text())),
    "keeper": lambda _, folder: keeper_of(folder).pid,
    "runner": runner_of,
}


@pytest.mark.parametrize("killed", [pytest.param(name, marks=thorough) for name in KILLED])
def test_attempt_with_a_kept_jvm_ends_with_each_of_its_processes(killed: str, stage: Stage) -> None:
    stage.ran(JVM_OF_IT)
    folder = stage.begin(HANGS)
    eventually(lambda: folder.log.exists() and "runs" in folder.log.read_text(), "the task runs", 300)
    keeper, java = keeper_of(folder), int(jvm_in(folder.log.read_text()))

    os.kill(KILLED[killed](stage, folder), signal.SIGKILL)

    if killed != "runner":
        assert stage.ended(folder).outcome is Outcome.FAILED
        assert not lives(java), "the JVM has ended before the attempt"
    eventually(lambda: not procfs.is_alive(keeper), "the keeper ends")
    eventually(lambda: not lives(java), "the JVM ends")
    eventually(lambda: stage.bench.driver_tree(str(folder.attempt)) == [], "Python workers end")
    assert stage.ran(INNOCENT)[0] != str(java)


@thorough
def test_idle_keeper_that_hangs_holds_up_no_attempt(stage: Stage, jvms: JvmLauncher) -> None:
    java, _ = stage.ran(JVM_OF_IT)
    jvms.look_after()
    os.kill(jvms.jvms[0].id.pid, signal.SIGSTOP)

    folder = stage.begin(JVM_OF_IT)

    end = stage.ended(folder)
    assert (end.outcome, end.jvm) == (Outcome.SUCCEEDED, "its own: its kept JVM has died, or does not answer")
    assert not lives(java)


@thorough
def test_keeper_that_hangs_during_its_attempt_is_killed_with_the_jvm(stage: Stage) -> None:
    folder = stage.begin(f"{JVM_OF_IT}import time\nprint('runs', flush=True)\ntime.sleep(2)\n")
    eventually(lambda: folder.log.exists() and "runs" in folder.log.read_text(), "the task runs", 300)
    os.kill(keeper_of(folder).pid, signal.SIGSTOP)

    end = stage.ended(folder)

    assert end.outcome is Outcome.SUCCEEDED
    assert end.jvm.startswith("new; not kept: its keeper did not answer")
    assert not lives(jvm_in(folder.log.read_text()))


@thorough
def test_kept_jvm_counts_for_the_limit_of_memory(stage: Stage) -> None:
    folder = stage.begin(HANGS, limits=Limits(memory_bytes=300 << 20))

    end = stage.ended(folder)

    assert end.outcome is Outcome.FAILED
    assert end.reason.endswith("MiB of memory, and its limit is 300.0 MiB")


@thorough
def test_jvm_is_replaced_before_what_each_attempt_leaves_adds_up(stage: Stage) -> None:
    """Each context leaves an open file. Nothing else grows."""
    seen: list[tuple[str, int, int]] = []

    for _ in range(MAX_ATTEMPTS + 1):
        folder = stage.begin(HEAVY)
        assert stage.ended(folder).outcome is Outcome.SUCCEEDED
        java, threads, files = re.findall(r"^jvm: (\d+) (\d+) (\d+)$", folder.log.read_text(), re.MULTILINE)[
            0
        ]
        seen.append((java, int(threads), int(files)))

    assert {java for java, _, _ in seen[:-1]} == {seen[0][0]}
    assert seen[-1][0] != seen[0][0]
    (_, threads_early, files_early), (_, threads_late, files_late) = seen[9], seen[MAX_ATTEMPTS - 1]
    assert threads_late < 1.5 * threads_early, seen
    assert files_late - files_early < 1.5 * (MAX_ATTEMPTS - 10), seen


@thorough
def test_task_that_sets_what_a_running_jvm_cannot_change_gets_another_one(stage: Stage) -> None:
    end = stage.ended(stage.begin(OWN_MEMORY))

    assert (end.outcome, end.jvm) == (Outcome.SUCCEEDED, "its own: the task sets spark.driver.memory")


def test_task_without_spark_does_not_wait_for_its_jvm(stage: Stage, jvms: JvmLauncher) -> None:
    end = stage.ended(stage.begin("print(1)\n"))

    assert (end.outcome, end.jvm) == (Outcome.SUCCEEDED, "new; not kept: it had not started yet")


def test_task_without_reuse_starts_its_own_jvm(stage: Stage, jvms: JvmLauncher) -> None:
    end = stage.ended(stage.begin("print(1)\n", spark_reuse=SparkReuse.OFF))

    assert (end.outcome, end.jvm) == (Outcome.SUCCEEDED, "its own: spark.reuse is off")
    assert jvms.jvms == []


def test_worker_keeps_a_jvm_for_its_next_task_and_shows_it(tmp_path: Path, java_home: Path) -> None:
    bench, told = Bench(tmp_path), RecordingRegistrations()
    worker = bench.worker(registrations=told, settings={"java_home": lambda: java_home})
    worker.start()
    try:
        first = bench.order(
            bench.script("task.py", JVM_OF_IT), attempt="run1.first.1", task_kind=TaskKind.PYSPARK
        )
        bench.board.assign("w1", first)
        assert bench.await_end("run1.first.1", 600).jvm == "new"
        eventually(lambda: told.workers[-1].spark_jvms == "1 idle", "the worker shows it")
        assert told.workers[-1].jvm_releases == (jvm_release(first.pipeline, first.release),)

        sql = "SELECT sum(id) AS total FROM range(10)"
        second = bench.order(bench.script("sum.sql", sql), attempt="run1.sum.1", task_kind=TaskKind.SQL)
        bench.board.assign("w1", second)

        end = bench.await_end("run1.sum.1", 600)
        assert (end.outcome, end.jvm) == (Outcome.SUCCEEDED, "kept, its attempt 2")
    finally:
        worker.close(timedelta(seconds=10))
        bench.close()


@thorough
def test_jvm_belongs_to_attempts_with_the_same_secrets_and_their_logs_are_masked(stage: Stage) -> None:
    says = "import os\n" + JVM_OF_IT + "system.err.println('it is ' + os.environ['KEY'])\n"

    (first, _), (other, _), (again, log) = (
        stage.ran(says, plan={"secrets": {"KEY": value}}) for value in ("secret-1", "secret-2", "secret-1")
    )

    assert first == again != other
    assert "it is ***" in log
    assert "secret-1" not in log
