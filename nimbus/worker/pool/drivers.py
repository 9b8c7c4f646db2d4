"""An executor's handle of its drivers, which are started and signalled through its zygote. Main thread."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from nimbus.worker import procfs
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.environment import passed_on
from nimbus.worker.loop import Loop
from nimbus.worker.pool.messages import Outbox
from nimbus.worker.pool.zygote import LARGEST_MESSAGE
from nimbus.worker.proc_area import ARGUMENT_ROOM, ROOM
from nimbus.worker.procfs import ProcessId
from nimbus.worker.task_user import TaskUser
from nimbus.worker.usage import Usage

_KILL_DEADLINE_S = 10.0
_TOO_SOON_S = 1.0
"""A zygote that ends within this time could not start, so the next one is started after a pause."""


class DriverEnd(NamedTuple):
    """How a driver ended."""

    attempt: str
    status: int
    """Like `Popen.returncode`: negative for a signal."""
    fault: str
    """Why it could not begin; empty if it began."""
    used: Usage | None = None
    """What it and its process group used; None: it was not started."""


class Drivers:
    """A zygote and the drivers that it forks."""

    def __init__(
        self, loop: Loop, *, ended: Callable[[DriverEnd], None], zygote_ended: Callable[[], None]
    ) -> None:
        """`ended` and `zygote_ended` are called on the loop's thread."""
        self._loop, self._ended, self._zygote_ended = loop, ended, zygote_ended
        self._pids: dict[str, int] = {}
        """Pids of drivers that were requested; 0: no answer yet."""
        self._start_zygote()

    def _start_zygote(self) -> None:
        self._started_s = time.monotonic()
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

    def start(
        self,
        folder: AttemptFolder,
        environment: Mapping[str, str],
        user: TaskUser | None,
        *,
        until_s: float,
    ) -> None:
        """Start a driver, unless `until_s` has passed. Its end is reported in any case."""
        self._send(
            {
                "start": str(folder.path),
                "environment": dict(environment),
                "uid": None if user is None else user.uid,
                "until_s": until_s,
            }
        )

    def signal(self, attempt: str, number: signal.Signals) -> None:
        """Signal a driver's process group. Does nothing if the driver has ended."""
        self._send({"signal": number, "attempt": attempt})

    def processes(self, attempt: str) -> list[int]:
        """Current pids of a driver and its descendants. Empty at first, until the zygote answers."""
        if attempt not in self._pids:
            self._pids[attempt] = 0
            self._send({"where": attempt})
        pid = self._pids[attempt]
        return [pid, *procfs.below(pid)] if pid else []

    def kill_zygote(self) -> None:
        """End the zygote and all its drivers; another one is started."""
        self._zygote.kill()

    def close(self) -> None:
        """End remaining processes of ended drivers, because no other process will."""
        left = partial(procfs.identities, self._zygote.pid)
        procfs.kill_all(left, deadline_s=_KILL_DEADLINE_S)

    def _send(self, request: Mapping[str, object]) -> None:
        self._outbox.send(json.dumps(request).encode())

    def _hear(self) -> None:
        while True:
            try:
                message = self._socket.recv(LARGEST_MESSAGE)
            except BlockingIOError:
                return
            except ConnectionResetError:  # raised once, before its last messages
                continue
            if not message:
                self._replace()
                return
            told = json.loads(message)
            if "pid" in told:
                self._pids[told["attempt"]] = told["pid"]
                continue
            self._pids.pop(told["ended"], None)
            used = None if told["used"] is None else Usage(*told["used"])
            self._ended(DriverEnd(told["ended"], told["status"], told["fault"], used))

    def _replace(self) -> None:
        """Handle the death of the zygote and its drivers: end remaining processes, start another zygote."""
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        self._zygote.kill()
        self._zygote.wait()
        procfs.kill_all(self._remains, deadline_s=_KILL_DEADLINE_S)
        if time.monotonic() - self._started_s < _TOO_SOON_S:
            time.sleep(_TOO_SOON_S)
        self._pids.clear()
        self._start_zygote()
        self._zygote_ended()

    def _remains(self) -> list[ProcessId]:
        own = os.getpid()
        return [found.id for found in procfs.living() if found.session == own and found.id.pid != own]
