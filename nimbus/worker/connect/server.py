"""The Spark Connect server that a worker's tasks use: its own, started on demand, or one that is configured.

A server outlives its worker, as runners do; the next worker finds it by its folder (`server_folder`). A
server that was started with other settings continues until it is unused. All write to
`<work_dir>/connect/log`.
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

from nimbus.domain.attempts.slots import ConnectSession
from nimbus.domain.errors import NimbusError
from nimbus.worker.connect.plan import ConnectPlan
from nimbus.worker.connect.server_folder import (
    ServerRecord,
    end_server,
    is_unused,
    note_server,
    servers_below,
    touch,
)
from nimbus.worker.connect.session import answers, check_packages, exercising
from nimbus.worker.driver.environment import driver_environment, submit_options
from nimbus.worker.driver.programs import installed_spark
from nimbus.worker.host import procfs
from nimbus.worker.host.files import read_if_there
from nimbus.worker.host.identity import host_id

_POLL_S = 0.05
_CLOSE_S = 2.0

_log = structlog.get_logger(__name__)
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


class ConnectServerError(NimbusError):
    """The worker's Spark Connect server could not be started."""

    code = "connect_server"


class RemoteServer:
    """A server that is named in the configuration. See `nimbus.worker.connect.plan.ConnectProvider`."""

    def __init__(self, url: str, token: str | None) -> None:
        """`url` is `sc://host[:port]`; connections to any host but localhost use TLS."""
        is_here = url.removeprefix("sc://").partition(":")[0] == "localhost"
        self._url, self._token = url if is_here else f"{url}/;use_ssl=true", token

    def is_up(self) -> bool:
        """Always True: there is no server to start."""
        return True

    def plan(self) -> ConnectPlan:
        """See `nimbus.worker.connect.plan.ConnectProvider`."""
        check_packages()
        return ConnectPlan(url=self._url, token=self._token)

    def reach(self, session: ConnectSession) -> ConnectPlan | None:
        """See `nimbus.worker.connect.plan.ConnectProvider`."""
        if session.url != self._url:
            return None
        return ConnectPlan(url=self._url, token=self._token, session_id=session.session_id)

    def look_after(self) -> bool:
        """Does nothing: the server is external."""
        return True

    def close(self) -> None:
        """Does nothing: the server is external."""


class LocalServer:
    """The worker's own server. See `nimbus.worker.connect.plan.ConnectProvider`."""

    def __init__(self, settings: LocalServerSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ready: procfs.ProcessId | None = None
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        self._exercising: subprocess.Popen[bytes] | None = None

    def is_up(self) -> bool:
        """True if it has answered, and its process is alive."""
        ready = self._ready
        return ready is not None and procfs.is_alive(ready)

    def plan(self) -> ConnectPlan:
        """See `ConnectProvider`. Takes ten seconds if a server must be started."""
        check_packages()
        with self._lock:
            made_of = self.made_of()
            folder, record = self._found(made_of) or self._started(made_of)
            plan = ConnectPlan(
                url=f"sc://localhost:{record.port}",  # with any other name pyspark would use TLS
                token=record.token,
                server=record.id,
                folder=folder,
            )
            if self._ready != record.id:
                self._await(plan)
                self._ready = record.id
            touch(folder)  # last, because a start may take longer than the idle timeout
        return plan

    def reach(self, session: ConnectSession) -> None:
        """None: this provider has no external server."""

    def look_after(self) -> bool:
        """Remove dead servers, and stop unused ones. See `ConnectProvider`."""
        if not self._lock.acquire(blocking=False):
            return True  # one is being started
        try:
            self._end_unused(self._settings.idle_timeout.total_seconds())
            return any(servers_below(self._settings.folder))
        finally:
            self._lock.release()

    def close(self) -> None:
        """See `nimbus.worker.connect.plan.ConnectProvider`: a server without a session is stopped."""
        self._closing.set()
        if self._lock.acquire(timeout=_CLOSE_S):
            try:
                self._end_exercise()
                self._end_unused(0.0)
            finally:
                self._lock.release()

    def made_of(self) -> str:
        """Digest of the current start settings."""
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
        port, token = free_port(), secrets.token_urlsafe(32)
        folder = self._settings.folder / str(port)
        try:
            child = start_server(self._settings, folder, port, token)
        except OSError as exc:
            raise ConnectServerError(f"the Spark Connect server cannot be started: {exc}") from exc
        ticks = procfs.start_ticks(child.pid)
        assert ticks is not None  # noqa: S101 - we have not collected it
        record = ServerRecord(
            pid=child.pid, start_ticks=ticks, host=host_id(), port=port, token=token, made_of=made_of
        )
        note_server(folder, record)
        self._children[folder] = child
        _log.info("connect_server_started", pid=child.pid, port=port)
        return folder, record

    def _await(self, plan: ConnectPlan) -> None:
        """Wait until it answers; else stop it, so that the next order starts another one."""
        began = time.monotonic()
        deadline = began + self._settings.start_timeout.total_seconds()
        assert plan.server is not None  # noqa: S101 - it is our own
        port = int(plan.url.rpartition(":")[2])
        while procfs.is_alive(plan.server):
            if listens(port) and answers(plan):
                _log.info("connect_server_ready", port=port, took_s=round(time.monotonic() - began, 3))
                self._exercise(plan)
                return
            if self._closing.wait(_POLL_S):
                raise ConnectServerError("the worker ends")
            if time.monotonic() > deadline:
                break
        end_server(plan.server)
        raise ConnectServerError(
            f"the Spark Connect server does not start; see {self._settings.folder / 'log'}: "
            f"{last_error(self._settings.folder / 'log')}"
        )

    def _exercise(self, plan: ConnectPlan) -> None:
        """Warm up the server in parallel with the first tasks. Only if its files are on this host."""
        if not self._settings.runs_here:
            return
        self._end_exercise()
        with suppress(OSError):
            self._exercising = exercising(plan)

    def _end_exercise(self) -> None:
        if self._exercising is not None:
            self._exercising.kill()
            self._exercising.wait(procfs.KILL_DEADLINE_S)
            self._exercising = None

    def _end_unused(self, idle_s: float) -> None:
        if self._exercising is not None:
            self._exercising.poll()  # or it stays a zombie
        current = self.made_of()
        for folder, record in list(servers_below(self._settings.folder)):
            if child := self._children.get(folder):
                child.poll()  # or it stays a zombie
            if record.lives:
                patience_s = idle_s if record.made_of == current else 0.0
                if not is_unused(folder, patience_s):
                    continue
                _log.info("connect_server_ended", pid=record.pid, because="nobody uses it")
            if record.is_here:
                end_server(record.id)
            if child := self._children.pop(folder, None):
                with suppress(subprocess.TimeoutExpired):
                    child.wait(procfs.KILL_DEADLINE_S)
            shutil.rmtree(folder, ignore_errors=True)


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
    """Start a server that outlives this process. It listens some seconds later, or ends. Raises OSError."""
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
    program = f"{installed_spark()}/bin/spark-submit"
    return [program, "--class", _CLASS, *submit_options(settings.master, conf), "spark-internal"]


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
    """Open the log for appending; a large one is rotated first."""
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_name("log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def last_error(log: Path) -> str:
    """The last line of a log that contains an error, or the last line."""
    lines = (read_if_there(log) or b"")[-16_384:].decode(errors="replace").splitlines()
    errors = [line.strip() for line in lines if "ERROR" in line or "Exception" in line or "Error:" in line]
    return (errors or lines or [""])[-1][:200]
