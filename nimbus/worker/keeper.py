"""Looks after attempts that were launched: notices a runner's end, and says what it could not say itself.

Worker thread; leftover logs are stored by a thread `worker-logs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from functools import partial

import structlog

from nimbus.domain.ids import AttemptId
from nimbus.domain.workers import Assignment
from nimbus.ports import AttemptBoard, Clock, LogArchive
from nimbus.records import UnreadableRecordError
from nimbus.worker import procfs, settlement
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.log_upload import store_rest
from nimbus.worker.loop import Action, Loop
from nimbus.worker.procfs import ProcessId
from nimbus.worker.retry import pauses
from nimbus.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)


class Phase(Enum):
    """Where a worker is with an attempt."""

    PREPARING = "preparing"
    RUNNING = "running"
    SETTLING = "settling"
    DONE = "done"


class Keeper:
    """What a worker knows of its attempts, and how it brings them to an end."""

    def __init__(
        self,
        *,
        settings: WorkerSettings,
        board: AttemptBoard,
        logs: LogArchive | None,
        clock: Clock,
        loop: Loop,
        do: Callable[[Action], None],
    ) -> None:
        """`do` runs an action now, and again later if ZooKeeper or the disk did not allow it."""
        self._settings, self._board, self._logs, self._clock = settings, board, logs, clock
        self._loop, self._do = loop, do
        self._log_pool = ThreadPoolExecutor(1, thread_name_prefix="worker-logs")
        self.phases: dict[str, Phase] = {}

    @property
    def unended(self) -> frozenset[str]:
        """Attempts that are being prepared, run, or are settled."""
        return frozenset(attempt for attempt, phase in self.phases.items() if phase is not Phase.DONE)

    def close(self) -> None:
        """End the pool; a log that is being stored goes on by itself, the rest waits for the next start."""
        self._log_pool.shutdown(wait=False, cancel_futures=True)

    def folder(self, attempt: str) -> AttemptFolder:
        """Of an attempt of ours, there or not."""
        return AttemptFolder.of(self._settings.work_dir, AttemptId.parse(attempt))

    def is_unstarted(self, folder: AttemptFolder) -> bool:
        """An earlier worker made the folder, and came no further. Starting anew is safe: CLAIM decides."""
        if folder.is_delivered or folder.exit_record() is not None or folder.is_locked():
            return False
        return self._board.read(folder.attempt).claim is None

    def sweep(self) -> None:
        """Pick up what an earlier worker left: records to deliver, runners to watch, runners that died."""
        for folder in AttemptFolder.all_in(self._settings.work_dir):
            try:
                left = not folder.is_delivered and (
                    folder.exit_record() is not None or folder.is_locked() or folder.claim() is not None
                )
            except (OSError, UnreadableRecordError) as exc:
                _log.warning("folder_passed_over", folder=str(folder.path), error=str(exc)[:300])
                continue
            if left:
                self.phases[str(folder.attempt)] = Phase.SETTLING
                self._do(partial(self.settle, folder))

    def clean(self, ordered: Mapping[str, Assignment]) -> None:
        """Remove folders that nobody needs any more: delivered long ago, or made long ago and never used."""
        keep_s = self._settings.keep_attempts.total_seconds()
        now_s = self._clock.now().timestamp()
        for folder in AttemptFolder.all_in(self._settings.work_dir):
            attempt = str(folder.attempt)
            busy = attempt in ordered or self.phases.get(attempt, Phase.DONE) is not Phase.DONE
            if not busy and folder.age_s(now_s) > keep_s and not folder.is_locked():
                folder.remove()

    def watch(self, folder: AttemptFolder, runner: ProcessId | None) -> None:
        """Settle the attempt as soon as its runner ends (None: it has)."""
        self.phases[str(folder.attempt)] = Phase.RUNNING
        settle = partial(self._do, partial(self.settle, folder))
        handle = procfs.open_handle(runner) if runner is not None else None
        if handle is not None:
            self._loop.when_ended(handle, settle)
        else:
            self._loop.after(0.05, settle)

    def settle(self, folder: AttemptFolder) -> None:
        """Bring an attempt to its end, unless its runner does."""
        self.phases[str(folder.attempt)] = Phase.SETTLING
        if folder.is_delivered:
            self.phases[str(folder.attempt)] = Phase.DONE
            return
        if folder.is_locked():
            self.watch(folder, folder.last_runner())
            return
        record = folder.exit_record() or settlement.ending_of_the_dead(
            folder, self._board, self._settings.id, self._clock.now(), self._settings.connect
        )
        if record is None:
            self._done(folder, "another one has it, or nobody waits for it any more")
            return
        why = settlement.put_end(self._board, record)
        _log.info("attempt_settled", attempt=record.attempt, outcome=record.outcome.value, why=why)
        folder.empty_scratch()
        self._store_log(folder, why, pauses(1.0, 30.0))

    def _store_log(self, folder: AttemptFolder, why: str, waits: Iterator[float]) -> None:
        if self._logs is None:
            self._done(folder, why)
            return
        future = self._log_pool.submit(store_rest, folder, self._logs)
        future.add_done_callback(
            lambda done: self._loop.post(partial(self._stored, folder, why, done, waits))
        )

    def _stored(self, folder: AttemptFolder, why: str, done: Future[None], waits: Iterator[float]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            _log.warning("log_not_stored", attempt=str(folder.attempt), error=str(error)[:300])
            self._loop.after(next(waits), partial(self._store_log, folder, why, waits))
        elif not done.cancelled():
            self._done(folder, why)

    def _done(self, folder: AttemptFolder, why: str) -> None:
        self.phases[str(folder.attempt)] = Phase.DONE
        self._do(partial(folder.mark_delivered, why))
