"""A real ZooKeeper from the jars in PySpark, as a child process."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from nimbus.java import find_java
from nimbus.localstack.errors import ToolMissingError
from nimbus.localstack.ports import LOOPBACK, free_port, require_free
from nimbus.localstack.process import ManagedProcess

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
"""Runs a single server like `ZooKeeperServerMain`, but also purges old snapshots."""

# By name, because with all of Spark's 280 jars in the class path the start takes three times longer.
_JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-*.jar",
    "metrics-core-*.jar",
    "netty-*.jar",
    "snappy-java-*.jar",
    "commons-*.jar",
)
_JVM_OPTIONS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.preAllocSize=4096",  # KiB; the default is a log of 64 MiB for each start
    "-Dorg.apache.logging.log4j.level=INFO",
)
_ASK_DEADLINE_S = 1.0


class ZooKeeperServer(ManagedProcess):
    """A single ZooKeeper server on loopback. Data survive `stop`, `kill` and a restart; writes are fsynced.

    A session may be as short as two ticks; requests for more than `longest_session` get that.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        tick: timedelta = timedelta(milliseconds=500),
        *,
        longest_session: timedelta = timedelta(seconds=60),
        environment: Mapping[str, str] | None = None,
        name: str = "ZooKeeper",
    ) -> None:
        super().__init__(name=name, log=data_dir / "zookeeper.log", environment=environment)
        self.data_dir = data_dir.absolute()
        self.port = free_port() if port is None else port
        self._tick, self._longest_session = tick, longest_session

    @property
    def hosts(self) -> str:
        """Connection string: `127.0.0.1:<port>`."""
        return f"{LOOPBACK}:{self.port}"

    def _command(self) -> Sequence[str]:
        require_free(self.port, self.name)
        config = self.data_dir / "zoo.cfg"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        classes = ":".join(map(str, _jars()))
        options = (*_JVM_OPTIONS, *self._more_options())
        return [str(find_java().java), *options, "-cp", classes, _MAIN_CLASS, str(config)]

    def _more_options(self) -> Sequence[str]:
        """Options of the JVM for a subclass."""
        return ()

    def _settings(self) -> dict[str, object]:
        return {
            "tickTime": round(self._tick.total_seconds() * 1000),
            # ZooKeeper reads the file as Java properties, in which a backslash escapes.
            "dataDir": str(self.data_dir / "data").replace("\\", "\\\\"),
            "clientPort": self.port,
            "clientPortAddress": LOOPBACK,
            "maxClientCnxns": 0,
            # ms; the default, 20 ticks, would cut longer sessions silently
            "maxSessionTimeout": round(self._longest_session.total_seconds() * 1000),
            "4lw.commands.whitelist": "ruok,srvr,stat,mntr,cons,dump",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,  # hours
        }

    def _answers(self) -> bool:
        # Not `ruok`, which is answered before sessions are served.
        return b"Mode:" in self.ask("srvr")

    def ask(self, word: str) -> bytes:
        """The answer to a four-letter word such as `mntr`; empty without an answer."""
        answer = b""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=_ASK_DEADLINE_S) as connection:
                connection.sendall(word.encode())
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return b""
        return answer


def spark_home(of: str) -> Path:
    """The folder of the installed PySpark, found without importing it.

    Raises:
        ToolMissingError: there is none, so `of` is missing, too.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ToolMissingError(f"{of} come with PySpark, which is not installed: pip install pyspark")
    return Path(spec.origin).parent


def _jars() -> list[Path]:
    folder = spark_home("ZooKeeper's jars") / "jars"
    jars = [jar for pattern in _JARS for jar in sorted(folder.glob(pattern))]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise ToolMissingError(
            f"no zookeeper-*.jar in {folder}; install PySpark from its wheel or sdist again"
        )
    return jars
