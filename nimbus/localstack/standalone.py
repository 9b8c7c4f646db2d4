"""A real Spark standalone cluster from PySpark's own jars: two masters with failover, and two workers.

The masters elect a leader, and store their state, in the stack's ZooKeeper.
"""

from __future__ import annotations

import json
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

from nimbus.java import find_java
from nimbus.localstack.ports import LOOPBACK, http_answer, require_free
from nimbus.localstack.process import ManagedProcess, Report, silent
from nimbus.localstack.zookeeper import ZooKeeperServer, spark_home

TARGET = "standalone"
"""Name of the cluster in the schedulers' configuration."""
ZOOKEEPER_ROOT = "/spark"
_MASTERS = _WORKERS = 2
_ASK_DEADLINE_S = 2.0
_DAEMON_MEMORY = "256m"
_WORKER_CORES, _WORKER_MEMORY = 2, "2g"
_SLOTS = 2
"""Each application uses two cores, and the cluster has four."""
_CONF = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.pyspark.python": sys.executable,
}


class _SparkDaemon(ManagedProcess):
    """A daemon of Spark, whose web page shows its state."""

    def __init__(
        self, name: str, folder: Path, take: Callable[[str], int], environment: Mapping[str, str]
    ) -> None:
        self.folder = (folder / name).absolute()
        super().__init__(
            name=name, log=self.folder / "log", environment=environment, start_deadline=timedelta(seconds=120)
        )
        self.port, self._page_port = take(name), take(f"{name}-page")

    @property
    def page(self) -> str:
        """Its web page, `http://127.0.0.1:<port>`."""
        return f"http://{LOOPBACK}:{self._page_port}"

    def state(self) -> dict[str, Any]:
        """Its state as JSON; empty if it does not answer."""
        status, body = http_answer(self._page_port, "/json/", _ASK_DEADLINE_S) or (0, b"")
        try:
            said = json.loads(body) if status == HTTPStatus.OK else {}
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}

    @abstractmethod
    def _properties(self) -> dict[str, object]:
        """Spark's properties of this daemon."""

    @abstractmethod
    def _words(self) -> Sequence[str]:
        """Its class, and its arguments in addition to those of all daemons."""

    def _command(self) -> Sequence[str]:
        require_free(self.port, self.name)
        require_free(self._page_port, self.name)
        home = spark_home("Spark's daemons")
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "spark.conf"
        properties.write_text("".join(f"{key} {value}\n" for key, value in self._properties().items()))
        self._environment |= {
            "JAVA_HOME": str(find_java().java_home),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYSPARK_PYTHON": sys.executable,
        }
        kind, *words = self._words()
        return [
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind}",
            *("--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self._page_port)),
            *("--properties-file", str(properties)),
            *words,
        ]


class SparkMaster(_SparkDaemon):
    """A master. It is ready when it is standby or leads."""

    def __init__(
        self,
        number: int,
        folder: Path,
        take: Callable[[str], int],
        zookeeper: str,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(f"spark-master-{number}", folder, take, environment)
        self._zookeeper, self._rest_port = zookeeper, take(f"{self.name}-rest")

    @property
    def rest(self) -> str:
        """URL of its REST server: `http://127.0.0.1:<port>`."""
        return f"http://{LOOPBACK}:{self._rest_port}"

    @property
    def leads(self) -> bool:
        """True if it leads."""
        return self.state().get("status") == "ALIVE"

    def _answers(self) -> bool:
        return self.state().get("status") in ("STANDBY", "ALIVE")

    def _words(self) -> Sequence[str]:
        require_free(self._rest_port, self.name)
        return ["master.Master"]

    def _properties(self) -> dict[str, object]:
        return {
            "spark.deploy.recoveryMode": "ZOOKEEPER",
            "spark.deploy.zookeeper.url": self._zookeeper,
            "spark.deploy.zookeeper.dir": ZOOKEEPER_ROOT,
            "spark.deploy.recoveryTimeout": 10,  # s, for workers and applications that do not answer
            "spark.master.rest.enabled": "true",
            "spark.master.rest.host": LOOPBACK,
            "spark.master.rest.port": self._rest_port,
        }


class SparkWorker(_SparkDaemon):
    """A worker. It is ready when a master has registered it."""

    def __init__(
        self,
        number: int,
        folder: Path,
        take: Callable[[str], int],
        master: str,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(f"spark-worker-{number}", folder, take, environment)
        self._master = master

    def _answers(self) -> bool:
        return bool(self.state().get("masterurl"))

    def _words(self) -> Sequence[str]:
        return [
            "worker.Worker",
            *("--cores", str(_WORKER_CORES), "--memory", _WORKER_MEMORY),
            *("--work-dir", str(self.folder / "work")),
            self._master,
        ]

    def _properties(self) -> dict[str, object]:
        return {"spark.worker.cleanup.enabled": "true", "spark.worker.cleanup.appDataTtl": 86_400}


class StandaloneCluster:
    """Two masters and two workers on loopback. `take` returns the port for a name."""

    name = "Spark"

    def __init__(
        self,
        folder: Path,
        take: Callable[[str], int],
        zookeeper: ZooKeeperServer,
        environment: Mapping[str, str],
    ) -> None:
        self.masters = [
            SparkMaster(number, folder, take, zookeeper.hosts, environment)
            for number in range(1, _MASTERS + 1)
        ]
        self.workers = [
            SparkWorker(number, folder, take, self.master, environment) for number in range(1, _WORKERS + 1)
        ]

    @property
    def master(self) -> str:
        """`spark://host:port,host:port`."""
        return "spark://" + ",".join(f"{LOOPBACK}:{master.port}" for master in self.masters)

    @property
    def daemons(self) -> list[ManagedProcess]:
        """All daemons, masters first."""
        return [*self.masters, *self.workers]

    def target(self) -> dict[str, Any]:
        """The cluster as a target of the configuration."""
        return {
            "kind": "standalone",
            "master": self.master,
            "rest": [master.rest for master in self.masters],
            "pages": [master.page for master in self.masters],
            "slots": _SLOTS,
            "executors_see": "host",
            "conf": dict(_CONF),
        }

    def leader(self) -> SparkMaster | None:
        """The leading master; None during a takeover."""
        return next((master for master in self.masters if master.running and master.leads), None)

    def start(self, report: Report = silent) -> None:
        """Start all, and wait until every worker is registered. ProcessStartError: one did not start."""
        for group in (self.masters, self.workers):
            for daemon in group:
                daemon.spawn()
            for daemon in group:
                daemon.wait_ready(report=report)

    def stop(self) -> None:
        """End all, workers first, because they end their executors."""
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            daemon.stop()
