"""Forks drivers for an executor: `python -I -u -m nimbus.worker.pool.zygote PID MODULES`.

It has one thread, few modules and no credentials: a fork takes a millisecond, and a driver's memory contains
no secrets. Standard input is a socket to its executor. It ends with that, and its drivers end with it.

One driver is forked ahead: it waits for its order, so that an attempt does not wait for a fork. Each page of
memory that is then touched first here or in the child is copied. So the executor does all that it can.

First it imports MODULES (`worker.preload`, with commas), if there are any. For each it sends `{"importing":
module}`, and, if that fails, `{"importing": module, "why": text}`; at the end `{"imported": names,
"environment": {...}}`.

Messages are of `marshal`, which runs no Python code; both processes have the same interpreter. Requests:
`("start", attempt, tag, uid or None, until_s, order)`, of which the driver gets `order`, see `_be_driver`;
`("signal", attempt, number)`; and `("where", attempt)`, which it answers by `{"attempt": attempt, "pid":
pid}`. When a driver ends it sends `{"ended": attempt, "status": n, "fault": text, "used": usage}`; `status`
is like `Popen.returncode`, `fault` is the reason why the driver could not begin, and `used` a `Usage`, if it
was started. A start that arrives after `until_s` (since boot, including suspend) is not executed.
"""

from __future__ import annotations

import gc
import importlib
import marshal
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nimbus.worker.driver.child import be_driver, imported_names
from nimbus.worker.driver.main import EXIT_NOT_STARTED, DriverPlan
from nimbus.worker.host import forked, procfs
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.forked import make_room
from nimbus.worker.host.procfs import ProcessId, ProcessStat
from nimbus.worker.host.remains import ATTEMPT_VARIABLE
from nimbus.worker.host.usage import Usage, of_ended

LARGEST_ORDER = 192 << 10
"""Most bytes of what a driver is given: its plan and its environment."""
LARGEST_MESSAGE = 200 << 10
"""Linux takes up to 207 KiB."""
_NEEDED = ("pkgutil", "nimbus.task")
_PART_BYTES = 16 << 10
_SWEEP_EVERY_S = 1.0
_LONGEST_WHY = 300
_KILL_DEADLINE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Child:
    attempt: str
    tag: str
    uid: int | None
    fault: int
    """Read end of a pipe for the reason why it could not begin."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A driver that was forked ahead."""

    pid: int
    order: int
    fault: int


