"""Runs each attempt in its own processes: a runner with its driver. Worker thread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import structlog

from nimbus.domain.ids import AttemptId
from nimbus.domain.slots import Claim, End
from nimbus.domain.workers import Assignment
from nimbus.records import UnreadableRecordError
from nimbus.worker import dead_runner, procfs, settlement
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.context import Phase, WorkerContext
from nimbus.worker.executor import Sight
from nimbus.worker.identity import host_id
from nimbus.worker.launcher import Launcher, LaunchFailedError
from nimbus.worker.log_upload import LeftoverLogs
from nimbus.worker.procfs import ProcessId
from nimbus.worker.settings import RunnerPlan, RunnerStartup
from nimbus.worker.short_path import drop_dangling
from nimbus.worker.tags import attempt_tag

_log = structlog.get_logger(__name__)


class ProcessExecutor:
    """See `nimbus.worker.executor.Executor`. Settles the attempts of runners that died without a record."""

    def __init__(
        self, context: WorkerContext, logs: LeftoverLogs, *, launcher: Launcher, connect_launcher: Launcher
    ) -> None:
        """`connect_launcher` launches tasks in `mode: connect`."""
        self._context, self._logs = context, logs
        self._launcher, self._connect_launcher = launcher, connect_launcher

    def close(self) -> None:
        """See `Executor.close`. Runners continue without it."""

    def folder(self, attempt: str) -> AttemptFolder:
        """The folder of one of this worker's attempts; it may not exist."""
        return AttemptFolder.of(self._context.settings.work_dir, AttemptId.parse(attempt))

    def sweep(self) -> None:
        """See `Executor.sweep`."""
        drop_dangling()
        for folder in AttemptFolder.all_in(self._context.settings.work_dir):
            try:
                left = not folder.is_delivered and (
                    folder.exit_record() is not None or folder.is_locked() or folder.claim() is not None
                )
            except (OSError, UnreadableRecordError) as exc:
                _log.warning("folder_passed_over", folder=str(folder.path), error=str(exc)[:300])
                continue
            if left:
                self._context.phases[str(folder.attempt)] = Phase.SETTLING
                self._context.do(partial(self.settle, folder))

    def clean(self, ordered: Mapping[str, Assignment]) -> None:
        """Remove old folders: delivered long ago, or created long ago and never used."""
        keep_s = self._context.settings.keep_attempts.total_seconds()
        now_s = self._context.clock.now().timestamp()
        for folder in AttemptFolder.all_in(self._context.settings.work_dir):
            attempt = str(folder.attempt)
            busy = attempt in ordered or self._context.phases.get(attempt, Phase.DONE) is not Phase.DONE
            if not busy and folder.age_s(now_s) > keep_s and not folder.is_locked():
                folder.remove()

    def was_launched(self, attempt: str) -> bool:
        """True if this or an earlier worker launched the attempt.

        An attempt with only a folder counts as not launched: CLAIM makes a second start safe.
        """
        folder = self.folder(attempt)
        if not folder.exists:
            return False
        if folder.is_delivered or folder.exit_record() is not None or folder.is_locked():
            return True
        return self._context.board.read(folder.attempt).claim is not None

    def launch(self, order: Assignment, plan: RunnerPlan) -> None:
        """See `Executor.launch`."""
        folder = self.folder(order.attempt)
        launcher = self._launcher if plan.connect is None else self._connect_launcher
        try:
            folder.create(order)
            runner = launcher(folder, RunnerStartup(plan=plan, connections=self._context.connections))
        except (LaunchFailedError, OSError) as exc:
            self._context.refuse(order, str(exc) or type(exc).__name__)
            return
        _log.info("attempt_launched", attempt=order.attempt, runner=runner.pid if runner else None)
        self._watch(folder, runner)

    def _watch(self, folder: AttemptFolder, runner: ProcessId | None) -> None:
        """Settle the attempt when its runner ends (None: it has ended)."""
        self._context.phases[str(folder.attempt)] = Phase.RUNNING
        settle = partial(self._context.do, partial(self.settle, folder))
        handle = procfs.open_handle(runner) if runner is not None else None
        if handle is not None:
            self._context.loop.when_ended(handle, settle)
        else:
            self._context.loop.after(0.05, settle)

    def settle(self, folder: AttemptFolder) -> None:
        """End one of this worker's attempts, unless its runner does."""
        context, attempt = self._context, str(folder.attempt)
        context.phases[attempt] = Phase.SETTLING
        if folder.is_delivered:
            delivered = folder.exit_record()
            context.done(attempt, None if delivered is None else delivered.outcome)
            return
        if folder.is_locked():
            self._watch(folder, folder.last_runner())
            return
        record = folder.exit_record() or dead_runner.ending_of_the_dead(
            folder, context.board, context.settings.id, context.clock.now(), context.settings
        )
        if record is None:
            self._done(folder, "another one has it, or nobody waits for it any more")
            return
        why = settlement.put_end(context.board, record)
        context.metrics.ended(record.outcome)
        _log.info("attempt_settled", attempt=attempt, outcome=record.outcome.value, why=why)
        folder.empty_scratch()
        self._logs.store(folder, partial(self._done, folder, why))

    def _done(self, folder: AttemptFolder, why: str) -> None:
        self._context.phases[str(folder.attempt)] = Phase.DONE
        self._context.do(partial(folder.mark_delivered, why))

    # The methods below are for attempts of any worker of this host.

    def probe(self, attempt: str, claim: Claim | None) -> Sight:
        """See `Executor.probe`."""
        if claim is not None and claim.host != host_id():
            return Sight.ELSEWHERE
        return Sight.ALIVE if dead_runner.is_supervised(self._tag(attempt), claim) else Sight.GONE

    def reap(self, attempt: str, claim: Claim | None) -> End:
        """See `Executor.reap`."""
        dead_runner.kill_rest(self._tag(attempt), claim, self._context.settings)
        # Read only now: a living runner may still write its record.
        record = dead_runner.record_of(claim)
        now = self._context.clock.now()
        return record or settlement.lost(attempt, claim, "its runner is gone from its host", now)

    def _tag(self, attempt: str) -> str:
        return attempt_tag(self._context.board.cluster(), attempt)
