"""When garbage is collected. Thread `nimbus-collector`.

On this disk: at even intervals. In the bucket: only while this scheduler leads; soon after it began to, since
nobody knows when the former leader last did, and then at even intervals. An extra collection does no harm:
what counts is the grace, which the bucket's own records tell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from nimbus.ports import Clock

_log = structlog.get_logger(__name__)

SETTLE = timedelta(minutes=5)
"""Before a new leader's first collection, and a new process's first look at its disk: let them take over."""
ASK_EVERY_S = 5.0
"""How often to look whether we lead and something is due."""

Collect = Callable[[threading.Event], None]
"""One collection; ends soon when the event is set."""


@dataclass(slots=True)
class _Task:
    collect: Collect
    interval_s: float
    may: Callable[[], bool]
    due_s: float | None = None
    """None while it may not be done."""


class Collector:
    """Runs collections when they are due, one at a time.

    Args:
        clock: For intervals.
        settle: See `SETTLE`; cut to the interval.
    """

    def __init__(self, clock: Clock, settle: timedelta = SETTLE) -> None:
        self._clock, self._settle_s = clock, settle.total_seconds()
        self._tasks: list[_Task] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nimbus-collector", daemon=True)

    def add(self, collect: Collect, interval: timedelta, may: Callable[[], bool] = lambda: True) -> None:
        """Collect at even intervals, while `may` says so. Before `start`."""
        self._tasks.append(_Task(collect, interval.total_seconds(), may))

    def start(self) -> None:
        """Start the thread, if there is anything to do."""
        if self._tasks:
            self._thread.start()

    def stop_soon(self) -> None:
        """Begin nothing more, and let what is under way end at its next step. Returns at once."""
        self._stopping.set()

    def stop(self, timeout: timedelta) -> None:
        """End the thread. What takes longer ends with the process."""
        self.stop_soon()
        if self._thread.ident is not None:
            self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        while not self._stopping.is_set():
            for task in self._tasks:
                self._look(task)
            self._stopping.wait(ASK_EVERY_S)

    def _look(self, task: _Task) -> None:
        if not task.may():
            task.due_s = None
            return
        now_s = self._clock.elapsed_s()
        if task.due_s is None:
            task.due_s = now_s + min(self._settle_s, task.interval_s)
        if now_s < task.due_s or self._stopping.is_set():
            return
        task.due_s = now_s + task.interval_s
        try:
            task.collect(self._stopping)
        except Exception:  # noqa: BLE001 - the top of the thread: the next collection may be luckier
            _log.exception("collection_failed")
