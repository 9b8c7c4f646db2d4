"""Gives attempts of Spark tasks a kept JVM or a new one, and ends idle JVMs. Worker thread."""

from __future__ import annotations

import secrets
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host.free_room import available_memory
from nimbus.worker.host.identity import ProcessLock
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.jvm.keeper import IDLE, LOCK, SERVE
from nimbus.worker.jvm.plan import JvmPlan, jvm_plan, why_not
from nimbus.worker.launcher import ForkLauncher, memory_file
from nimbus.worker.settings import RunnerStartup

FOLDER = "jvms"
IDLE_S = 600.0
GIVE_BACK_BYTES = 1 << 30
"""With less available memory than this, idle JVMs are ended."""
_LONGEST_WORDS = 2048

_log = structlog.get_logger(__name__)


class KeptJvm:
    """The worker's handle of a keeper: a socket. The keeper ends when it is closed and no attempt has it."""

    def __init__(self, place: Path, forks: ForkLauncher, plan: JvmPlan, key: str) -> None:
        """Start one. Raises OSError."""
        self.place, self.release, self.key = place, plan.release, key
        self.idle_since_s: float | None = None
        self.why_ended = ""
        (place / "work" / "tmp").mkdir(mode=0o700, parents=True)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self.id = forks.fork_jvm_keeper(place, theirs.fileno())
            with memory_file(plan.encode()) as file:
                socket.send_fds(self._control, [b"plan"], [file])
        except OSError:
            self.close()
            shutil.rmtree(place, ignore_errors=True)
            raise
        self._control.settimeout(0)

    def serve(self, connection: socket.socket) -> None:
        """Let it serve the attempt whose runner gets the other end. Raises OSError if it has ended."""
        socket.send_fds(self._control, [SERVE], [connection.fileno()])
        self.idle_since_s = None

    def check(self) -> bool:
        """See whether it is idle again; False: it has ended."""
        try:
            told = self._control.recv(_LONGEST_WORDS)
        except BlockingIOError:
            return True
        except OSError as exc:
            told = str(exc).encode()
        if told == IDLE:
            self.idle_since_s = time.monotonic()
            return True
        self.why_ended = told.decode(errors="replace") or "its keeper was killed"
        return False

    def close(self) -> None:
        """End it when it is idle."""
        self._control.close()


class JvmLauncher:
    """See `nimbus.worker.launcher.Launcher`."""

    def __init__(
        self, forks: ForkLauncher, work_dir: Path, *, limit: int, memory: Callable[[], int] = available_memory
    ) -> None:
        """`limit`: most idle JVMs; 0: no JVM is kept."""
        self._forks, self._root, self._limit, self._memory = forks, work_dir / FOLDER, limit, memory
        self._salt = secrets.token_bytes(32)
        self.jvms: list[KeptJvm] = []
        self._last = "no Spark task was here lately"

    @property
    def state(self) -> str:
        """The state as text, for the worker's registration."""
        if self._limit == 0:
            return "off"
        idle = sum(jvm.idle_since_s is not None for jvm in self.jvms)
        counts = [f"{idle} idle"] * bool(idle)
        counts += [f"{len(self.jvms) - idle} in use"] * (idle < len(self.jvms))
        return ", ".join(counts) or f"none: {self._last}"

    @property
    def releases(self) -> tuple[str, ...]:
        """See `WorkerInfo.jvm_releases`."""
        return tuple(sorted({jvm.release for jvm in self.jvms}))

    def start(self) -> None:
        """Start the fork server, and remove folders that keepers of an earlier worker left."""
        self._forks.start()
        self._sweep()

    def __call__(self, folder: AttemptFolder, startup: RunnerStartup) -> ProcessId | None:
        """Give the attempt's runner a JVM, if its driver can use one."""
        order = folder.order()
        plan = jvm_plan(startup.plan, order) if self._limit else None
        if plan is None or why_not(plan, startup.plan, order):
            return self._forks(folder, startup)
        ours, runners = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, runners:
            try:
                jvm = self._for(plan, ours)
            except OSError as exc:
                _log.warning("jvm_not_started", attempt=str(folder.attempt), error=str(exc))
                return self._forks(folder, startup)
            return self._forks(folder, startup, (jvm.id, jvm.place, runners.fileno()))

    def _for(self, plan: JvmPlan, connection: socket.socket) -> KeptJvm:
        self._check()
        key = plan.key(self._salt)
        for jvm in self._idle():
            if jvm.key == key:
                try:
                    jvm.serve(connection)
                except OSError:
                    continue
                return jvm
        if self._memory() - plan.memory_bytes < GIVE_BACK_BYTES:
            self._end(self._idle(), "memory was short")
        jvm = KeptJvm(self._root / secrets.token_hex(6), self._forks, plan, key)
        self.jvms.append(jvm)
        jvm.serve(connection)
        return jvm

    def _idle(self) -> list[KeptJvm]:
        """Idle ones, the longest first."""
        idle = [jvm for jvm in self.jvms if jvm.idle_since_s is not None]
        return sorted(idle, key=lambda jvm: jvm.idle_since_s or 0.0)

    def _check(self) -> None:
        for jvm in list(self.jvms):
            if not jvm.check():
                self._end([jvm], jvm.why_ended)

    def _end(self, jvms: list[KeptJvm], why: str) -> None:
        for jvm in jvms:
            _log.info("jvm_ended", keeper=jvm.id.pid, why=why)
            jvm.close()
            self.jvms.remove(jvm)
            self._last = why
        self._sweep()

    def _sweep(self) -> None:
        """Remove folders whose keeper has ended."""
        used = {jvm.place for jvm in self.jvms}
        for place in self._root.iterdir() if self._root.is_dir() else ():
            if place not in used and not ProcessLock(place / LOCK).is_held():
                shutil.rmtree(place, ignore_errors=True)

    def look_after(self) -> None:
        """End idle JVMs that are too many or too old, or whose memory is needed."""
        self._check()
        self._sweep()
        idle, old = self._idle(), time.monotonic() - IDLE_S
        self._end(idle[: max(0, len(idle) - self._limit)], "there were more")
        self._end([jvm for jvm in self._idle() if (jvm.idle_since_s or 0.0) < old], "no task has used it")
        if self._memory() < GIVE_BACK_BYTES:
            self._end(self._idle(), "memory was short")

    def close(self) -> None:
        """End idle JVMs and the fork server. A JVM with an attempt continues until its end."""
        for jvm in self.jvms:
            jvm.close()
        self.jvms.clear()
        self._forks.close()
