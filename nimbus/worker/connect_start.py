"""Starts the process of a Spark Connect server: its command, environment, folders and log. Any thread."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from nimbus.worker.environment import driver_environment
from nimbus.worker.files import read_if_there

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_FOLDERS = ("tmp", "local", "warehouse")
_LOG_BYTES = 16 << 20
_CONF = {
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",  # as of a Spark that PySpark starts
    # An operation whose client, runner and worker are dead ends within a minute. A client
    # that is alive reattaches in time, unless it leaves a result unread for that long.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "15s",
    "spark.connect.execute.manager.detachedTimeout": "30s",
    # A driver may compute for a long time between two operations. Its runner releases the session.
    "spark.connect.session.manager.defaultSessionTimeout": "24h",
}
"""Defaults that `worker.spark_conf` may override."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServerSettings:
    """Settings with which a worker starts its server."""

    folder: Path
    master: str
    spark_conf: Mapping[str, str]
    env: Mapping[str, str]
    java_home: Callable[[], Path]
    idle_timeout: timedelta = timedelta(minutes=10)
    start_timeout: timedelta = timedelta(minutes=2)

    @property
    def runs_here(self) -> bool:
        """True if its executors are on this host, too."""
        return self.spark_conf.get("spark.master", self.master).startswith("local")


def start_server(
    settings: LocalServerSettings, folder: Path, port: int, token: str
) -> subprocess.Popen[bytes]:
    """Start a server that outlives this process. It listens some seconds later, or ends.

    Raises:
        OSError: the disk is full, or the program is missing.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for place in (settings.folder, folder, *(folder / name for name in _FOLDERS)):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "in-use").touch(mode=0o600)
    environment = {
        **driver_environment(os.environ, java_home=settings.java_home(), extra=settings.env),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "TMPDIR": str(folder / "tmp"),
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
    }
    with _log_file(settings.folder / "log") as log:
        return subprocess.Popen(
            _command(settings, folder, port),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder / "tmp",
            env=environment,
            start_new_session=True,
        )


def _command(settings: LocalServerSettings, folder: Path, port: int) -> list[str]:
    spark = find_spec("pyspark")
    assert spark is not None  # noqa: S101 - a dependency
    assert spark.submodule_search_locations is not None  # noqa: S101 - a package
    conf = {**_CONF, **settings.spark_conf}
    if "spark.eventLog.dir" not in conf:  # it would grow for days, with all sessions
        conf["spark.eventLog.enabled"] = "false"
    options = f"-Djava.io.tmpdir={folder / 'tmp'} {conf.get('spark.driver.extraJavaOptions', '')}".strip()
    if settings.master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf |= {
        "spark.app.name": "nimbus-connect",
        "spark.driver.extraJavaOptions": options,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    conf.setdefault("spark.sql.warehouse.dir", str(folder / "warehouse"))
    words = [str(Path(spark.submodule_search_locations[0]) / "bin" / "spark-submit")]
    words += ["--class", _CLASS, "--master", conf.pop("spark.master", settings.master)]
    for name in sorted(conf):
        words += ["--conf", f"{name}={conf[name]}"]
    return [*words, "spark-internal"]


def free_port() -> int:
    """A free loopback port. If another process takes it first, the server ends at once."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def listens(port: int) -> bool:
    """True if a process listens on a loopback port."""
    with socket.socket() as asked:
        asked.settimeout(1.0)
        return asked.connect_ex(("127.0.0.1", port)) == 0


def _log_file(path: Path) -> BinaryIO:
    """Open the log for appending; a large log is rotated first, and replaces the previous rotated one."""
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_name("log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def last_error(log: Path) -> str:
    """The last line of a log that contains an error, or the last line."""
    lines = (read_if_there(log) or b"")[-16_384:].decode(errors="replace").splitlines()
    told = [line.strip() for line in lines if "ERROR" in line or "Exception" in line or "Error:" in line]
    return (told or lines or [""])[-1][:200]