class Zygote:
    """The program; it has only the main thread."""

    def __init__(self, executor: socket.socket) -> None:
        self._executor = executor
        self._children: dict[int, _Child] = {}
        """Children with an attempt, by pid, which is also the id of the child's process group."""
        self._waiting: _Waiting | None = None
        self._ended, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        self._sweep_at: float | None = None

    def run(self) -> int:
        """Serve until the executor ends."""
        poll, message = select.poll(), memoryview(bytearray(LARGEST_MESSAGE))
        poll.register(self._executor, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll(self._wait_ms())}
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._collect()
            if self._executor.fileno() in ready:
                size = self._executor.recv_into(message)
                if not size:
                    return 0
                self._do(*marshal.loads(message[:size]))  # noqa: S302 - our executor's
            if self._sweep_at is not None and time.monotonic() >= self._sweep_at:
                self._sweep()

    def _wait_ms(self) -> int | None:
        return None if self._sweep_at is None else max(0, int((self._sweep_at - time.monotonic()) * 1000) + 1)

    def _do(self, what: str, attempt: str, *more: Any) -> None:
        if what == "start":
            self._start(attempt, *more)
            return
        for pid, child in self._children.items():
            if child.attempt == attempt and what == "signal":
                procfs.signal_child(pid, *more)
            elif child.attempt == attempt:
                self._send({"attempt": attempt, "pid": pid})

    def _start(self, attempt: str, tag: str, uid: int | None, until_s: float, told: bytes) -> None:
        if boottime_s() > until_s:  # too late: a leader may have closed it
            self._tell(attempt, EXIT_NOT_STARTED, "the order to start came too late")
            return
        try:
            driver = self._waiting or self._fork()
        except OSError as exc:
            self._tell(attempt, EXIT_NOT_STARTED, f"fork: {exc.strerror}")
            return
        self._waiting = None
        self._children[driver.pid] = _Child(attempt, tag, uid, driver.fault)
        with suppress(BrokenPipeError):  # else `_collect` reports its end
            while told:
                told = told[os.write(driver.order, told) :]
        os.close(driver.order)
        with suppress(OSError):  # the next start tries again, and reports it
            self._waiting = self._fork()

    def _fork(self) -> _Waiting:
        fault, theirs = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        receives, order = os.pipe2(os.O_CLOEXEC)
        try:
            pid = forked.fork(partial(_await_order, receives, theirs, os.getpid()))
        except OSError:
            for fd in (fault, theirs, receives, order):
                os.close(fd)
            raise
        os.close(receives)
        os.close(theirs)
        with suppress(OSError):  # the child does it, too; the first wins
            os.setpgid(pid, pid)
        return _Waiting(pid, order, fault)

    def _collect(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            child = self._children.pop(ended.si_pid, None)
            if self._waiting is not None and self._waiting.pid == ended.si_pid:
                os.close(self._waiting.order)
                os.close(self._waiting.fault)
                self._waiting = None
            if child is not None:  # else an orphan that became ours
                procfs.signal_child(ended.si_pid, signal.SIGKILL)
            _, status, used = os.wait4(ended.si_pid, 0)
            if child is not None:
                total = self._await_end_of_group(ended.si_pid, of_ended(used))
                if child.uid is not None:  # the next reader of its folders has more rights
                    procfs.kill_all(self._strays, deadline_s=_KILL_DEADLINE_S)
                self._has_ended(child, status, total)

    def _has_ended(self, child: _Child, status: int, used: Usage) -> None:
        if self._sweep_at is None:
            self._sweep_at = time.monotonic() + _SWEEP_EVERY_S
        fault = b""
        with suppress(BlockingIOError):  # an orphan of it has the pipe
            fault = os.read(child.fault, select.PIPE_BUF)
        os.close(child.fault)
        self._tell(
            child.attempt, os.waitstatus_to_exitcode(status), fault.decode(errors="replace"), tuple(used)
        )

    def _tell(self, attempt: str, status: int, fault: str, used: Sequence[int] | None = None) -> None:
        self._send({"ended": attempt, "status": status, "fault": fault, "used": used})

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the executor has ended: the next read returns EOF
            self._executor.send(marshal.dumps(message))

    def _await_end_of_group(self, group: int, used: Usage) -> Usage:
        """Wait until a driver's group is dead, as it could write to the output; return what all used."""
        until = time.monotonic() + _KILL_DEADLINE_S
        with suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < until:
                os.killpg(group, 0)
                with suppress(ChildProcessError):  # adopted orphans; others have their own parents
                    while (orphan := os.wait4(-group, os.WNOHANG))[0]:
                        used = used.plus(of_ended(orphan[2]))
                time.sleep(0.002)
        return used

    def _sweep(self) -> None:
        """Kill orphans that drivers left outside of their groups, unless a living driver's tag is theirs."""
        # A look at all processes takes milliseconds, and most tasks leave none.
        drivers = self._drivers()
        left = [] if drivers and drivers == {*procfs.children(os.getpid())} else self._strays()
        for stray in left:
            procfs.kill(stray)
        self._sweep_at = time.monotonic() + _SWEEP_EVERY_S if left or self._children else None

    def _drivers(self) -> set[int]:
        return {*self._children, *([] if self._waiting is None else [self._waiting.pid])}

    def _strays(self) -> list[ProcessId]:
        own, drivers = os.getpid(), self._drivers()
        orphans = [process for process in procfs.living() if process.parent == own]
        others = [process for process in orphans if process.id.pid not in drivers]
        return [process.id for process in others if not self._is_of_a_living_driver(process)]

    def _is_of_a_living_driver(self, process: ProcessStat) -> bool:
        variables = (procfs.environment_of(process.id.pid) or b"").split(b"\0")
        for leader, child in self._children.items():
            if process.group == leader or f"{ATTEMPT_VARIABLE}={child.tag}".encode() in variables:
                # Any process can join a group and set a variable, so it must also have the driver's user.
                return procfs.user_of(process.id.pid) == (os.getuid() if child.uid is None else child.uid)
        return False


def _await_order(order: int, fault: int, zygote: int) -> int:
    """Wait in the forked child for the order to start an attempt. Without one, the zygote has ended."""
    signal.set_wakeup_fd(-1)
    forked.keep_only(order, fault)
    os.setpgid(0, 0)
    message = b""
    while part := os.read(order, _PART_BYTES):
        message += part
    os.close(order)
    return partial(_be_driver, fault, zygote)(*marshal.loads(message)) if message else 0  # noqa: S302


def _be_driver(
    fault: int, zygote: int, path: str, fields: dict[str, Any], environment: dict[str, str], execute: bool
) -> int:
    """`fields`: those of its plan."""
    plan = DriverPlan(**fields)
    be_driver(Path(path), plan, environment, parent=zygote, fault=fault, execute=execute)


def preload(modules: Sequence[str], executor: socket.socket) -> None:
    """Import modules for all drivers. One that cannot be imported is reported, and left out."""
    for module in modules:
        executor.send(marshal.dumps({"importing": module}))
        try:
            importlib.import_module(module)
        except BaseException as exc:  # noqa: BLE001 - a module may raise anything, SystemExit too
            why = f"{type(exc).__name__}: {exc}"[:_LONGEST_WHY]
            executor.send(marshal.dumps({"importing": module, "why": why}))


def main() -> int:
    """Serve an executor."""
    if not make_room():
        sys.stderr.write("zygote: /proc does not show the room for what its children are\n")
        return 1
    executor = socket.socket(fileno=forked.take_standard_input())
    if not forked.die_with(int(sys.argv[1])):
        return 0
    forked.adopt_orphans()
    for name in _NEEDED:
        importlib.import_module(name)
    if sys.argv[2]:
        preload(sys.argv[2].split(","), executor)
    executor.send(marshal.dumps({"imported": [*imported_names()], "environment": {**os.environ}}))
    gc.collect()
    gc.freeze()  # else the first collection in a child would copy most of our memory
    return Zygote(executor).run()


if __name__ == "__main__":
    sys.exit(forked.run_program(main))
