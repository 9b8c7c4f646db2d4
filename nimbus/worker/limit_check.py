"""Measures an attempt against its limits, and keeps its log within its limit."""

from __future__ import annotations

import time

import structlog

from nimbus.worker.limited_log import LimitedLog
from nimbus.worker.limits import LimitWatch

_log = structlog.get_logger(__name__)


class LimitCheck:
    """`measure` may hang, because it walks folders: another thread may call it than the other methods."""

    def __init__(self, watch: LimitWatch, log: LimitedLog) -> None:
        self._watch, self._attempt_log = watch, log
        self.measures = watch.is_needed
        self._frees_log = True

    def check(self) -> str | None:
        """Free the log's middle, and `measure`."""
        self.free_log()
        return self.measure()

    def measure(self) -> str | None:
        """Measure what is due; return why the attempt must be ended, or None."""
        try:
            return self._watch.check(time.monotonic())
        except Exception:  # noqa: BLE001 - a defect must not cost the attempt its log's limit
            _log.exception("limits_not_checked")
            return None

    def free_log(self) -> None:
        """Free the log's middle."""
        if not self._frees_log:
            return
        try:
            self._attempt_log.free_middle()
        except OSError as exc:
            self._frees_log = False
            _log.warning("log_not_limited", error=str(exc))
