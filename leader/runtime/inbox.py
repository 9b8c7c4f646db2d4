"""A thread with an inbox: the driver, the callback thread, and those of the services above."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from queue import Empty, SimpleQueue

import structlog

from leader.clock import Clock, boottime

_log = structlog.get_logger(__name__)

Job = Callable[[], None]


def _do_nothing() -> None:
    pass


class InboxThread:
    """A thread that does the jobs in its inbox, one at a time, in order.

    `post` and `end` never block. Any thread may call them, also in a signal handler.

    Args:
        name: Of the thread.
        due_at: When `expired` wants to be called; asked after each job, on the thread.
        expired: Called on the thread when `due_at` has come.
        at_end: The last thing called on the thread, whatever ends it.
        clock: Of `due_at`.
    """

    def __init__(
        self,
        name: str,
        *,
        due_at: Callable[[], timedelta | None] = lambda: None,
        expired: Job = _do_nothing,
        at_end: Job = _do_nothing,
        clock: Clock = boottime,
    ) -> None:
        self._due_at, self._expired, self._at_end, self._clock = due_at, expired, at_end, clock
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def here(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    @property
    def is_alive(self) -> bool:
        """Whether it runs. False before `start`, and in a forked child."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. RuntimeError if there is no room for it."""
        self._thread.start()

    def post(self, job: Job) -> None:
        """Put a job into the inbox. It is done if the thread was started and `end` was not called before."""
        self._jobs.put(job)

    def end(self) -> None:
        """End the thread after what is in the inbox now."""
        self._jobs.put(None)

    def join(self, timeout: timedelta) -> bool:
        """Wait for the end, but not on the thread itself. False if it was not reached in time."""
        if self.here or not self.is_alive:
            return True
        self._thread.join(timeout.total_seconds())
        return not self.is_alive

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                try:
                    job()
                except BaseException:  # noqa: BLE001 - top of a thread: one job's failure is not the others'
                    _log.exception("job_failed", thread=self._thread.name)
        finally:
            self._at_end()

    def _next(self) -> Job | None:
        due_at = self._due_at()
        if due_at is None:
            return self._jobs.get()
        wait_s = (due_at - self._clock()).total_seconds()
        if wait_s <= 0:
            return self._expired
        try:
            return self._jobs.get(timeout=min(wait_s, threading.TIMEOUT_MAX))
        except Empty:
            return self._expired
