"""A thread that does what is put into its inbox, one thing at a time, in order.

For parts that must not block those who tell them something: kazoo's threads, the election's thread, callers
that hold locks of their own. They enqueue; the work happens here, with no lock of ours held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from queue import Empty, SimpleQueue

import structlog

from leader.clock import Clock, boottime

_log = structlog.get_logger(__name__)

Job = Callable[[], None]


class InboxThread:
    """See the module. `post` and `end` may be called by any thread and never block.

    Args:
        name: Of the thread.
        due_at: When `expired` wants to be called; asked after each job, on the thread.
        expired: Called on the thread when `due_at` has come.
        clock: Of `due_at`.
    """

    def __init__(
        self,
        name: str,
        *,
        due_at: Callable[[], timedelta | None] = lambda: None,
        expired: Job = lambda: None,
        clock: Clock = boottime,
    ) -> None:
        self._due_at, self._expired, self._clock = due_at, expired, clock
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def here(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def post(self, job: Job) -> None:
        """Put a job into the inbox. It is done if the thread was started and `end` was not asked before."""
        self._jobs.put(job)

    def end(self) -> None:
        """End the thread after what is in the inbox now."""
        self._jobs.put(None)

    def join(self, timeout: timedelta) -> bool:
        """Wait for the end, but not on the thread itself. False if it was not reached in time."""
        if self.here or not self._thread.is_alive():
            return True
        self._thread.join(timeout.total_seconds())
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except BaseException:  # noqa: BLE001 - top of a thread: one job's failure is not the others'
                _log.exception("job_failed", thread=self._thread.name)

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
