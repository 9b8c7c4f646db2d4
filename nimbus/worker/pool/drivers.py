"""The drivers of an executor as it sees them: started and signalled through its zygote. Main thread."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from nimbus.worker import procfs
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.environment import passed_on
from nimbus.worker.loop import Loop
from nimbus.worker.pool.outbox import Outbox
from nimbus.worker.pool.zygote import LARGEST_MESSAGE
from nimbus.worker.proc_area import ARGUMENT_ROOM, ROOM
from nimbus.worker.procfs import ProcessId
from nimbus.worker.task_user import TaskUser

_KILL_DEADLINE_S = 10.0


class DriverEnd(NamedTuple):
    """How a driver ended."""

    attempt: str
    status: int
    """As of `Popen.returncode`: negative for a signal."""
    fault: str
    """Why it could not begin; empty: it began."""


class Drivers:
    """A zygote and what it forks."""

    def __init__(
        self, loop: Loop, *, ended: Callable[[DriverEnd], None], zygote_ended: Callable[[], None]
    ) -> None:
        self._loop, self._ended, self._zygote_ended = loop, ended, zygote_ended
        self._start_zygote()

    def _start_zygote(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._zygote = subprocess.Popen(
                [
                    sys.executable, "-I", "-u", "-m", "nimbus.worker.pool.zygote", str(os.getpid()),
                    ARGUMENT_ROOM,
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={**passed_on(os.environ), **ROOM},
            )  # fmt: skip
        self._socket.setblocking(False)
        self._outbox = Outbox(self._socket, self._loop)
        self._loop.listen(self._socket.fileno(), self._hear)

    @property
    def zygote(self) -> int:
        """Its pid."""
        return self._zygote.pid

    def start(self, folder: AttemptFolder, environment: Mapping[str, str], user: TaskUser | None) -> None:
        """Start a driver. Its end is told, even if the zygote dies before it starts it."""
        attempt = str(folder.attempt)
        uid = None if user is None else user.uid
        self._send(
            {"start": attempt, "folder": str(folder.path), "environment": dict(environment), "uid": uid}
        )

    def signal(self, attempt: str, number: signal.Signals) -> None:
        """Signal a driver's process group; one that has ended is passed over."""
        self._send({"signal": number, "attempt": attempt})

    def _send(self, request: Mapping[str, object]) -> None:
        self._outbox.send(json.dumps(request).encode())

    def _hear(self) -> None:
        while True:
            try:
                message = self._socket.recv(LARGEST_MESSAGE)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._replace()
                return
            told = json.loads(message)
            self._ended(DriverEnd(told["ended"], told["status"], told["fault"]))

    def _replace(self) -> None:
        """The zygote has died, and its drivers with it: end what they left, and start another."""
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        self._zygote.kill()
        self._zygote.wait()
        procfs.kill_all(self._remains, deadline_s=_KILL_DEADLINE_S)
        self._start_zygote()
        self._zygote_ended()

    def _remains(self) -> list[ProcessId]:
        own = os.getpid()
        return [found.id for found in procfs.living() if found.session == own and found.id.pid != own]
