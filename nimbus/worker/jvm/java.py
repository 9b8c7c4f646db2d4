"""A Spark JVM with a gateway for each driver, and what is put back after each. Keeper; main thread.

Spark is not made for a second context in a JVM, and code can leave anything in one. So `close` puts back what
is known to stay, compares what cannot be put back, and says what differs: then the JVM must go. It cannot
see other static fields of classes, for example of the release's jars.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from nimbus.worker.driver.environment import properties_text

MAX_ATTEMPTS = 50
"""Each context leaves an open file: the connection to Python's server of accumulators."""
_THREADS_S = 1.0
_IDLE_MONITOR = "Idle Worker Monitor for "
"""Spark never ends this thread, and through it the session that it inherited."""
_OF_SPARK = (
    *("Cleaner-", "Common-Cleaner", "Finalizer", "ForkJoinPool.commonPool-"),
    *("globalEventExecutor-", "process reaper"),
    *("QueryStageCreator-", "ResultQueryStageExecution-", "broadcast-exchange-", "shuffle-exchange-"),
    *("subquery-", "rpc-boss-", "rpc-client-", "rpc-server-", "shuffle-boss-", "shuffle-client-"),
    *("shuffle-server-", "org.apache.hadoop.fs.FileSystem$Statistics", "Worker Monitor for ", _IDLE_MONITOR),
)
"""How names of threads begin that Spark and Hadoop leave for the whole JVM, or that end later."""


_IDLE = {
    ("java.io.BufferedReader.readLine", "py4j.ClientServerConnection.waitForCommands"),
    ("java.util.concurrent.SynchronousQueue.poll", "java.util.concurrent.ThreadPoolExecutor.getTask"),
}
"""Calls, with their callers, in which a thread waits."""
_ADD_RESOURCES = (
    "hadoop.mapred.JobConf",
    "hadoop.hdfs.HdfsConfiguration",
    "hadoop.yarn.conf.YarnConfiguration",
)
"""Classes below org.apache that change Hadoop's configuration when they are loaded."""


