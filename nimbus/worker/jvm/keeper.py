"""Keeps one Spark JVM, and gives it to one attempt after the other. A worker's fork server forks it.

It starts the JVM, holds its standard input and is the only process with its first gateway. Its worker sends
it the socket of an attempt's runner. The runner sends `open`, and, after its driver has ended, `close`. The
keeper answers whether the JVM is as before, without anything below it; then the runner sends `over`, the
worker hears `idle`, and the keeper closes the connection to the runner, which waits for that. In any other
case the keeper kills the JVM with all its descendants, and ends: also when the runner or, while it is idle,
the worker has ended. It outlives its worker until the attempt is over.
Threads: main, `keeper-log`.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nimbus.worker.driver.environment import set_submit_arguments, settings_of
from nimbus.worker.host import forked, procfs
from nimbus.worker.host.forked import show_as
from nimbus.worker.host.identity import ProcessLock, own_process
from nimbus.worker.host.process_log import leave
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.host.remains import JVM_KEEPER_VARIABLE, jvm_keeper_tag
from nimbus.worker.jvm.plan import JvmPlan

LOCK = "lock"
LONGEST = 64 << 10
"""Largest message in bytes; properties are passed in a file in memory."""
OPEN, CLOSE, OVER = b"open", b"close", b"over"
OPENED, CLEAN = b"opened", b"clean"
SERVE, IDLE = b"serve", b"idle"
_LONGEST_WORDS = 1000


def begin(place: Path, control: int) -> int:
    """Keep a JVM, in the forked child of a fork server. `place`: its folder, with `work/tmp`."""
    os.setsid()
    forked.keep_only(control)
    forked.reset_signals()
    forked.write_to(place / "log")
    forked.adopt_orphans()
    ProcessLock(place / LOCK).take(own_process())
    with socket.socket(fileno=control) as worker:
        _, descriptors, _, _ = socket.recv_fds(worker, LONGEST, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            return leave(0)
        with os.fdopen(descriptors[0], "rb") as file:
            plan = JvmPlan.decode(file.read())
        here = place / "work" / "tmp"  # a shell takes PWD as it is, if it leads to the same folder
        environment = {
            **plan.environment,
            JVM_KEEPER_VARIABLE: jvm_keeper_tag(own_process()),
            "PWD": str(here),
        }
        environment.pop("SPARK_LOCAL_DIRS", None)  # it would override an attempt's folder
        show_as("nimbus-keeper", ("nimbus.worker.jvm", place.name), environment, plan.secret_names)
        forked.reset_modules()
        os.chdir(here)
        why = "its JVM did not start"
        try:
            why = Keeper(place, plan, worker).run()
        except Exception as exc:  # noqa: BLE001 - whatever it is, the JVM is not to be trusted
            why = f"{type(exc).__name__}: {exc}"
        finally:
            procfs.kill_all(lambda: procfs.identities(os.getpid()))
            with suppress(OSError):
                worker.send(why.encode()[:_LONGEST_WORDS])
    return leave(0)


class Keeper:
    """One JVM, until it must go."""

    def __init__(self, place: Path, plan: JvmPlan, worker: socket.socket) -> None:
        """Start the JVM: takes a second or more."""
        from nimbus.worker.jvm.java import Jvm

        self._worker = worker
        self._runner: socket.socket | None = None
        self._log = _Log()
        mark = place / "out-of-memory"
        conf = settings_of(place, plan)
        options = conf["spark.driver.extraJavaOptions"]
        conf["spark.driver.extraJavaOptions"] = f"-XX:OnOutOfMemoryError=>{mark} {options}"
        set_submit_arguments(plan.master, conf)
        self._jvm = Jvm(conf, mark, self._log.writes)
        self._log.has_begun()

    def run(self) -> str:
        """Serve attempts; return why it ends."""
        handle = os.pidfd_open(self._jvm.pid)
        while True:
            poll = select.poll()
            sockets = [end for end in (self._worker, self._runner) if end is not None and end.fileno() >= 0]
            for fd in (handle, *(end.fileno() for end in sockets)):
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            if handle in ready:
                return "its JVM ended"
            if self._runner is not None and self._runner.fileno() in ready:
                if why := self._handle_runner(self._runner):
                    return why
            elif self._worker.fileno() in ready and not self._handle_worker():
                return "its worker ended"

    def _handle_worker(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._worker, LONGEST, 1, socket.MSG_CMSG_CLOEXEC)
        if message == SERVE and descriptors:
            self._runner = socket.socket(fileno=descriptors[0])
            return True
        if self._runner is None:
            return False
        self._worker.close()
        return True

    def _handle_runner(self, runner: socket.socket) -> str:
        """Do what the runner asks; return why the JVM must go, or nothing."""
        message, descriptors, _, _ = socket.recv_fds(runner, LONGEST, 3, socket.MSG_CMSG_CLOEXEC)
        if message == OPEN:
            self._open(*descriptors)
            runner.send(OPENED)
            return ""
        if message == CLOSE:
            self._jvm.flush()
            self._log.give(None)  # Spark's threads tell on standard error that they are interrupted
            why = self._jvm.close() or self._end_others()
            if why:  # first, because the runner kills this process
                with suppress(OSError):
                    self._worker.send(why.encode()[:_LONGEST_WORDS])
            runner.send(why.encode()[:_LONGEST_WORDS] or CLEAN)
            return why
        if message != OVER:
            return "its runner ended"
        if self._worker.fileno() < 0:
            return "its worker ended"
        self._worker.send(IDLE)
        runner.close()  # only now does its attempt end, so the next one finds the JVM idle
        self._runner = None
        return ""

    def _end_others(self) -> str:
        """Kill what is left below the JVM; return why it must go, or nothing."""

        def others() -> list[ProcessId]:
            return [process for process in procfs.identities(os.getpid()) if process.pid != self._jvm.pid]

        ended = procfs.kill_all(others)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # orphans become children of this process
                pass
        return "" if ended else "a process below it could not be killed"

    def _open(self, properties: int, log: int, answer: int) -> None:
        with os.fdopen(properties, "rb") as file, os.fdopen(answer, "wb") as answers:
            self._log.give(log)
            wanted: Mapping[str, str] = json.loads(file.read())
            now_ms = str(int(time.time() * 1000))
            port, secret = self._jvm.open({**wanted, "spark.app.submitTime": now_ms})
            answers.write(json.dumps({"port": port, "secret": secret, "turn": self._jvm.attempts}).encode())


class _Log:
    """Copies what the JVM writes to the log of the attempt that has it, otherwise to the keeper's own."""

    def __init__(self) -> None:
        self._reads, self.writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reads, False)
        self._lock = threading.Lock()
        self._to = 2
        threading.Thread(target=self._copy, name="keeper-log", daemon=True).start()

    def has_begun(self) -> None:
        """The JVM has its end of the pipe."""
        os.close(self.writes)

    def give(self, to: int | None) -> None:
        """Continue in another log, after all that was written until now. It closes `to` after the next."""
        with self._lock:
            self._drain()
            if self._to > 2:
                os.close(self._to)
            self._to = 2 if to is None else to

    def _copy(self) -> None:
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        is_open = True
        while is_open:
            poll.poll()
            with self._lock:
                is_open = self._drain()

    def _drain(self) -> bool:
        """Copy what is there; False: the JVM has ended."""
        while True:
            try:
                data = os.read(self._reads, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            with suppress(OSError):  # a full disk: the JVM must not wait for space
                while data:
                    data = data[os.write(self._to, data) :]
