"""A Spark JVM that waits until the task's code needs one. In the driver; main thread.

PySpark gets a JVM from one function, `launch_gateway`. After the JVM has run a job, its context is stopped
and PySpark's state is reset. The first call of `launch_gateway` then returns the waiting JVM, if a running
JVM can have the requested settings. If not, the waiting JVM is killed, and a cold one is started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from nimbus.worker.spark_exercise import exercise
from nimbus.worker.warm.plan import may_change

_of_pyspark: Any = sys.modules["pyspark.core.context"]
_FOR_WORKERS = ("PYTHONPATH", "NIMBUS_CONTEXT", "NIMBUS_ATTEMPT", "TMPDIR")
"""Variables for Spark's Python workers, children of the JVM, whose environment lacks the attempt's."""
_WAREHOUSE = "spark.sql.warehouse.dir"
_END_S = 10.0
_MAY_DIFFER = frozenset({"PYTHONPATH"})


class WaitingJvm:
    """One JVM, started and warmed up; it is used once, or killed."""

    def __init__(self, conf: Mapping[str, str], scratch: Path) -> None:
        """Start it by PYSPARK_SUBMIT_ARGS, and run a job in it."""
        path, environment = list(sys.path), dict(os.environ)
        session = SparkSession.builder.getOrCreate()
        exercise(session, scratch)
        session.stop()
        self.gateway: Any = SparkContext._gateway
        jvm: Any = SparkContext._jvm
        self._system: Any = jvm.java.lang.System
        utilities = getattr(getattr(jvm, "org.apache.spark.util.Utils$"), "MODULE$")
        utilities.clearLocalRootDirs()  # else the next context would use the first one's folders
        SparkContext._gateway = SparkContext._jvm = None
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._conf = dict(conf)
        self._environment: dict[str, str] = {}
        self._cwd = ""
        self._launch: Callable[..., Any] = _of_pyspark.launch_gateway

    @property
    def pid(self) -> int:
        """The JVM's pid."""
        return int(self.gateway.proc.pid)

    def give(self, conf: Mapping[str, str], scratch: Path) -> None:
        """Make PySpark use it, with the properties and the environment of the attempt.

        Raises:
            Py4JError, OSError: the JVM has died.
        """
        for name in self._conf.keys() - conf.keys():
            self._system.clearProperty(name)
        for name in conf:
            if conf[name] != self._conf.get(name):
                self._system.setProperty(name, conf[name])
        self._system.setProperty("spark.app.submitTime", str(int(time.time() * 1000)))
        if _WAREHOUSE not in conf:  # the default is below the JVM's working directory
            self._system.setProperty(_WAREHOUSE, f"file:{scratch}/spark-warehouse")
        self._system.setProperty("user.dir", str(scratch))
        self._system.setProperty("java.io.tmpdir", str(scratch))
        self._conf, self._environment, self._cwd = dict(conf), dict(os.environ), os.getcwd()  # noqa: PTH109
        _of_pyspark.launch_gateway = self._asked

    def _asked(self, conf: Any = None, popen_kwargs: Any = None) -> Any:
        """Replaces `pyspark.java_gateway.launch_gateway` for one call."""
        _of_pyspark.launch_gateway = self._launch
        asked = dict(conf.getAll()) if conf is not None else {}
        why = "its process is described" if popen_kwargs else self._why_not(asked)
        if why is not None:
            sys.stderr.write(f"Spark is started anew: {why}, which a warm driver cannot follow\n")
            self.gateway.proc.kill()
            with suppress(subprocess.TimeoutExpired):  # wait, because two JVMs need twice the memory
                self.gateway.proc.wait(_END_S)
            return self._launch(conf, popen_kwargs)
        workers = {
            f"spark.executorEnv.{name}": os.environ[name] for name in _FOR_WORKERS if name in os.environ
        }
        workers = {name: value for name, value in workers.items() if name not in self._conf}
        for name, value in (workers | asked).items():
            if name.startswith("spark."):  # other names do not start Spark either
                self._system.setProperty(name, value)
        return self.gateway

    def _why_not(self, asked: Mapping[str, str]) -> str | None:
        for name, value in asked.items():
            if value != self._conf.get(name) and not may_change(name):
                return f"the task sets {name}"
        if not asked.get("spark.master", "local").startswith("local"):
            return "the task sets spark.master"
        for name in os.environ.keys() | self._environment.keys():
            if os.environ.get(name) != self._environment.get(name) and name not in _MAY_DIFFER:
                return f"the task has changed {name} in its environment"
        if os.getcwd() != self._cwd:  # noqa: PTH109
            return "the task has changed its working directory"
        return None
