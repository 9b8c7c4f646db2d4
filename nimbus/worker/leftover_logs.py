"""Stores the logs of attempts whose runner or executor is dead. Thread `worker-logs`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import structlog

from nimbus.domain.ids import AttemptId
from nimbus.ports import LogArchive
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.log_upload import store_rest
from nimbus.worker.loop import Action, Loop
from nimbus.worker.retry import pauses

_log = structlog.get_logger(__name__)


class LeftoverLogs:
    """Stores one log after the other; retries each until storage accepts it. Worker thread."""

    def __init__(self, logs: LogArchive | None, loop: Loop) -> None:
        """If `logs` is None, no log is stored."""
        self._logs, self._loop = logs, loop
        self._unstored: set[AttemptId] = set()
        self.error = ""
        """Why storage did not accept the last log; empty: it did."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="worker-logs")

    @property
    def count(self) -> int:
        """The number of logs that are not stored yet. Any thread."""
        return len(self._unstored)

    def store(self, folder: AttemptFolder, then: Action) -> None:
        """Store the rest of an attempt's log, then run `then` on the worker's thread."""
        self._store(folder, then, pauses(1.0, 30.0))

    def _store(self, folder: AttemptFolder, then: Action, waits: Iterator[float]) -> None:
        if self._logs is None or not folder.log_size():
            self._unstored.discard(folder.attempt)
            then()
            return
        self._unstored.add(folder.attempt)
        storing = self._pool.submit(store_rest, folder, self._logs)
        storing.add_done_callback(
            lambda done: self._loop.post(partial(self._stored, folder, then, done, waits))
        )

    def _stored(
        self, folder: AttemptFolder, then: Action, done: Future[None], waits: Iterator[float]
    ) -> None:
        error = None if done.cancelled() else done.exception()
        self.error = "" if error is None else str(error)
        if error is not None:
            _log.warning("log_not_stored", attempt=str(folder.attempt), error=str(error)[:300])
            self._loop.after(next(waits), partial(self._store, folder, then, waits))
        elif not done.cancelled():
            self._unstored.discard(folder.attempt)
            then()

    def close(self) -> None:
        """End the thread after its current log; the other logs are stored after the next start."""
        self._pool.shutdown(wait=False, cancel_futures=True)
