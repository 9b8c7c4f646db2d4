"""The life of a daemon process: signals, drain, and a hard limit after which it is forced to end."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from types import FrameType

import structlog

_log = structlog.get_logger(__name__)

FORCED = 70
"""Exit code when shutdown did not end in time."""


def run_until_signal(start: Callable[[], None], stop: Callable[[], None], limit: timedelta) -> int:
    """Start, wait for SIGTERM or SIGINT, stop. A second Ctrl-C, or the limit, ends the process at once.

    Main thread only. Returns the exit code: 0, also after a signal, since ending on request is no failure.
    """
    asked = threading.Event()
    interrupts = 0

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if interrupts > 1:  # a person who insists; supervisors repeat SIGTERM without meaning more by it
            os._exit(FORCED)
        if asked.is_set():
            return
        _log.info("shutdown_asked", signal=signal.Signals(number).name, limit_s=limit.total_seconds())
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        start()
        asked.wait()
    finally:
        force = threading.Timer(limit.total_seconds(), _force, (limit,))
        force.name = "nimbus-shutdown-limit"
        force.daemon = True
        force.start()
        stop()
        force.cancel()
    _log.info("shutdown_done")
    return 0


def _force(limit: timedelta) -> None:
    """Say where every thread hangs, then end: the lock goes with the session."""
    _log.error("shutdown_forced", limit_s=limit.total_seconds())
    faulthandler.dump_traceback(file=sys.stderr)
    os._exit(FORCED)
