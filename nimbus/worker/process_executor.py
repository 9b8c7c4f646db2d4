"""Runs each attempt in its own processes, a runner with its driver. Worker thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

import structlog

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import AttemptId, WorkerId
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptBoard
from nimbus.records import UnreadableRecordError
from nimbus.worker import settlement
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.log import LeftoverLogs
from nimbus.worker.connect.attempt_session import release_left
from nimbus.worker.connect.plan import ConnectReach
from nimbus.worker.executor import AttemptPhase, Sight, WorkerContext
from nimbus.worker.host import procfs, remains
from nimbus.worker.host.files import drop_dangling_short_paths, read_if_there
from nimbus.worker.host.identity import host_id
from nimbus.worker.launcher import Launcher, LaunchFailedError
from nimbus.worker.settings import RunnerPlan, RunnerStartup

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
        drop_dangling_short_paths()
        for folder in AttemptFolder.all_in(self._context.settings.work_dir):
            try:
                left = not folder.is_delivered and (
                    folder.exit_record() is not None or folder.lock.is_held() or folder.claim() is not None
                )
            except (OSError, UnreadableRecordError) as exc:
                _log.warning("folder_passed_over", folder=str(folder.path), error=str(exc)[:300])
                continue
            if left:
                self._context.phases[str(folder.attempt)] = AttemptPhase.SETTLING
                self._context.do(partial(self.settle, folder))

    def clean(self, ordered: Mapping[str, Assignment]) -> None:
        """Remove old folders: delivered long ago, or created long ago and never used."""
        keep_s = self._context.settings.keep_attempts.total_seconds()
        now_s = self._context.clock.now().timestamp()
        busy = ordered.keys() | self._context.unended
        for folder in AttemptFolder.all_in(self._context.settings.work_dir):
            if str(folder.attempt) not in busy and folder.age_s(now_s) > keep_s and not folder.lock.is_held():
                folder.remove()

    def was_launched(self, attempt: str) -> bool:
        """True if a worker launched it. Not with only a folder: CLAIM makes a second start safe."""
        folder = self.folder(attempt)
        if not folder.exists:
            return False
        if folder.is_delivered or folder.exit_record() is not None or folder.lock.is_held():
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

    def _watch(self, folder: AttemptFolder, runner: procfs.ProcessId | None) -> None:
        """Settle the attempt when its runner ends (None: it has ended)."""
        self._context.phases[str(folder.attempt)] = AttemptPhase.RUNNING
        settle = partial(self._context.do, partial(self.settle, folder))
        handle = procfs.open_handle(runner) if runner is not None else None
        if handle is not None:
            self._context.loop.when_ended(handle, settle)
        else:
            self._context.loop.after(0.05, settle)

    def settle(self, folder: AttemptFolder) -> None:
        """End one of this worker's attempts, unless its runner does."""
        context, attempt = self._context, str(folder.attempt)
        context.phases[attempt] = AttemptPhase.SETTLING
        if folder.is_delivered:
            delivered = folder.exit_record()
            context.done(attempt, None if delivered is None else delivered.outcome)
            return
        if folder.lock.is_held():
            self._watch(folder, folder.lock.last_holder())
            return
        record = folder.exit_record() or ending_of_the_dead(
            folder, context.board, context.settings.id, context.clock.now(), context.settings.reach
        )
        if record is None:
            self._done(folder, "another one has it, or nobody waits for it any more")
            return
        why = context.settle(record)
        context.metrics.ended(record.outcome)
        folder.empty_scratch()
        self._logs.store(folder, partial(self._done, folder, why))

    def _done(self, folder: AttemptFolder, why: str) -> None:
        self._context.phases[str(folder.attempt)] = AttemptPhase.DONE
        self._context.do(partial(folder.mark_delivered, why))

    # The methods below are for attempts of any worker of this host.

    def probe(self, attempt: str, claim: Claim | None) -> Sight:
        """See `Executor.probe`."""
        if claim is not None and claim.host != host_id():
            return Sight.ELSEWHERE
        return Sight.ALIVE if is_supervised(self._tag(attempt), claim) else Sight.GONE

    def collect(self, attempt: str, claim: Claim | None) -> End:
        """See `Executor.collect`."""
        folder = AttemptFolder.of_claim(claim) if _runner_of(claim) is not None else None
        tag = self._tag(attempt)
        _kill_left(folder, lambda: tag)
        if claim is not None and folder is not None:
            release_left(claim.session, folder.path, self._context.settings.reach)
        # Read only now: a living runner may still write its record.
        return record_of(claim) or self._context.lost(attempt, claim, "its runner is gone from its host")

    def _tag(self, attempt: str) -> str:
        return remains.attempt_tag(self._context.board.cluster(), attempt)


