"""The life of a daemon process: signals, drain, and a hard limit after which it is forced to end."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

import structlog

_log = structlog.get_logger(__name__)

FORCED = 70
"""Exit code when shutdown did not end in time."""
_ENDING = (signal.SIGTERM, signal.SIGINT)
_SETTLED_S = 1.0
"""After the start. By then a scheduler leads or stands by, and has the processor to spare."""


def run_until_signal(
    start: Callable[[], None],
    stop: Callable[[], None],
    limit: timedelta,
    *,
    warm_up: Callable[[], None] = lambda: None,
) -> int:
    """Start, wait for SIGTERM or SIGINT, stop. A second Ctrl-C, or the limit, ends the process at once.

    Main thread only. Returns the exit code: 0, also after a signal, since ending on request is no failure.
    The caller ends the process with it: the limit goes on until then, since a thread that was left behind
    keeps an interpreter from ending.

    Args:
        start: Returns once everything runs.
        stop: Called in any case, also when `start` raised.
        limit: From the signal to the end of the process.
        warm_up: What the first user would wait for; called a second after the start.
    """
    asked = threading.Event()
    force = _ForcedEnd(limit)

    def hear(number: signal.Signals) -> None:
        if not asked.is_set():
            _log.info("shutdown_asked", signal=number.name, limit_s=limit.total_seconds())
        force.begin()  # now: a start that hangs has no longer than a stop that hangs
        asked.set()

    with _signals(hear):
        try:
            start()
            if not asked.wait(_SETTLED_S):
                warm_up()
            asked.wait()
        finally:
            force.begin()
            stop()
    _log.info("shutdown_done")
    return 0


@contextmanager
def _signals(hear: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Hear signals on a pipe, on a thread `nimbus-signals`.

    A handler in Python runs only when the main thread gets to it, and the kernel may hand the signal to
    another thread while the main one sleeps; the pipe is written by the interpreter at once, whichever
    thread it was. And nothing is logged in a handler, which may have interrupted the logging.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def listen() -> None:
        interrupts = 0
        while data := os.read(reader, 1):
            if data[0] not in _ENDING:
                continue
            interrupts += data[0] == signal.SIGINT
            if interrupts > 1:  # a person who insists; supervisors repeat SIGTERM without meaning more by it
                os._exit(FORCED)
            hear(signal.Signals(data[0]))
        os.close(reader)

    listener = threading.Thread(target=listen, name="nimbus-signals", daemon=True)
    listener.start()
    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _take) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(writer)  # the listener reads the end of file
        listener.join()


def _take(_number: int, _frame: FrameType | None) -> None:
    """Instead of the default action. The listener does the work."""


class _ForcedEnd:
    """Ends the process when the limit has passed since `begin` was first called."""

    def __init__(self, limit: timedelta) -> None:
        self._timer = threading.Timer(limit.total_seconds(), _force, (limit,))
        self._timer.name = "nimbus-shutdown-limit"
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._begun = False

    def begin(self) -> None:
        """Let the limit run. Any thread; safe to repeat."""
        with self._lock:
            if not self._begun:
                self._begun = True
                self._timer.start()


def _force(limit: timedelta) -> None:
    """Say where every thread hangs, then end: the lock goes with the session."""
    _log.error("shutdown_forced", limit_s=limit.total_seconds())
    faulthandler.dump_traceback(file=sys.stderr)
    os._exit(FORCED)
