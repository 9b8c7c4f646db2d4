"""Curator's own LeaderLatch, from PySpark's jars, in a JVM that Python controls through py4j.

It compiles nothing, so a Java runtime is enough.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import GatewayParameters, JavaGateway

from nimbus.java import find_java
from nimbus.localstack.ports import LOOPBACK, free_port
from nimbus.localstack.process import ManagedProcess

_JARS = (
    "py4j-*.jar",
    "curator-*.jar",
    "zookeeper-*.jar",
    "guava-*.jar",
    "failureaccess-*.jar",
    "slf4j-api-*.jar",
    "log4j-*.jar",
    "netty-*.jar",
    "commons-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
)
_OPTIONS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true")


class JvmGateway(ManagedProcess):
    """A JVM with Curator in its class path."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="Curator's JVM", log=folder / "curator.log")
        self.port = free_port()
        self._gateway: JavaGateway | None = None

    @property
    def jvm(self) -> Any:
        """The JVM view of py4j, whose attributes are packages."""
        if self._gateway is None:
            self._gateway = JavaGateway(
                gateway_parameters=GatewayParameters(address=LOOPBACK, port=self.port)
            )
        return self._gateway.jvm

    def stop(self, deadline: timedelta = timedelta(seconds=10)) -> None:
        if self._gateway is not None:
            # Otherwise py4j would send messages about garbage objects to a JVM that has ended.
            ThreadSafeFinalizer.clear_finalizers(clear_all=True)
            self._gateway.close()
            self._gateway = None
        super().stop(deadline)

    def _command(self) -> Sequence[str]:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent / "jars"
        jars = [str(jar) for pattern in _JARS for jar in sorted(folder.glob(pattern))]
        java = str(find_java().java)
        return [java, *_OPTIONS, "-cp", ":".join(jars), "py4j.GatewayServer", str(self.port)]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1):
                return True
        except OSError:
            return False


class CuratorClient:
    """A connected client of Curator."""

    def __init__(self, jvm: Any, hosts: str, session_timeout: timedelta) -> None:
        self.jvm = jvm
        timeout_ms = round(session_timeout.total_seconds() * 1000)
        retry = jvm.org.apache.curator.retry.RetryOneTime(100)
        factory = jvm.org.apache.curator.framework.CuratorFrameworkFactory
        self.framework = factory.newClient(hosts, timeout_ms, timeout_ms, retry)
        self.framework.start()

    @property
    def session_id(self) -> int:
        session_id: int = self.framework.getZookeeperClient().getZooKeeper().getSessionId()
        return session_id

    def close(self) -> None:
        self.framework.close()


class CuratorLatch:
    """org.apache.curator.framework.recipes.leader.LeaderLatch"""

    def __init__(self, client: CuratorClient, path: str, participant_id: str) -> None:
        leader = client.jvm.org.apache.curator.framework.recipes.leader
        self._latch = leader.LeaderLatch(client.framework, path, participant_id)
        self.client = client

    def start(self) -> None:
        self._latch.start()

    def close(self) -> None:
        self._latch.close()

    @property
    def leads(self) -> bool:
        return bool(self._latch.hasLeadership())

    @property
    def participants(self) -> list[tuple[str, bool]]:
        """Ids in the order of the queue, each with whether it leads."""
        return [(one.getId(), bool(one.isLeader())) for one in self._latch.getParticipants()]

    @property
    def leader(self) -> str:
        leader_id: str = self._latch.getLeader().getId()
        return leader_id

    @property
    def node(self) -> str:
        path: str = self._latch.getOurPath()
        return path.rpartition("/")[2]