class Jvm:
    """One JVM. Any method raises Py4JError or OSError if it has died."""

    def __init__(self, conf: Mapping[str, str], mark: Path, output: int) -> None:
        """Start it by PYSPARK_SUBMIT_ARGS.

        `conf`: its properties in those arguments, not of an attempt. `mark`: a file that appears when it has
        been out of memory. `output`: descriptor for its standard output and error.
        """
        from pyspark.java_gateway import launch_gateway

        self._mark, self._attempts = mark, 0
        launch: Any = launch_gateway
        self._gateway = launch(popen_kwargs={"stdout": output, "stderr": output})
        self.pid = int(self._gateway.proc.pid)
        self._jvm: Any = self._gateway.jvm
        self._server: Any = None
        java: Any = self._jvm.java
        self._system, self._thread = java.lang.System, java.lang.Thread
        self._properties: Any = self._system.getProperties().clone()
        for name in conf:
            self._properties.remove(name)
        self._out, self._err = self._system.out, self._system.err
        self._zone, self._locale = java.util.TimeZone.getDefault(), java.util.Locale.getDefault()
        self._threads = {thread.getId() for thread in self._living()}
        self._configuration = self._log4j().getConfiguration()
        self._threshold = self._module("internal.Logging").sparkShellThresholdLevel()
        self._levels = {name: logger.getLevel() for name, logger in self._loggers()}
        for name in _ADD_RESOURCES:
            self._class(name)
        self._first = self._incurable()

    def open(self, properties: Mapping[str, str]) -> tuple[int, str]:
        """Set an attempt's system properties, and open its gateway; return the gateway's port and secret."""
        given = self._properties.clone()
        given.load(self._jvm.java.io.StringReader(properties_text(properties)))
        self._system.setProperties(given)
        spark = self._jvm.org.apache.spark
        self._server = spark.api.python.Py4JServer(spark.SparkConf(False))
        self._server.start()
        self._attempts += 1
        return int(self._server.getListeningPort()), str(self._server.secret())

    @property
    def attempts(self) -> int:
        """How many attempts it was opened for."""
        return self._attempts

    def flush(self) -> None:
        """Write what it has buffered for its standard output and error."""
        self._out.flush()
        self._err.flush()

    def close(self) -> str:
        """Shut down the attempt's gateway, put back what can be; return why the JVM must go, or nothing."""
        self._server.shutdown()
        self._server = None
        if self._module("SparkContext").getActive().isDefined():
            return "its Spark context was not stopped"
        self._put_back()
        if self._mark.exists():
            return "it was out of memory"
        now = self._incurable()
        if changed := [name for name, value in now.items() if value != self._first[name]]:
            return f"the task changed {changed[0]}"
        if left := self._left_threads():
            return f"the task left thread {left[0]!r}"
        return f"it had {self._attempts} attempts" if self._attempts >= MAX_ATTEMPTS else ""

    def _put_back(self) -> None:
        spark, java = self._jvm.org.apache.spark, self._jvm.java
        self._system.setProperties(self._properties.clone())
        self._system.setOut(self._out)
        self._system.setErr(self._err)
        java.util.TimeZone.setDefault(self._zone)
        java.util.Locale.setDefault(self._locale)
        self._thread.setDefaultUncaughtExceptionHandler(None)
        spark.sql.SparkSession.clearDefaultSession()
        spark.sql.SparkSession.clearActiveSession()
        spark.util.AccumulatorContext.clear()
        self._jvm.org.apache.hadoop.fs.FileSystem.closeAll()
        self._module("util.Utils").clearLocalRootDirs()
        hooks = self._module("util.ShutdownHookManager")
        self._field("spark.util.ShutdownHookManager$", "shutdownDeletePaths").get(hooks).clear()
        self._put_levels_back()
        for thread in self._living():
            if thread.getName().startswith(_IDLE_MONITOR):
                thread.interrupt()

    def _put_levels_back(self) -> None:
        getattr(self._module("internal.Logging"), "sparkShellThresholdLevel_$eq")(self._threshold)
        context = self._log4j()
        configuration = context.getConfiguration()
        for name, logger in self._loggers():
            if name in self._levels:
                logger.setLevel(self._levels[name])
            else:
                configuration.removeLogger(name)
        context.updateLoggers()

    def _incurable(self) -> dict[str, Any]:
        """What must not differ, because it cannot be put back."""
        hadoop, net = self._jvm.org.apache.hadoop, self._jvm.java.net
        resources = self._field("hadoop.conf.Configuration", "defaultResources")
        dialects = self._field("spark.sql.jdbc.JdbcDialects$", "dialects")
        return {
            "Hadoop's configuration": self._jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
            .conf()
            .getPropsWithPrefix(""),
            "Hadoop's default resources": resources.get(None).toString(),
            "Hadoop's user": hadoop.security.UserGroupInformation.getLoginUser().toString(),
            "the configuration of log4j": self._log4j().getConfiguration(),
            "the dialects of JDBC": dialects.get(self._module("sql.jdbc.JdbcDialects")),
            **{
                f"Java's {name}": getattr(net, name).getDefault()
                for name in ("Authenticator", "CookieHandler", "ProxySelector")
            },
        }

    def _left_threads(self) -> list[str]:
        until = time.monotonic() + _THREADS_S
        while True:
            new = [thread for thread in self._living() if thread.getId() not in self._threads]
            foreign = [thread for thread in new if not str(thread.getName()).startswith(_OF_SPARK)]
            left = [str(thread.getName()) for thread in foreign if not _is_idle(thread)]
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.01)

    def _living(self) -> Iterator[Any]:
        return iter(list(self._thread.getAllStackTraces().keySet()))

    def _log4j(self) -> Any:
        return self._jvm.org.apache.logging.log4j.LogManager.getContext(False)

    def _loggers(self) -> Iterator[tuple[str, Any]]:
        loggers = self._log4j().getConfiguration().getLoggers()
        return iter([(str(name), loggers[name]) for name in loggers])

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(f"org.apache.{name}")

    def _field(self, of: str, name: str) -> Any:
        """A private field of a class."""
        field = self._class(of).getDeclaredField(name)
        field.setAccessible(True)
        return field

    def _module(self, name: str) -> Any:
        """A Scala object of Spark."""
        return getattr(getattr(self._jvm, f"org.apache.spark.{name}$"), "MODULE$")


def _is_idle(thread: Any) -> bool:
    """True if it waits for a command of py4j, or for work of a pool that ends idle threads by itself."""
    frames = [f"{frame.getClassName()}.{frame.getMethodName()}" for frame in thread.getStackTrace()]
    calls = set(pairwise(frames))
    return not calls.isdisjoint(_IDLE)
