"""The Spark Connect servers that a worker's tasks use: its own, started on demand, or one that is named.

A server outlives its worker, as runners do: the next worker finds it by its folder
(`connect_folder`). What they say is in `<work_dir>/connect/log`. Of two that were started
with different settings each goes on until nobody uses it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import structlog

from nimbus.domain.errors import NimbusError
from nimbus.domain.slots import ConnectSession
from nimbus.worker import procfs
from nimbus.worker.connect_folder import (
    ServerRecord,
    end_server,
    is_unused,
    note_server,
    servers_below,
    touch,
)
from nimbus.worker.connect_session import answers, check_packages
from nimbus.worker.environment import driver_environment
from nimbus.worker.files import read_if_there
from nimbus.worker.identity import host_id
from nimbus.worker.procfs import ProcessId
from nimbus.worker.settings import ConnectPlan

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_FOLDERS = ("tmp", "local", "warehouse")
_LOG_BYTES = 16 << 20
_POLL_S = 0.05
_KILL_DEADLINE_S = 10.0
_CLOSE_S = 2.0
_CONF = {
    "spark.ui.enabled": "false",
    # An operation whose client is gone, and with it its runner and worker, ends within a minute. A client
    # that lives attaches again in time, unless it lets a result wait for so long.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "15s",
    "spark.connect.execute.manager.detachedTimeout": "30s",
    # A driver may compute for long between two operations. Its runner releases the session.
    "spark.connect.session.manager.defaultSessionTimeout": "24h",
}
"""What `worker.spark_conf` may change."""

_log = structlog.get_logger(__name__)


class ConnectServerError(NimbusError):
    """The worker's Spark Connect server could not be started."""

    code = "connect_server"


