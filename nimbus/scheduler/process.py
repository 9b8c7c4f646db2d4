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


def run_until_signal(start: Callable[[], None], stop: Callable[[], None], limit: timedelta) -> int:
    """Start, wait for SIGTERM or SIGINT, stop. A second Ctrl-C, or the limit, ends the process at once.

    Main thread only. Returns the exit code: 0, also after a signal, since ending on request is no failure.
    """
    with _signals() as next_signal:
        try:
            start()
            number = next_signal()
            _log.info("shutdown_asked", signal=number.name, limit_s=limit.total_seconds())
        finally:
            force = threading.Timer(limit.total_seconds(), _force, (limit,))
            force.name = "nimbus-shutdown-limit"
            force.daemon = True
            force.start()
            stop()
            force.cancel()
    _log.info("shutdown_done")
    return 0


@contextmanager
def _signals() -> Iterator[Callable[[], signal.Signals]]:
    """Wait for signals on a pipe.

    A handler in Python runs only when the main thread gets to it, and the kernel may hand the signal to
    another thread while the main one sleeps; the pipe is written by the interpreter at once, whichever
    thread it was. And nothing is logged in a handler, which may have interrupted the logging.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    interrupts = 0

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if interrupts > 1:  # a person who insists; supervisors repeat SIGTERM without meaning more by it
            os._exit(FORCED)

    def next_signal() -> signal.Signals:
        while (number := os.read(reader, 1)[0]) not in _ENDING:
            continue
        return signal.Signals(number)

    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, on_signal) for number in _ENDING}
    try:
        yield next_signal
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(reader)
        os.close(writer)


def _force(limit: timedelta) -> None:
    """Say where every thread hangs, then end: the lock goes with the session."""
    _log.error("shutdown_forced", limit_s=limit.total_seconds())
    faulthandler.dump_traceback(file=sys.stderr)
    os._exit(FORCED)
