"""Submits drivers by Spark's own client, `spark-submit` of the installed PySpark: to Kubernetes and YARN.

Properties are in a file that only this user can read, because all users of a host can see command lines.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from nimbus import die_with_parent
from nimbus.worker.application.bootstrap import VARIABLE
from nimbus.worker.application.manager import Submission
from nimbus.worker.driver.environment import driver_environment, properties_text
from nimbus.worker.driver.programs import installed_spark
from nimbus.worker.host.files import write_new

_SAID_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class ClientResult:
    """The result of a client process."""

    exit_code: int | None
    """None: it was killed at the timeout, so its outcome is unknown. Negative: a signal ended it."""
    said: str
    """The end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkClient:
    """Makes submissions to one cluster, one at a time."""

    master: str
    folder: Path
    """This client's own folder. Its content is deleted before and after each submission."""
    java_home: Callable[[], Path]
    variables: str
    """Property prefix for the driver's variables: `spark.kubernetes.driverEnv`, `spark.yarn.appMasterEnv`."""
    environment: Mapping[str, str]
    """Environment of the client, in addition to that of this worker's drivers."""
    timeout: timedelta = timedelta(seconds=120)

    def submit(self, submission: Submission, conf: Mapping[str, str], bundle: str | bytes) -> ClientResult:
        """Run the client until the cluster has accepted the driver, or the timeout.

        `conf` overrides the properties of the submission. `bundle`: its URL, or its content, which is
        uploaded.

        Raises:
            NimbusError: there is no Java; nothing was started.
            OSError: nothing was started.
        """
        environment = driver_environment(os.environ, java_home=self.java_home(), extra=self.environment)
        environment["SPARK_SUBMIT_OPTS"] = (
            f"{environment.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={self.folder}".strip()
        )
        shutil.rmtree(self.folder, ignore_errors=True)  # left by a killed worker
        self.folder.mkdir(mode=0o700, parents=True)
        try:
            file = self.folder / "spark.properties"
            write_new(file, properties_text(self._properties(submission, conf)).encode("ascii"))
            if isinstance(bundle, bytes):
                write_new(uploaded := self.folder / "bootstrap.py", bundle)
                bundle = str(uploaded)
            program = Path(environment.get("SPARK_HOME") or installed_spark(), "bin", "spark-submit")
            # Without the second option, Spark ignores spark-defaults.conf if there is a properties file.
            options = ["--properties-file", str(file), "--load-spark-defaults"]
            return self._run([str(program), *options, bundle], environment)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _properties(self, submission: Submission, conf: Mapping[str, str]) -> dict[str, str]:
        variables = {**submission.environment, VARIABLE: submission.startup}
        return {
            **submission.conf,
            **{f"{self.variables}.{name}": value for name, value in variables.items()},
            **conf,
            "spark.app.name": submission.name,
            "spark.master": self.master,
            "spark.submit.deployMode": "cluster",
        }

    def _run(self, command: list[str], environment: Mapping[str, str]) -> ClientResult:
        """Run a command that dies with this thread. Its output is a file, because a pipe could stay open."""
        log = self.folder / "log"
        with log.open("xb") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
                process_group=0,
            )
        exit_code: int | None = None
        try:
            exit_code = process.wait(self.timeout.total_seconds())
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return ClientResult(exit_code, log.read_bytes()[-_SAID_BYTES:].decode(errors="replace"))