class RemoteServer:
    """A server that is named in the configuration. See `nimbus.worker.settings.ConnectProvider`."""

    def __init__(self, url: str, token: str | None) -> None:
        """`url` is `sc://host[:port]`; any host but localhost is spoken to by TLS."""
        is_here = url.removeprefix("sc://").partition(":")[0] == "localhost"
        self._url, self._token = url if is_here else f"{url}/;use_ssl=true", token

    def is_up(self) -> bool:
        """Nothing is to be started."""
        return True

    def plan(self) -> ConnectPlan:
        """See `nimbus.worker.settings.ConnectProvider`."""
        check_packages()
        return ConnectPlan(url=self._url, token=self._token)

    def reach(self, session: ConnectSession) -> ConnectPlan | None:
        """See `nimbus.worker.settings.ConnectProvider`."""
        if session.url != self._url:
            return None
        return ConnectPlan(url=self._url, token=self._token, session_id=session.session_id)

    def look_after(self) -> None:
        """Nothing is ours."""

    def close(self) -> None:
        """Nothing is ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServerSettings:
    """How a worker starts its server."""

    folder: Path
    master: str
    spark_conf: Mapping[str, str]
    env: Mapping[str, str]
    java_home: Callable[[], Path]
    idle_timeout: timedelta = timedelta(minutes=10)
    start_timeout: timedelta = timedelta(minutes=2)


class LocalServer:
    """The worker's own server. See `nimbus.worker.settings.ConnectProvider`."""

    def __init__(self, settings: LocalServerSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ready: ProcessId | None = None
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def is_up(self) -> bool:
        """It has answered, and its process lives."""
        ready = self._ready
        return ready is not None and procfs.is_alive(ready.pid, ready.start_ticks)

    def plan(self) -> ConnectPlan:
        """See `nimbus.worker.settings.ConnectProvider`. Takes ten seconds when a server must be started."""
        check_packages()
        with self._lock:
            made_of = self.made_of()
            folder, record = self._found(made_of) or self._started(made_of)
            touch(folder)
            plan = ConnectPlan(
                url=f"sc://localhost:{record.port}",  # to any other name pyspark would speak TLS
                token=record.token,
                server=record.id,
                folder=folder,
            )
            if self._ready != record.id:
                self._await(plan)
                self._ready = record.id
        return plan

    def reach(self, session: ConnectSession) -> None:
        """Nobody else's server is known here."""

    def look_after(self) -> None:
        """Remove servers that died, and end those that nobody uses. See `ConnectProvider`."""
        if self._lock.acquire(blocking=False):  # else one is being started
            try:
                self._end_unused(self._settings.idle_timeout.total_seconds())
            finally:
                self._lock.release()

    def close(self) -> None:
        """See `nimbus.worker.settings.ConnectProvider`: a server without a session ends."""
        self._closing.set()
        if self._lock.acquire(timeout=_CLOSE_S):
            try:
                self._end_unused(0.0)
            finally:
                self._lock.release()

    def made_of(self) -> str:
        """Digest of what a server is started with now."""
        wanted = self._settings
        spark = find_spec("pyspark")
        parts = [
            str(spark.origin if spark else None),
            wanted.master,
            *(f"{name}={value}" for name, value in sorted({**wanted.spark_conf, **wanted.env}.items())),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _found(self, made_of: str) -> tuple[Path, ServerRecord] | None:
        for folder, record in servers_below(self._settings.folder):
            if record.made_of == made_of and record.lives:
                return folder, record
        return None

    def _started(self, made_of: str) -> tuple[Path, ServerRecord]:
        settings = self._settings
        port, token = _free_port(), secrets.token_urlsafe(32)
        folder = settings.folder / str(port)
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
            try:
                child = subprocess.Popen(
                    _command(settings, folder, port),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder / "tmp",
                    env=environment,
                    start_new_session=True,  # it goes on without us
                )
            except OSError as exc:
                raise ConnectServerError(f"the Spark Connect server cannot be started: {exc}") from exc
        ticks = procfs.start_ticks(child.pid)
        assert ticks is not None  # noqa: S101 - we have not reaped it
        record = ServerRecord(
            pid=child.pid, start_ticks=ticks, host=host_id(), port=port, token=token, made_of=made_of
        )
        note_server(folder, record)
        self._children[folder] = child
        _log.info("connect_server_started", pid=child.pid, port=port)
        return folder, record

    def _await(self, plan: ConnectPlan) -> None:
        """Wait until it answers; one that does not is ended, so that the next order starts another."""
        began = time.monotonic()
        deadline = began + self._settings.start_timeout.total_seconds()
        assert plan.server is not None  # noqa: S101 - it is our own
        port = int(plan.url.rpartition(":")[2])
        while procfs.is_alive(plan.server.pid, plan.server.start_ticks):
            if _listens(port) and answers(plan):
                _log.info("connect_server_ready", port=port, took_s=round(time.monotonic() - began, 3))
                return
            if self._closing.wait(_POLL_S):
                raise ConnectServerError("the worker ends")
            if time.monotonic() > deadline:
                break
        end_server(plan.server)
        raise ConnectServerError(
            f"the Spark Connect server does not start; see {self._settings.folder / 'log'}: "
            f"{_last_error(self._settings.folder / 'log')}"
        )

    def _end_unused(self, idle_s: float) -> None:
        current = self.made_of()
        for folder, record in list(servers_below(self._settings.folder)):
            if child := self._children.get(folder):
                child.poll()  # or it stays a zombie
            if record.lives:
                patience_s = idle_s if record.made_of == current else 0.0
                if not is_unused(folder, patience_s):
                    continue
                end_server(record.id)
                _log.info("connect_server_ended", pid=record.pid, because="nobody uses it")
            if child := self._children.pop(folder, None):
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_KILL_DEADLINE_S)
            shutil.rmtree(folder, ignore_errors=True)


def _command(settings: LocalServerSettings, folder: Path, port: int) -> list[str]:
    spark = find_spec("pyspark")
    assert spark is not None  # noqa: S101 - a dependency
    assert spark.submodule_search_locations is not None  # noqa: S101 - a package
    conf = {**_CONF, **settings.spark_conf}
    options = f"-Djava.io.tmpdir={folder / 'tmp'} {conf.get('spark.driver.extraJavaOptions', '')}".strip()
    if settings.master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf |= {
        "spark.app.name": "nimbus-connect",
        "spark.local.dir": str(folder / "local"),
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


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as asked:
        asked.settimeout(1.0)
        return asked.connect_ex(("127.0.0.1", port)) == 0


def _log_file(path: Path) -> BinaryIO:
    """Open the log at its end; a large one is put aside first, in place of the one before."""
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_name("log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _last_error(log: Path) -> str:
    lines = (read_if_there(log) or b"")[-16_384:].decode(errors="replace").splitlines()
    told = [line.strip() for line in lines if "ERROR" in line or "Exception" in line or "Error:" in line]
    return (told or lines or [""])[-1][:200]
