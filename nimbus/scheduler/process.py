"""The life of a daemon process: signals, shutdown, and a hard limit after which the process is killed."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType

import structlog

_log = structlog.get_logger(__name__)

FORCED = 70
"""Exit code when shutdown did not end in time, or a thread failed."""
_ENDING = (signal.SIGTERM, signal.SIGINT)
_WARM_UP_AFTER_S = 1.0
"""Pause after the start before `warm_up`. A scheduler has taken its role by then, and is idle."""


def run_until_signal(
    start: Callable[[], None],
    stop: Callable[[], None],
    limit: timedelta,
    *,
    warm_up: Callable[[], None] = lambda: None,
) -> int:
    """Start, wait for SIGTERM or SIGINT, stop. A second Ctrl-C, or the limit, ends the process at once.

    Main thread only. Returns the exit code: 0, also after a signal, because a requested end is no failure. An
    exception that ends a thread has the effect of a signal, and the code is 70: a supervisor starts a process
    again, not a thread. The caller ends the process with the code. The limit applies until then, because a
    remaining thread can keep an interpreter from ending.

    `stop` is always called, also when `start` raised. `limit` is the longest time from the signal to the end
    of the process. `warm_up`, work that the first user would wait for, is called a second after the start.
    """
    asked, failed = threading.Event(), threading.Event()
    force, supervisor = _ForcedEnd(limit), _Supervisor()

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else "unknown"
        _log.error("thread_failed", thread=name, exc_info=args.exc_value)
        if not asked.is_set():
            failed.set()
        force.begin()
        asked.set()

    def on_signal(number: signal.Signals) -> None:
        if not asked.is_set():
            _log.info("shutdown_asked", signal=number.name, limit_s=limit.total_seconds())
        force.begin()  # at once, so that the limit includes a start that hangs
        asked.set()

    with _signals(on_signal):
        threading.excepthook = thread_failed
        try:
            start()
            supervisor.notify("READY=1")
            if not asked.wait(_WARM_UP_AFTER_S):
                warm_up()
            while not asked.wait(supervisor.interval_s):
                supervisor.notify("WATCHDOG=1")
        finally:
            force.begin()
            supervisor.notify("STOPPING=1")
            stop()
    _log.info("shutdown_done")
    return FORCED if failed.is_set() else 0


def shutdown_step(name: str, step: Callable[[], object]) -> None:
    """Stop one part. A failure is logged, not raised: it must not prevent that others are stopped."""
    try:
        step()
    except Exception:  # noqa: BLE001 - see above
        _log.exception("shutdown_step_failed", step=name)
    else:
        _log.info("shutdown_step", step=name)


@contextmanager
def _signals(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Receive signals through a pipe, on the thread `nimbus-signals`.

    Python runs a handler only in the main thread, and the kernel may deliver the signal to another thread
    while the main one sleeps. The interpreter writes to the pipe at once, whatever the thread. Also, a
    handler must not log, because it may have interrupted logging.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def listen() -> None:
        interrupts = 0
        while data := os.read(reader, 1):
            if data[0] not in _ENDING:
                continue
            interrupts += data[0] == signal.SIGINT
            if interrupts > 1:  # a second Ctrl-C means "now"; supervisors repeat SIGTERM without that meaning
                os._exit(FORCED)
            handle(signal.Signals(data[0]))
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
    """Replaces the default action. The listener thread does the work."""


class _Supervisor:
    """Notifies systemd that the daemon is ready, alive, or stopping; without systemd it does nothing.

    The sign of life comes from the main thread. It proves that the interpreter runs; a thread that fails ends
    the process anyway. Main thread only. See sd_notify(3), sd_watchdog_enabled(3).
    """

    def __init__(self) -> None:
        address = os.environ.pop("NOTIFY_SOCKET", "")  # not for the processes that the daemon starts
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        for_us = os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        within_us = os.environ.get("WATCHDOG_USEC", "") if self._address and for_us else ""
        self.interval_s = int(within_us) / 2e6 if within_us.isdecimal() and int(within_us) else None
        """Time between two signs of life, in seconds; None: systemd does not wait for any."""

    def notify(self, state: str) -> None:
        """Send one state. A supervisor that does not take it is no reason to end."""
        if self._address:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(OSError):
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)


class _ForcedEnd:
    """Ends the process when the limit has passed since `begin` was first called."""

    def __init__(self, limit: timedelta) -> None:
        self._timer = threading.Timer(limit.total_seconds(), _force, (limit,))
        self._timer.name = "nimbus-shutdown-limit"
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._begun = False

    def begin(self) -> None:
        """Start the limit. Any thread; safe to repeat."""
        with self._lock:
            if not self._begun:
                self._begun = True
                self._timer.start()


def _force(limit: timedelta) -> None:
    """Dump the stacks of all threads, then exit. The lock is released with the session."""
    _log.error("shutdown_forced", limit_s=limit.total_seconds())
    faulthandler.dump_traceback(file=sys.stderr)
    os._exit(FORCED)
