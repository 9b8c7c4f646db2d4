"""Measures a runner's attempt against its limits while its driver runs.

It has its own thread, because walking a folder may take long and the runner's loop must not wait. The thread
only records that a limit is exceeded and wakes the runner's loop, which decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from nimbus.worker.limited_log import LimitedLog
from nimbus.worker.limits import LimitWatch

_TICK_S = 0.5
"""Interval of the thread, and how long a log may grow beyond its limit."""

_log = structlog.get_logger(__name__)


class LimitThread:
    """Thread `runner-limits`."""

    def __init__(self, watch: LimitWatch, log: LimitedLog, ring: Callable[[], None]) -> None:
        self._watch, self._attempt_log, self._ring = watch, log, ring
        self.exceeded: str | None = None
        """Why the attempt must be ended."""
        self._frees_log = True
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runner-limits", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, deadline_s: float = 5.0) -> None:
        """End the thread, after the attempt's processes have ended. A thread that hangs is abandoned."""
        self._leaving.set()
        self._thread.join(deadline_s)
        if not self._thread.is_alive():
            self._free_log()

    def _run(self) -> None:
        while not self._leaving.wait(_TICK_S):
            self._free_log()
            if self.exceeded is not None:
                continue
            try:
                self.exceeded = self._watch.check(time.monotonic())
            except Exception:  # noqa: BLE001 - top of the thread: a defect must not cost the attempt its log's limit
                _log.exception("limits_not_checked")
            if self.exceeded is not None:
                self._ring()

    def _free_log(self) -> None:
        if not self._frees_log:
            return
        try:
            self._attempt_log.free_middle()
        except OSError as exc:
            self._frees_log = False
            _log.warning("log_not_limited", error=str(exc))
