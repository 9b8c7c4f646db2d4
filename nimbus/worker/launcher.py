"""Starts runners, executors and keepers so that they outlive the worker.

A fork server, a process of the worker that has imported all their modules, forks them in some milliseconds;
to start a runner takes half a second of processor time. If the fork server dies, the current launch starts a
process instead, and the next launch uses a new fork server. If the dead server had already forked the runner,
the folder's lock lets only one of the two run the attempt.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import structlog

from nimbus.domain.errors import NimbusError
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.driver.environment import passed_on
from nimbus.worker.host.forked import ARGUMENT_ROOM, ROOM
from nimbus.worker.host.procfs import ProcessId, start_ticks
from nimbus.worker.host.remains import RUNNER_VARIABLE, attempt_tag
from nimbus.worker.pool.folder import ExecutorFolder
from nimbus.worker.settings import RunnerStartup

_DETACH_DEADLINE_S = 30.0
_ANSWER_S = 30.0
"""Time limit for a response: a new fork server first imports for half a second."""
_END_S = 5.0
_log = structlog.get_logger(__name__)


class LaunchFailedError(NimbusError):
    """No runner could be started for an attempt."""

    code = "launch_failed"

    def __init__(self, folder: AttemptFolder, why: str) -> None:
        super().__init__(f"attempt {folder.attempt} cannot be started: {why}. See {folder.runner_log}.")


class Launcher(Protocol):
    """Starts runners."""

    def __call__(self, folder: AttemptFolder, startup: RunnerStartup) -> ProcessId | None:
        """Start one; return its process, or None if it has already ended. Raises LaunchFailedError."""


@contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """A descriptor to read `content` from. Unlike a pipe it does not block us if the runner is slow."""
    with os.fdopen(os.memfd_create("startup"), "r+b") as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


_DETACH = """
import os, sys
log, *command = sys.argv[1:]
if child := os.fork():
    print(child)
    sys.exit()
os.setsid()
output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.dup2(output, 1)
os.dup2(output, 2)
os.chdir("/")
os.execv(command[0], command)
"""
"""Starts a command in its own session, so that its starter's death and terminal do not affect it.

A program of its own, because a process that forks must have no threads. It prints the command's pid.
"""


def launch(folder: AttemptFolder, startup: RunnerStartup) -> ProcessId | None:
    """See `Launcher`. The runner is a detached grandchild in its own session, without a terminal.

    The startup is passed by a file in memory, so that secrets are not on disk, in argv or in the environment.
    """
    own = passed_on(os.environ)
    try:
        with memory_file(startup.encode()) as stdin:
            done = subprocess.run(
                [
                    sys.executable, "-I", "-S", "-c", _DETACH, str(folder.runner_log),
                    sys.executable, "-I", "-u", "-m", "nimbus.worker.runner", str(folder.path),
                ],
                stdin=stdin,
                capture_output=True,
                env={**own, **ROOM, RUNNER_VARIABLE: attempt_tag(startup.plan.cluster, str(folder.attempt))},
                timeout=_DETACH_DEADLINE_S,
                check=False,
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise LaunchFailedError(folder, str(exc)) from exc
    if done.returncode != 0:
        raise LaunchFailedError(folder, done.stderr.decode(errors="replace").strip()[-300:])
    pid = int(done.stdout)
    ticks = start_ticks(pid)
    return ProcessId(pid, ticks) if ticks is not None else None


class ForkRefusedError(OSError):
    """The fork server is alive, but could not fork."""


class ForkLauncher:
    """See `nimbus.worker.launcher.Launcher`. One thread launches; call `close` after the last launch."""

    def __init__(self, *options: str) -> None:
        """`options` are passed to the fork server."""
        self._options = options
        self._server: _Server | None = None

    @property
    def pid(self) -> int | None:
        """The fork server's pid; None while there is none."""
        return None if self._server is None else self._server.pid

    def start(self) -> None:
        """Start the fork server, without waiting until it is ready."""
        try:
            self._server = _Server(self._options)
        except OSError as exc:
            _log.warning("fork_server_not_started", error=str(exc))

    def __call__(
        self,
        folder: AttemptFolder,
        startup: RunnerStartup,
        keeper: tuple[ProcessId, Path, int] | None = None,
    ) -> ProcessId | None:
        """Fork a runner, or start one. `keeper`: of the attempt's JVM, its folder, a connection to it."""
        tag = attempt_tag(startup.plan.cluster, str(folder.attempt))
        try:
            with memory_file(startup.encode()) as file:
                request: dict[str, object] = {"kind": "runner", "folder": str(folder.path), "tag": tag}
                if keeper is None:
                    return self._fork(request, [file])
                process, place, connection = keeper
                loan = [process.pid, process.start_ticks, str(place)]
                return self._fork({**request, "keeper": loan}, [file, connection])
        except ForkRefusedError as exc:
            raise LaunchFailedError(folder, str(exc)) from exc
        except OSError as exc:
            _log.warning("fork_server_replaced", attempt=str(folder.attempt), error=str(exc))
            return launch(folder, startup)

    def fork_executor(
        self, folder: ExecutorFolder, startup: bytes, worker: socket.socket
    ) -> ProcessId | None:
        """Fork an executor; None: it has already ended. OSError: try again, with a new fork server."""
        tag = str(folder.path.parent.parent)
        with memory_file(startup) as file:
            request = {"kind": "executor", "folder": str(folder.path), "tag": tag}
            return self._fork(request, [file, worker.fileno()])

    def fork_jvm_keeper(self, place: Path, control: int) -> ProcessId:
        """Fork a keeper of a Spark JVM: see `jvm.keeper`. Raises OSError, as `fork_executor`."""
        keeper = self._fork({"kind": "keeper", "folder": str(place)}, [control])
        if keeper is None:
            raise ForkRefusedError("it has ended at once")
        return keeper

    def _fork(self, request: Mapping[str, object], files: Sequence[int]) -> ProcessId | None:
        try:
            if self._server is None:
                raise ConnectionError("there is no fork server")
            answer = self._server.ask(request, files)
        except OSError:  # a late response could be mistaken for that of another request
            self.close()
            self.start()
            raise
        if "error" in answer:
            raise ForkRefusedError(answer["error"])
        ticks = answer["start_ticks"]
        return ProcessId(answer["pid"], ticks) if ticks is not None else None

    def close(self) -> None:
        """End the fork server. Processes that it forked continue."""
        server, self._server = self._server, None
        if server is not None:
            server.close()


class _Server:
    def __init__(self, options: Sequence[str]) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(_ANSWER_S)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-u", "-m", "nimbus.worker.fork_server", *options, ARGUMENT_ROOM],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                    env={**passed_on(os.environ), **ROOM},
                    start_new_session=True,  # not interrupted by Ctrl-C: it ends with us
                )
        except OSError:
            self._connection.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, object], files: Sequence[int]) -> dict[str, Any]:
        """Send a request and return the response. OSError without a response."""
        socket.send_fds(self._connection, [json.dumps(request).encode()], files)
        answer = self._connection.recv(4096)
        if not answer:
            raise ConnectionError("the fork server has ended")
        return dict(json.loads(answer))

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