def ending_of_the_dead(
    folder: AttemptFolder,
    board: AttemptBoard,
    worker: WorkerId,
    now: datetime,
    connect: ConnectReach | None = None,
) -> End | None:
    """Determine and record how an attempt ended whose runner died without an exit record; its lock is free.

    Returns the exit record; None if this worker must not end the attempt. StoreUnavailableError: try again;
    nothing was recorded.
    """
    attempt = str(folder.attempt)
    _kill_left(folder, lambda: remains.attempt_tag(board.cluster(), attempt))
    release_left(folder.session(), folder.path, connect)
    why = f"its runner ended before it could claim the attempt: {_last_line(folder)}"
    refused = settlement.ended(attempt, Outcome.REFUSED, why, now)
    won = settlement.fence(board, refused, worker, now)
    if won is None or (not won.is_fenced and won.worker != worker):
        return None
    if won.is_fenced:
        return folder.record_exit(replace(refused, nonce=won.nonce))
    lost = settlement.lost(attempt, won, "its runner died without a word", now)
    return folder.record_exit(replace(lost, application=folder.application()))


def is_supervised(tag: str, claim: Claim | None) -> bool:
    """True if a runner of the attempt is alive on this host, of any worker of its cluster.

    Before its claim the tag identifies it, then the record in the claim's folder. A driver of another user
    counts as supervised, because this cannot be checked.
    """
    if remains.runners(tag):
        return True
    runner = _runner_of(claim)
    if runner is not None and procfs.is_alive(runner):
        return True
    if claim is None or claim.pid is None or claim.start_ticks is None:
        return False
    driver = procfs.ProcessId(claim.pid, claim.start_ticks)
    return procfs.is_alive(driver) and procfs.environment_of(claim.pid) is None


def _kill_left(folder: AttemptFolder | None, tag: Callable[[], str]) -> None:
    """`folder`: of the dead runner. If `tag` raises, without ZooKeeper, what needs no tag is killed."""
    if folder is not None and (runner := folder.lock.last_holder()) is not None:
        remains.kill_session(runner)
    if folder is not None and (keeper := folder.jvm_keeper()) is not None:
        remains.kill_jvm_keeper(keeper)
    remains.kill_tagged(tag())


def record_of(claim: Claim | None) -> End | None:
    """The dead runner's exit record in the claim's folder, with the claim's nonce. Changes nothing."""
    folder = AttemptFolder.of_claim(claim)
    if claim is None or folder is None:
        return None
    try:
        record = folder.exit_record()
    except (OSError, ValueError, UnreadableRecordError) as exc:
        _log.warning("exit_record_unreadable", attempt=claim.attempt, folder=claim.folder, error=str(exc))
        return None
    if record is None or (record.attempt, record.nonce) != (claim.attempt, claim.nonce):
        return None
    return record


def _runner_of(claim: Claim | None) -> procfs.ProcessId | None:
    """The runner that won a claim, dead or alive, from a folder with the claim's own nonce."""
    folder = AttemptFolder.of_claim(claim)
    if claim is None or folder is None:
        return None
    try:
        noted = folder.claim()
        return folder.lock.last_holder() if noted is not None and noted.nonce == claim.nonce else None
    except (OSError, ValueError, UnreadableRecordError) as exc:
        _log.warning("claim_unreadable", attempt=claim.attempt, folder=claim.folder, error=str(exc))
        return None


def _last_line(folder: AttemptFolder) -> str:
    lines = (read_if_there(folder.runner_log) or b"").decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
