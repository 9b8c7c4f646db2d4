"""Launches runners by a fork server: a process of the worker that has everything imported.

A fork takes some milliseconds, a start of a runner half a second of processor time. When the fork server has
died, the launch under way starts a process instead, and the next one finds a new fork server. If the one that
died had forked the runner already, the folder's lock lets only one of the two run the attempt.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.environment import passed_on
from nimbus.worker.launcher import LaunchFailedError, launch, memory_file
from nimbus.worker.proc_area import ARGUMENT_ROOM, ROOM
from nimbus.worker.procfs import ProcessId
from nimbus.worker.settings import RunnerStartup, attempt_tag

_ANSWER_S = 30.0
"""For an answer: a fork server that has just been started imports for half a second."""
_END_S = 5.0

_log = structlog.get_logger(__name__)


class ForkLauncher:
    """See `nimbus.worker.launcher.Launcher`. One thread launches; `close` comes after its last launch."""

    def __init__(self) -> None:
        self._server: _Server | None = None

    @property
    def pid(self) -> int | None:
        """Of the fork server; None while there is none."""
        return None if self._server is None else self._server.pid

    def start(self) -> None:
        """Start the fork server, which gets ready by itself."""
        try:
            self._server = _Server()
        except OSError as exc:
            _log.warning("fork_server_not_started", error=str(exc))

    def __call__(self, folder: AttemptFolder, startup: RunnerStartup) -> ProcessId | None:
        """Fork a runner, or start one if that is not possible."""
        try:
            if self._server is None:
                raise ConnectionError("there is none")
            tag = attempt_tag(startup.plan.cluster, str(folder.attempt))
            with memory_file(startup.encode()) as file:
                answer = self._server.ask({"folder": str(folder.path), "tag": tag}, file)
        except OSError as exc:
            _log.warning("fork_server_replaced", attempt=str(folder.attempt), error=str(exc))
            self.close()
            self.start()
            return launch(folder, startup)
        if "error" in answer:
            raise LaunchFailedError(folder, answer["error"])
        ticks = answer["start_ticks"]
        return ProcessId(answer["pid"], ticks) if ticks is not None else None

    def fork_waiting(self, place: Path, control: int, command: Sequence[str]) -> ProcessId:
        """Fork a runner that waits for its attempt: see `warm.runner`.

        Raises:
            OSError: there is no fork server, or it cannot.
        """
        if self._server is None:
            raise ConnectionError("there is no fork server")
        try:
            answer = self._server.ask({"warm": str(place), "command": list(command)}, control)
        except OSError:  # an answer that comes late would be taken for that of another request
            self.close()
            self.start()
            raise
        if "error" in answer:
            raise ConnectionError(answer["error"])
        return ProcessId(answer["pid"], answer["start_ticks"] or 0)

    def close(self) -> None:
        """End the fork server. What it forked goes on."""
        server, self._server = self._server, None
        if server is not None:
            server.close()


class _Server:
    """One fork server process."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(_ANSWER_S)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-u", "-m", "nimbus.worker.fork_server", ARGUMENT_ROOM],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                    env={**passed_on(os.environ), **ROOM},
                    start_new_session=True,  # Ctrl-C is not for it: it ends with us
                )
        except OSError:
            self._connection.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, object], descriptor: int) -> dict[str, Any]:
        """Raises OSError when there is no answer."""
        socket.send_fds(self._connection, [json.dumps(request).encode()], [descriptor])
        answer = self._connection.recv(4096)
        if not answer:
            raise ConnectionError("the fork server has ended")
        return dict(json.loads(answer))

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
