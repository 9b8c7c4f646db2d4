"""An executor's handle of its drivers, which are started and signalled through its zygote. Main thread."""

from __future__ import annotations

import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.driver.child import why_own_interpreter
from nimbus.worker.driver.environment import passed_on
from nimbus.worker.driver.main import EXIT_NOT_STARTED, DriverPlan
from nimbus.worker.host import procfs
from nimbus.worker.host.forked import ARGUMENT_ROOM, ROOM
from nimbus.worker.host.loop import Loop
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.host.remains import ATTEMPT_VARIABLE
from nimbus.worker.host.task_user import TaskUser
from nimbus.worker.host.usage import Usage
from nimbus.worker.pool.messages import SendQueue
from nimbus.worker.pool.zygote import LARGEST_MESSAGE, LARGEST_ORDER

NO_ENV: Mapping[str, str] = MappingProxyType({})
_TOO_SOON_S = 1.0
"""A zygote that ends within this time could not start, so the next one is started after a pause."""
PRELOAD_WITHIN_S = 60.0
"""Time for all modules together. The module that is then being imported is left out."""


class DriverEnd(NamedTuple):
    """How a driver ended."""

    attempt: str
    status: int
    """Like `Popen.returncode`: negative for a signal."""
    fault: str
    used: Usage | None = None
    """What it and its process group used; None: it was not started."""


class DriversOwner(Protocol):
    """What is told about drivers, on the loop's thread."""

    def drivers_are_ready(self) -> None:
        """Drivers can be started: after the start, and each time after `zygote_ended`."""

    def not_preloaded(self, reasons: Mapping[str, str]) -> None:
        """These modules cannot be imported; each with the reason, up to 300 characters."""

    def driver_ended(self, end: DriverEnd) -> None:
        """A driver has ended, or could not begin."""

    def zygote_ended(self) -> None:
        """All drivers have ended. Another zygote is starting, see `Drivers.are_ready`."""


class Drivers:
    """A zygote and the drivers that it forks."""

    def __init__(
        self, loop: Loop, owner: DriversOwner, *, preload: Sequence[str] = (), env: Mapping[str, str] = NO_ENV
    ) -> None:
        """Start the zygote, which first imports `preload`, with `env` in addition to its own."""
        self._loop, self._owner = loop, owner
        self._preload, self._env = list(preload), env
        self._not_preloaded: dict[str, str] = {}
        self._importing = ""
        self._imported: frozenset[str] = frozenset()
        self._environment: Mapping[str, str] = NO_ENV
        self.are_ready = False
        self._pids: dict[str, int] = {}
        """Pids of drivers that were requested; 0: no answer yet."""
        self._start_zygote()

    def _start_zygote(self) -> None:
        self._started_s, self._importing, self.are_ready = time.monotonic(), "", False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._zygote = subprocess.Popen(
                [
                    sys.executable, "-I", "-u", "-m", "nimbus.worker.pool.zygote", str(os.getpid()),
                    ",".join(self._preload), ARGUMENT_ROOM,
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={**passed_on(os.environ), **self._env, **ROOM},
            )  # fmt: skip
        self._socket.setblocking(False)
        self._outbox = SendQueue(self._socket, self._loop)
        self._loop.listen(self._socket.fileno(), self._receive)
        if self._preload:
            self._loop.after(PRELOAD_WITHIN_S, partial(self._end_preload, self._zygote))

    def _end_preload(self, zygote: subprocess.Popen[bytes]) -> None:
        if zygote is self._zygote and not self.are_ready:
            self._leave_out(self._importing, f"takes more than {PRELOAD_WITHIN_S:.0f} s")
            zygote.kill()

    def _leave_out(self, module: str, why: str) -> None:
        """`module`: empty if none was imported yet, so that all are left out."""
        left_out = [each for each in self._preload if each == module] or self._preload
        self._preload = [each for each in self._preload if each not in left_out]
        self._not_preloaded |= dict.fromkeys(left_out, why)
        self._owner.not_preloaded(self._not_preloaded)

    def can_fork(self, plan: DriverPlan, environment: Mapping[str, str]) -> bool:
        """False if a driver needs its own interpreter."""
        return why_own_interpreter(plan, environment, self._environment, self._imported) is None

    def start(
        self,
        folder: AttemptFolder,
        environment: Mapping[str, str],
        user: TaskUser | None,
        *,
        plan: DriverPlan,
        execute: bool,
        until_s: float,
    ) -> None:
        """Start a driver, unless `until_s` (since boot) has passed. Its end is reported in any case.

        `execute`: give it its own interpreter. Its plan is then also in its folder.
        """
        name, uid = folder.path.name, None if user is None else user.uid
        order = marshal.dumps((str(folder.path), vars(plan), dict(environment), execute))
        if len(order) > LARGEST_ORDER:
            why = f"its arguments and environment have {len(order)} bytes, and {LARGEST_ORDER} is the most"
            self._loop.post(partial(self._owner.driver_ended, DriverEnd(name, EXIT_NOT_STARTED, why)))
        else:
            self._send("start", name, environment[ATTEMPT_VARIABLE], uid, until_s, order)

    def signal(self, attempt: str, number: signal.Signals) -> None:
        """Signal a driver's process group. Does nothing if the driver has ended."""
        self._send("signal", attempt, int(number))

    def processes(self, attempt: str) -> list[int]:
        """Current pids of a driver and its descendants. Empty at first, until the zygote answers."""
        if attempt not in self._pids:
            self._pids[attempt] = 0
            self._send("where", attempt)
        pid = self._pids[attempt]
        return [pid, *procfs.below(pid)] if pid else []

    def kill_zygote(self) -> None:
        """End the zygote and all its drivers; another one is started."""
        self._zygote.kill()

    def close(self) -> None:
        """End remaining processes of ended drivers, because no other process will."""
        left = partial(procfs.identities, self._zygote.pid)
        procfs.kill_all(left)

    def _send(self, *request: str | float | bytes | None) -> None:
        self._outbox.send(marshal.dumps(request))

    def _receive(self) -> None:
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
            self._handle(marshal.loads(message))  # noqa: S302 - our own child's

    def _handle(self, told: dict[str, Any]) -> None:
        if "ended" in told:
            self._pids.pop(told["ended"], None)
            used = None if told["used"] is None else Usage(*told["used"])
            self._owner.driver_ended(DriverEnd(told["ended"], told["status"], told["fault"], used))
        elif "pid" in told:
            self._pids[told["attempt"]] = told["pid"]
        elif "why" in told:
            self._leave_out(told["importing"], told["why"])
        elif "importing" in told:
            self._importing = told["importing"]
        else:
            self._imported, self._environment = frozenset(told["imported"]), told["environment"]
            self.are_ready = True
            self._owner.drivers_are_ready()

    def _replace(self) -> None:
        """Handle the death of the zygote and its drivers: end remaining processes, start another zygote."""
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        self._zygote.kill()
        self._zygote.wait()
        procfs.kill_all(self._remains)
        if self._preload and not self.are_ready and self._importing not in self._not_preloaded:
            self._leave_out(self._importing, "ended the process that imports it")
        if time.monotonic() - self._started_s < _TOO_SOON_S:
            time.sleep(_TOO_SOON_S)
        self._pids.clear()
        self._start_zygote()
        self._owner.zygote_ended()

    def _remains(self) -> list[ProcessId]:
        own = os.getpid()
        return [process.id for process in procfs.living() if process.session == own and process.id.pid != own]
