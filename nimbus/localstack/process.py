"""One child process of the local stack: start, wait until it is ready, stop, kill, pause.

A subclass defines the command and the check for readiness. Not thread-safe; main thread only, because the
child dies with the thread that started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from nimbus import die_with_parent
from nimbus.localstack.errors import ProcessStartError, ProcessStateError

Report = Callable[[str], None]

_POLL_S = 0.03
_REPORT_EVERY_S = 2.0


def silent(_line: str) -> None:
    """Report nothing."""


class ManagedProcess(ABC):
    """A child process with a log file and a check for readiness.

    A restart appends to the log. `environment` is added to that of this process.
    """

    def __init__(
        self,
        *,
        name: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        start_deadline: timedelta = timedelta(seconds=60),
    ) -> None:
        self.name, self.log = name, log
        self._environment = dict(environment or {})
        self._start_deadline = start_deadline
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Prepare its files and return its command line."""

    @abstractmethod
    def _answers(self) -> bool:
        """Check once, briefly, whether it is ready. A refused connection means False, not an error."""

    @property
    def running(self) -> bool:
        """True if it was started and has not ended; also if it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def wanted(self) -> bool:
        """True if it was started, and not stopped or killed by this object, so it should run."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Process id of the running child. Raises ProcessStateError: it does not run."""
        return self._living().pid

    def start(self, report: Report = silent) -> None:
        """Start it and wait until it is ready.

        Raises:
            ProcessStartError: it ended or did not answer in time; the message shows the end of its log.
            ProcessStateError: it runs already, or this is not the main thread.
            LocalStackError: something it needs is missing or its port is busy.
        """
        self.spawn()
        try:
            self.wait_ready(report=report)
        except BaseException:  # Ctrl-C too: a child that nobody waits for must not stay
            self.kill()
            raise

    def spawn(self) -> None:
        """Start it without waiting until it is ready. See `start` for the errors."""
        if self.running:
            raise ProcessStateError(f"{self.name} already runs (process {self.pid}); stop it first")
        if threading.current_thread() is not threading.main_thread():
            raise ProcessStateError(
                f"{self.name} was started from thread {threading.current_thread().name!r} and would be "
                "killed when that thread ends; start it from the main thread"
            )
        command = [str(word) for word in self._command()]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
                start_new_session=True,  # only we receive Ctrl-C, and stop the children in order
            )

    def wait_ready(self, deadline: timedelta | None = None, report: Report = silent) -> None:
        """Wait until it is ready.

        Raises:
            ProcessStartError: it ended or did not answer within `deadline`, or the one set at construction.
        """
        if self._process is None:
            raise ProcessStateError(f"{self.name} does not run; start it first")
        process, limit = self._process, deadline or self._start_deadline
        began = reported = time.monotonic()
        while True:
            try:
                status = process.wait(timeout=_POLL_S)
            except subprocess.TimeoutExpired:
                pass
            else:
                raise self._failed(f"ended with exit status {status} before it was ready")
            if self._answers():
                return
            now = time.monotonic()
            if now - began > limit.total_seconds():
                raise self._failed(f"did not answer within {limit.total_seconds():.0f} s")
            if now - reported > _REPORT_EVERY_S:
                reported = now
                report(f"{self.name}: still starting after {now - began:.0f} s")

    def terminate(self) -> None:
        """Send SIGTERM without waiting; a paused process is resumed first."""
        self.send_signal(signal.SIGTERM)
        self.send_signal(signal.SIGCONT)

    def stop(self, deadline: timedelta = timedelta(seconds=10)) -> None:
        """End it: SIGTERM, and SIGKILL if it has not ended within `deadline`. Safe to repeat."""
        if self._process is None:
            return
        self.terminate()
        try:
            self._process.wait(timeout=max(0.0, deadline.total_seconds()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL and wait until it has ended. Safe to repeat."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Send SIGSTOP and wait until it is stopped: connections stay open without responses."""
        process = self._living()
        process.send_signal(signal.SIGSTOP)
        # On a busy machine its threads may run on for a while after the signal. WNOWAIT leaves its state in
        # place, so that `Popen` finds it if the process has died instead.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continue it after `pause`."""
        self._living().send_signal(signal.SIGCONT)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to it, not to its children. Does nothing if it has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its log, for a message."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 200 * lines))
                text = log.read().decode(errors="replace")
        except OSError as exc:
            return f"(cannot be read: {exc.strerror})"
        return "\n".join(text.splitlines()[-lines:]) or "(empty)"

    def _living(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise ProcessStateError(f"{self.name} does not run; start it first")
        return self._process

    def _failed(self, happened: str) -> ProcessStartError:
        return ProcessStartError(name=self.name, happened=happened, log=self.log, tail=self.log_tail())
