"""Starts collections of garbage when they are due. Thread `nimbus-collector`.

In the bucket only while this scheduler leads, and first soon after it began to lead, because the time of the
former leader's last collection is unknown. An extra one does no harm: records in the bucket tell the grace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from nimbus.ports import Clock

_log = structlog.get_logger(__name__)

FIRST_DELAY = timedelta(minutes=5)
"""Delay of a new leader's first collection, and of a new process's first check of its disk."""
ASK_EVERY_S = 5.0
"""Pause between two checks whether we lead and a collection is due."""

Collect = Callable[[threading.Event], None]
"""One collection. It ends soon after the event is set."""


@dataclass(slots=True)
class _Task:
    collect: Collect
    interval_s: float
    may: Callable[[], bool]
    due_s: float | None = None
    """None while the collection is not allowed."""


class Collector:
    """Runs collections when they are due, one at a time."""

    def __init__(self, clock: Clock, first_delay: timedelta = FIRST_DELAY) -> None:
        self._clock, self._first_delay_s = clock, first_delay.total_seconds()
        self._tasks: list[_Task] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nimbus-collector", daemon=True)

    def add(self, collect: Collect, interval: timedelta, may: Callable[[], bool] = lambda: True) -> None:
        """Add a collection at even intervals, while `may` returns True. Call it before `start`."""
        self._tasks.append(_Task(collect, interval.total_seconds(), may))

    def start(self) -> None:
        """Start the thread, if there is any collection."""
        if self._tasks:
            self._thread.start()

    def stop_soon(self) -> None:
        """Begin no more collections; one under way ends at its next step. Returns at once."""
        self._stopping.set()

    def stop(self, timeout: timedelta) -> None:
        """End the thread. After `timeout`, the daemon thread ends with the process."""
        self.stop_soon()
        if self._thread.ident is not None:
            self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        while not self._stopping.is_set():
            for task in self._tasks:
                try:
                    self._collect_if_due(task)
                except Exception:  # noqa: BLE001 - the top of the thread: the next collection may be luckier
                    _log.exception("collection_failed")
            self._stopping.wait(ASK_EVERY_S)

    def _collect_if_due(self, task: _Task) -> None:
        if not task.may():
            task.due_s = None
            return
        now_s = self._clock.elapsed_s()
        if task.due_s is None:
            task.due_s = now_s + min(self._first_delay_s, task.interval_s)
        if now_s < task.due_s or self._stopping.is_set():
            return
        task.due_s = now_s + task.interval_s
        task.collect(self._stopping)
