"""Renders and checks templates in a helper process with limits of processor time and memory.

The process starts with the first question and answers all later ones. It gets no credentials. If a template
exceeds the limits, TemplateError is raised, and the next question starts another process. A process that ends
for another reason, such as a signal from outside, is replaced once. If the second one ends, too,
TemplateHelperError is raised, and a later try may succeed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any

import structlog

from nimbus.templates.answers import TemplateHelperError, short
from nimbus.templates.client import Templates
from nimbus.templates.wire import receive_frame, send_frame

_log = structlog.get_logger(__name__)

CPU_S = 1.0
"""Processor time for a question, plus the time for its length."""
CPU_S_PER_CHARACTER = 1e-4
"""Compiling takes about 15 microseconds for each character of a template."""
MOST_CPU_S = 30.0
ANSWER_S = 90.0
"""Limit of elapsed time for an answer. A slower process is stopped or hangs, and is killed."""
END_S = 5.0
"""Limit of the time in which a killed process, or one that closed its socket, ends."""

_OWN_FAULT = frozenset({signal.SIGPROF, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT})
"""Signals that end a process which computes for too long, or gets no more memory or stack."""
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
"""Environment variables that Python may need to start."""


class TemplateHelper(Templates):
    """Templates, evaluated in a helper process. One thread asks; any thread may close.

    Args:
        cpu_s: Processor time for a question, in seconds.
    """

    def __init__(self, *, cpu_s: float = CPU_S) -> None:
        self._cpu_s = cpu_s
        self._asking = threading.Lock()
        self._closed = False
        self._process: _Process | None = None

    def __enter__(self) -> TemplateHelper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the helper; None while there is none."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the process. Questions under way and all later ones raise TemplateHelperError."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._asking:  # this is short, because the process is dead
            self._drop()

    def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        characters = sum(map(len, question["texts"]))
        cpu_s = min(self._cpu_s + characters * CPU_S_PER_CHARACTER, MOST_CPU_S)
        with self._asking:
            try:
                return self._asked({**question, "cpu_s": cpu_s})
            except TemplateHelperError as exc:
                if self._closed:
                    raise
                _log.warning("template_helper_replaced", error=str(exc))
            return self._asked({**question, "cpu_s": cpu_s})

    def _asked(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._process is None and not self._closed:
            self._process = _Process()
        if self._process is None or self._closed:  # checked after the start: `close` kills only what it sees
            raise TemplateHelperError("the template helper is closed")
        try:
            return self._process.ask(question)
        finally:
            if not self._process.answers:
                self._drop()

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()


class _Process:
    """One helper process, from start to end."""

    def __init__(self) -> None:
        """Start the process, without waiting until it is ready. Raises TemplateHelperError."""
        self._ready = self.answers = False
        with ExitStack() as opened:
            try:
                place = os.memfd_create("nimbus-template-place")
                opened.callback(os.close, place)
                ours, theirs = socket.socketpair()
                opened.enter_context(ours)
                with theirs:
                    self._process = _started(theirs, place)
            except OSError as exc:
                raise TemplateHelperError(f"the template helper cannot be started: {exc}") from exc
            self._place, self._connection = place, ours
            self._files = opened.pop_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer, or the fault that ended the process. Raises TemplateHelperError."""
        os.pwrite(self._place, bytes(4), 0)
        self.answers = False
        until_s = time.monotonic() + ANSWER_S
        try:
            if not self._ready:
                self._ready = receive_frame(self._connection, until_s) is not None
            if self._ready:
                send_frame(self._connection, question, until_s)
                answer = receive_frame(self._connection, until_s)
                if answer is not None:
                    self.answers = True
                    return dict(answer)
        except (OSError, ValueError) as exc:
            raise TemplateHelperError(f"the template helper (pid {self.pid}) gives no answer: {exc}") from exc
        return self._ended(question)

    def _ended(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        status = self._process.returncode
        if not self._ready or status is None or -status not in _OWN_FAULT:
            raise TemplateHelperError(f"the template helper (pid {self.pid}) ended with status {status}")
        at = int.from_bytes(os.pread(self._place, 4, 0), "big")
        what = (
            f"takes more than {question['cpu_s']:.1f} s of processor time"
            if -status == signal.SIGPROF
            else f"ended the template helper ({signal.Signals(-status).name})"
        )
        return {"error": f"template {short(question['texts'][at])} {what}", "at": at}

    def kill(self) -> None:
        """Kill the process. From any thread."""
        self._process.kill()

    def close(self) -> None:
        """End the process and free its files."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._files.close()


def _started(connection: socket.socket, place: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "nimbus.templates", str(place)],
        stdin=connection.fileno(),
        stdout=subprocess.DEVNULL,
        pass_fds=(place,),
        cwd="/",
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        start_new_session=True,  # Ctrl-C does not reach it: it ends with us
    )
