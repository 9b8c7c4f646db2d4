"""Runs one attempt, and outlives its worker.

A worker's fork server forks it; or it is started with its startup data on standard input:
`python -I -u -m nimbus.worker.runner <attempt folder>`.

Guarantees, whichever process dies at whichever time:
  * At most one runner lives in an attempt's folder (flock); at most one driver anywhere gets "go" (CLAIM).
  * User code starts only after our CLAIM is in ZooKeeper. If a runner dies before it sends go, its driver
    ends without running user code (PDEATHSIG, and EOF on the pipe).
  * An outage of ZooKeeper or S3 does not affect a running driver.
  * The output of a successful attempt is on disk, or in its bucket, before its exit record.
  * The exit record is on disk before it is delivered, unless the disk is full even without the attempt's
    scratch, and stays there until it is delivered.
  * An exception in any thread ends the process.

Threads: main (the loop below), `runner-board`, `runner-limits`, `runner-log-uploader`, `runner-mask` of a
task with secrets, `runner-flush_<n>` or `data-transfer_<n>` while an output is committed, and those of the
ZooKeeper client.
Exit codes: 0 if it is done, a worker must deliver the record, or another runner has the attempt; 75 if
another driver has the claim and user code did not run.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog

from nimbus.attempt.model import Ordered, Story
from nimbus.domain.slots import Claim, ConnectSession, End
from nimbus.domain.task_run import Outcome
from nimbus.domain.workers import Assignment
from nimbus.ports import AttemptBoard, AttemptWithdrawnError, StoreUnavailableError
from nimbus.worker import procfs
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.attempt_session import AttemptSession
from nimbus.worker.board_link import BoardLink
from nimbus.worker.clock import boottime_s
from nimbus.worker.connect_session import ConnectSessionError, PropertyRefusedError
from nimbus.worker.connections import (
    Connections,
    OpenBoard,
    enter_environment,
    open_board,
    open_data,
    open_logs,
)
from nimbus.worker.data.commit import committed
from nimbus.worker.data.places import place_of
from nimbus.worker.data.ports import OutputRefusedError
from nimbus.worker.data.spark_writes import spark_write_in, state_of
from nimbus.worker.driver import EXIT_NOT_STARTED
from nimbus.worker.driver_plan import make_output, measured
from nimbus.worker.driver_process import DriverProcess
from nimbus.worker.forked import adopt_orphans, run_program, take_standard_input
from nimbus.worker.identity import own_process
from nimbus.worker.limit_thread import LimitThread
from nimbus.worker.limited_log import LimitedLog
from nimbus.worker.limits import LimitWatch, limits_of
from nimbus.worker.log_upload import LogUploader, log_tail
from nimbus.worker.process_log import configure_log, end_with_any_thread, leave
from nimbus.worker.retry import pauses
from nimbus.worker.settings import RunnerPlan, read_connections, read_plan
from nimbus.worker.verdict import Verdict, judge
from nimbus.worker.wake import Wake

_LOCK_PATIENCE_S = 1.0
"""How long to retry the lock: a worker that checks whether we live holds it for microseconds."""
_LOG_DEADLINE_S = 20.0
_TICK_S = 2.0

_log = structlog.get_logger("nimbus.worker.runner")


class Runner:
    """One attempt, from its driver's start to the delivery of END. Main thread."""

    def __init__(
        self, folder: AttemptFolder, plan: RunnerPlan, order: Assignment, connections: Connections
    ) -> None:
        self._folder, self._plan, self._order, self._connections = folder, plan, order, connections
        self._wake = Wake()
        self._told_to_leave = False
        self._session: AttemptSession | None = None
        self._attempt = str(folder.attempt)

    def leave(self, *_signal: object) -> None:
        """Handle SIGTERM: a running driver continues; a worker does what still waits for ZooKeeper."""
        self._told_to_leave = True
        self._wake.ring()

    def run(self, driver: DriverProcess | None) -> int:
        """Run the attempt; return the process's exit code.

        Args:
            driver: The driver that waits for "go"; None: the attempt has ended and must only be delivered.
        """
        try:
            return self._run(driver)
        finally:
            if self._session is not None:
                self._session.release()

    def _run(self, driver: DriverProcess | None) -> int:
        if driver is not None and self._plan.connect is not None:
            with _refused_without_session():
                self._session = AttemptSession(self._folder, self._plan.connect, self._order.task.spark_conf)
        opened = self._connect()
        if opened is None:
            if driver is not None:
                driver.end_all()
            return 0
        try:
            if driver is not None:
                if fault := driver.fault():
                    raise SystemExit(
                        f"the driver cannot begin: {fault}"
                    )  # unclaimed, so it counts as refused
                return self._claim_and_run(opened.board, driver)
            record = self._folder.exit_record()
            assert record is not None  # noqa: S101 - that is why there is no driver
            return self._deliver(opened.board, record, self._uploader())
        finally:
            opened.close()

    def _connect(self) -> OpenBoard | None:
        """Connect, with retries without limit; None: SIGTERM arrived."""
        for pause in pauses():
            try:
                return open_board(self._connections)
            except StoreUnavailableError as exc:
                if self._wait_to_retry("connection", exc, pause):
                    return None
        raise AssertionError("pauses() is endless")

    def _opened_session(self) -> ConnectSession | None:
        with _refused_without_session():
            return None if self._session is None else self._session.opened()

    def _claim_and_run(self, board: AttemptBoard, driver: DriverProcess) -> int:
        session = unfit = None
        try:
            session = self._opened_session()
        except PropertyRefusedError as exc:
            unfit = str(exc)
        claim = Claim(
            attempt=self._attempt,
            worker=self._plan.worker,
            host=self._plan.host,
            pid=driver.id.pid,
            start_ticks=driver.id.start_ticks,
            claimed_at=datetime.now(UTC),
            nonce=secrets.token_hex(8),
            folder=str(self._folder.path),
            session=session,
        )
        if not self._claim(board, claim):
            driver.end_all()
            return EXIT_NOT_STARTED
        self._folder.record_claim(claim)
        if unfit is not None:
            return self._refuse(board, driver, claim, unfit, pipeline_at_fault=True)
        return self._run_claimed(board, driver, claim)

    def _claim(self, board: AttemptBoard, ours: Claim) -> bool:
        for pause in pauses():
            try:
                standing = board.claim(ours)
            except StoreUnavailableError as exc:
                if self._wait_to_retry("claim", exc, pause):
                    return False
            except AttemptWithdrawnError as exc:
                self._folder.mark_delivered(str(exc))
                return False
            else:
                if standing.nonce == ours.nonce:
                    return True
                # Marked, so that no worker reports the attempt as lost when this runner ends.
                self._folder.mark_delivered(f"not ours to run: the claim is {standing}")
                _log.warning("claim_refused", attempt=self._attempt, standing=str(standing))
                return False
        raise AssertionError("pauses() is endless")

    def _run_claimed(self, board: AttemptBoard, driver: DriverProcess, claim: Claim) -> int:
        try:
            output = make_output(self._folder, self._plan, self._order)
            before = state_of(output)
        except OSError as exc:
            why = f"its output folder {exc.filename} cannot be made: {exc.strerror}. Check `worker.data`."
            return self._refuse(board, driver, claim, why)
        link = BoardLink(self._folder, board, claim, self._wake.ring)
        limits = self._limit_thread(output)
        uploader = self._uploader()
        started_at, started_s = datetime.now(UTC), boottime_s()
        oom_kills = procfs.oom_kills()
        driver.go()
        link.start()
        uploader.start()
        limits.start()
        _log.info("driver_started", attempt=self._attempt, pid=driver.id.pid)
        ordered, was_done = self._watch(driver, link, limits, started_s)
        if not driver.end_all():
            _log.error("driver_left_processes", attempt=self._attempt)
        if self._session is not None and not self._session.release() and ordered is Ordered.NOT:
            ordered = Ordered.SERVER_GONE
        link.driver_has_ended()
        limits.close()
        verdict = judge(
            Story(driver.exit_status, ordered, was_done, exceeded=limits.exceeded or ""),
            is_program=self._order.task.kind.is_program,
            timeout=self._order.timeout,
            log_tail=log_tail(self._folder),
            oom_killer=procfs.oom_kills() > oom_kills,
        )
        place = place_of(self._plan, partial(open_data, self._connections.data))

        def begin() -> None:
            if self._plan.unseen_output and (written := spark_write_in(output, before)):
                raise OutputRefusedError(f"Spark has written to {written}, but {self._plan.unseen_output}")
            place.begin(output)

        verdict, reference = committed(verdict, place, self._folder, output, begin)
        try:
            return self._finish(board, self._end(verdict, started_at, claim, reference), uploader)
        finally:
            link.close()

    def _limit_thread(self, output: Path) -> LimitThread:
        watch = LimitWatch(
            limits_of(self._order),
            processes=partial(procfs.below, os.getpid()),
            folders=measured(self._folder, output),
        )
        return LimitThread(watch, LimitedLog.of(self._folder), self._wake.ring)

    def _watch(
        self, driver: DriverProcess, link: BoardLink, limits: LimitThread, started_s: float
    ) -> tuple[Ordered, bool]:
        """Wait for the driver's end. End it if it exceeds a limit, on request, or if it became useless.

        Returns:
            Why it was ended, and whether its code had come to its end before.
        """
        ordered, was_done, kill_at = Ordered.NOT, False, float("inf")
        timeout = self._order.timeout
        deadline = started_s + timeout.total_seconds() if timeout is not None else float("inf")
        poll = select.poll()
        poll.register(driver.handle, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            driver.reap()
            if driver.exit_status is not None:
                return ordered, was_done if ordered is not Ordered.NOT else self._folder.came_to_its_end()
            now = boottime_s()
            if ordered is Ordered.NOT:
                server_gone = self._session is not None and self._session.is_gone
                ordered = _order_to_end(link, limits, overdue=now >= deadline, server_gone=server_gone)
                if ordered is not Ordered.NOT:
                    was_done = self._folder.came_to_its_end()
                    _log.warning("driver_asked_to_end", attempt=self._attempt, why=ordered.value)
                    if ordered is Ordered.LIMIT:
                        driver.kill()
                    else:
                        driver.ask_to_end()
                    kill_at = now + self._plan.stop_grace_s
            elif now >= kill_at:
                driver.kill()
                kill_at = float("inf")
            next_s = min(_TICK_S, (deadline if ordered is Ordered.NOT else kill_at) - now)
            poll.poll(max(1, int(next_s * 1000)))
            self._wake.clear()

    def _end(
        self, verdict: Verdict, started_at: datetime | None, claim: Claim, reference: str | None = None
    ) -> End:
        return End(
            attempt=self._attempt,
            outcome=verdict.outcome,
            written_by="runner",
            ended_at=datetime.now(UTC),
            started_at=started_at,
            exit_code=verdict.exit_code,
            failure=verdict.failure,
            reason=verdict.reason,
            output=reference,
            result=verdict.result,
            checkpoint=None if verdict.outcome is Outcome.SUCCEEDED else self._folder.checkpoint(),
            nonce=claim.nonce,
            application=self._folder.application(),
        )

    def _refuse(
        self,
        board: AttemptBoard,
        driver: DriverProcess,
        claim: Claim,
        why: str,
        *,
        pipeline_at_fault: bool = False,
    ) -> int:
        """End a claimed attempt whose driver never got its "go"."""
        driver.end_all()
        end = self._end(Verdict(Outcome.REFUSED, why, None), None, claim)
        return self._finish(board, replace(end, pipeline_at_fault=pipeline_at_fault), self._uploader())

    def _finish(self, board: AttemptBoard, end: End, uploader: LogUploader) -> int:
        record = self._folder.record_exit(end)
        self._folder.empty_scratch()
        _log.info("driver_ended", attempt=self._attempt, outcome=record.outcome.value, reason=record.reason)
        return self._deliver(board, record, uploader)

    def _deliver(self, board: AttemptBoard, record: End, uploader: LogUploader) -> int:
        for pause in pauses():
            try:
                standing = board.end(record)
            except StoreUnavailableError as exc:
                if self._wait_to_retry("end", exc, pause):
                    return 0  # the record stays in the folder, and a worker delivers it
            except AttemptWithdrawnError:
                why = "nobody waits for it any more"
                break
            else:
                why = f"END says {standing.outcome} by {standing.written_by}"
                break
        uploader.start()
        if uploader.finish(_LOG_DEADLINE_S):
            self._folder.mark_delivered(why)
        return 0

    def _wait_to_retry(self, what: str, error: Exception, pause_s: float) -> bool:
        """Wait for the next try; return True if SIGTERM arrived."""
        _log.warning("board_unreachable", attempt=self._attempt, wanted=what, error=str(error)[:300])
        if not self._told_to_leave:
            self._wake.wait(pause_s)
        return self._told_to_leave

    def _uploader(self) -> LogUploader:
        return LogUploader(self._folder, lambda: open_logs(self._connections))


@contextmanager
def _refused_without_session() -> Iterator[None]:
    try:
        yield
    except PropertyRefusedError:
        raise
    except ConnectSessionError as exc:
        raise SystemExit(str(exc)) from exc  # unclaimed, so it counts as refused


def _order_to_end(link: BoardLink, limits: LimitThread, *, overdue: bool, server_gone: bool) -> Ordered:
    if server_gone:
        return Ordered.SERVER_GONE
    if link.stop_requested:
        return Ordered.STOP
    if link.outdated:
        return Ordered.OUTDATED
    if limits.exceeded is not None:
        return Ordered.LIMIT
    return Ordered.TIMEOUT if overdue else Ordered.NOT


def take_lock(folder: AttemptFolder) -> int | None:
    """Become the attempt's runner; None: another living runner has the lock."""
    until = time.monotonic() + _LOCK_PATIENCE_S
    while (lock := folder.try_lock(own_process())) is None and time.monotonic() < until:
        time.sleep(0.02)
    return lock


def run_attempt(folder: AttemptFolder, startup: int) -> int:
    """Run an attempt in this process, which must have one thread.

    Args:
        folder: The attempt's folder.
        startup: Descriptor of the output of `RunnerStartup.encode`; it is closed.
    """
    configure_log()
    if take_lock(folder) is None:
        _log.info("another_runner_has_it", attempt=str(folder.attempt))
        return 0
    return run_locked(folder, startup)


def run_locked(
    folder: AttemptFolder,
    startup: int,
    start_driver: Callable[[AttemptFolder, RunnerPlan, Assignment], DriverProcess] = DriverProcess,
) -> int:
    """Like `run_attempt`, after the folder's lock was taken."""
    source = os.fdopen(startup, "rb", buffering=0)
    if folder.is_delivered:
        return 0
    adopt_orphans()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    plan, order = read_plan(source), folder.order()
    # The driver is forked first, while there is one thread and no secret in memory.
    driver = start_driver(folder, plan, order) if folder.exit_record() is None else None
    end_with_any_thread()
    connections = read_connections(source)
    source.close()
    enter_environment(connections)
    runner = Runner(folder, plan, order, connections)
    signal.signal(signal.SIGTERM, runner.leave)
    return runner.run(driver)


def run_and_exit(folder: AttemptFolder, startup: int) -> NoReturn:
    """Like `run_attempt`, but ends the process."""
    leave(run_attempt(folder, startup))


def main(arguments: list[str]) -> int:
    """Start from the command line."""
    return run_and_exit(AttemptFolder(Path(arguments[0])), take_standard_input())


if __name__ == "__main__":
    sys.exit(run_program(partial(main, sys.argv[1:])))
