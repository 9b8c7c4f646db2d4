"""The Spark Connect server that a worker's tasks use: its own, started on demand, or one that is configured.

A server outlives its worker, as runners do; the next worker finds it by its folder (`connect_folder`). A
server that was started with other settings continues until it is unused. All write to
`<work_dir>/connect/log`.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

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
from nimbus.worker.connect_plan import ConnectPlan
from nimbus.worker.connect_session import answers, check_packages, exercising
from nimbus.worker.connect_start import LocalServerSettings, free_port, last_error, listens, start_server
from nimbus.worker.identity import host_id
from nimbus.worker.procfs import ProcessId

_POLL_S = 0.05
_KILL_DEADLINE_S = 10.0
_CLOSE_S = 2.0

_log = structlog.get_logger(__name__)


class ConnectServerError(NimbusError):
    """The worker's Spark Connect server could not be started."""

    code = "connect_server"


class RemoteServer:
    """A server that is named in the configuration. See `nimbus.worker.connect_plan.ConnectProvider`."""

    def __init__(self, url: str, token: str | None) -> None:
        """`url` is `sc://host[:port]`; connections to any host but localhost use TLS."""
        is_here = url.removeprefix("sc://").partition(":")[0] == "localhost"
        self._url, self._token = url if is_here else f"{url}/;use_ssl=true", token

    def is_up(self) -> bool:
        """Always True: there is no server to start."""
        return True

    def plan(self) -> ConnectPlan:
        """See `nimbus.worker.connect_plan.ConnectProvider`."""
        check_packages()
        return ConnectPlan(url=self._url, token=self._token)

    def reach(self, session: ConnectSession) -> ConnectPlan | None:
        """See `nimbus.worker.connect_plan.ConnectProvider`."""
        if session.url != self._url:
            return None
        return ConnectPlan(url=self._url, token=self._token, session_id=session.session_id)

    def look_after(self) -> bool:
        """Does nothing: the server is external."""
        return True

    def close(self) -> None:
        """Does nothing: the server is external."""


class LocalServer:
    """The worker's own server. See `nimbus.worker.connect_plan.ConnectProvider`."""

    def __init__(self, settings: LocalServerSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ready: ProcessId | None = None
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        self._exercising: subprocess.Popen[bytes] | None = None

    def is_up(self) -> bool:
        """True if it has answered, and its process is alive."""
        ready = self._ready
        return ready is not None and procfs.is_alive(ready.pid, ready.start_ticks)

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
        """See `nimbus.worker.connect_plan.ConnectProvider`: a server without a session is stopped."""
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
        assert ticks is not None  # noqa: S101 - we have not reaped it
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
        while procfs.is_alive(plan.server.pid, plan.server.start_ticks):
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
            self._exercising.wait(_KILL_DEADLINE_S)
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
                    child.wait(_KILL_DEADLINE_S)
            shutil.rmtree(folder, ignore_errors=True)
