"""Runs one attempt, and outlives its worker.

A worker's fork server forks it; or it is started with its startup data on standard input:
`python -I -u -m nimbus.worker.runner <attempt folder>`.

Guarantees, whichever process dies at whichever time:
  * At most one runner lives in an attempt's folder (flock); at most one driver anywhere gets "go" (CLAIM).
  * User code starts only after our CLAIM is in ZooKeeper. If our session may have expired in the meantime, so
    that a leader may have closed the attempt, the board is read first. If a runner dies before it sends go,
    its driver ends without running user code (PDEATHSIG, and EOF on the pipe).
  * An outage of ZooKeeper or S3 does not affect a running driver, except one of a task that is kept running:
    before the leader may give such a task to another host, which is half a session timeout and
    `supervision.host_lost_after` after ZooKeeper's last answer at the earliest, its driver is killed.
  * The output of a successful attempt is on disk, or in its bucket, before its exit record.
  * The exit record is on disk before it is delivered, unless the disk is full even without the attempt's
    scratch, and stays there until it is delivered.
  * An exception in any thread ends the process.

`nimbus.attempt` decides; this module performs its instructions, and reports what happens.
Threads: main (the loop below), `runner-board`, `runner-log-uploader`, `runner-limits_0` of a task with a
limit of memory or disk, `runner-commit_0`, which waits for the output, `runner-mask` of a task with
secrets, `runner-flush_<n>` or `data-transfer_<n>` while an output is committed, and those of the ZooKeeper
client.
Exit codes: 0 if it is done, a worker must deliver the record, or another runner has the attempt; 75 if
another driver has the claim and user code did not run.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog

from nimbus.attempt import model as m
from nimbus.attempt.life import Life, Pace
from nimbus.domain.attempts.slots import Holder
from nimbus.domain.attempts.workers import Assignment
from nimbus.templates.names import at_release
from nimbus.worker.attempt.board_link import BoardLink
from nimbus.worker.attempt.connections import Connections, enter_environment, open_board, open_data, open_logs
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.held_attempt import HeldAttempt, LimitCheck
from nimbus.worker.attempt.log import LogUploader
from nimbus.worker.connect.attempt_session import AttemptSession
from nimbus.worker.connect.session import ConnectSessionError, PropertyRefusedError
from nimbus.worker.data.folder_checks import FolderState, spark_write_in, state_of
from nimbus.worker.data.places import place_of
from nimbus.worker.data.ports import OutputRefusedError
from nimbus.worker.driver.files import make_output
from nimbus.worker.driver.main import EXIT_NOT_STARTED
from nimbus.worker.driver.process import DriverProcess
from nimbus.worker.host import procfs
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.forked import adopt_orphans, run_program, take_standard_input
from nimbus.worker.host.identity import own_process
from nimbus.worker.host.loop import Loop
from nimbus.worker.host.process_log import configure_log, end_with_any_thread, leave
from nimbus.worker.jvm.loan import Loan
from nimbus.worker.settings import RunnerPlan, read_connections, read_plan

_LOCK_PATIENCE_S = 1.0
"""How long to retry the lock: a worker that checks whether we live holds it for microseconds."""
_LOG_DEADLINE_S = 20.0
_TICK_S = 0.5
"""How often the running driver is looked at, and how long its log may grow beyond its limit."""

_log = structlog.get_logger("nimbus.worker.runner")


class Runner:
    """Performs the instructions for one attempt, until it is over. Main thread.

    The thread `runner-commit` stores the output, so that heartbeats go on. `runner-limits` may hang in a file
    system, so nothing waits for it.
    """

    def __init__(
        self, folder: AttemptFolder, plan: RunnerPlan, order: Assignment, connections: Connections
    ) -> None:
        self._folder, self._plan, self._connections = folder, plan, connections
        self._attempt = HeldAttempt(order=order, plan=plan, folder=folder)
        half_s, lease = connections.session_timeout_s / 2, order.host_lost_after
        lease_s = m.NEVER_S if lease is None else lease.total_seconds() + half_s
        terms = self._attempt.terms(claim_valid_s=half_s, lease_s=lease_s)
        self._life = Life(terms, Pace(board_read_s=min(Pace().board_read_s, lease_s / 4)))
        self._loop = Loop()
        self._tick_s = m.NEVER_S
        self._board = BoardLink(
            "runner-board",
            partial(open_board, connections),
            lambda _, event: self._post(event),
            self._loop.fail,  # its message becomes the process's last words
            vital=(m.PutClaim, m.PutEnd),  # a worker refuses or delivers the attempt of a dead runner
        )
        self._committing = ThreadPoolExecutor(1, thread_name_prefix="runner-commit")
        self._measuring = ThreadPoolExecutor(1, thread_name_prefix="runner-limits")
        self._uploader = LogUploader(folder, lambda: open_logs(connections))
        self._session: AttemptSession | None = None
        self._unfit = ""
        """Why the task's code cannot start with the properties of its pipeline."""
        self._driver: DriverProcess
        self._before: FolderState
        self._limits: LimitCheck
        self._measured: Future[m.Event | None] | None = None

    def leave(self, *_signal: object) -> None:
        """Handle SIGTERM: a running driver continues; a worker does what still waits for ZooKeeper."""
        self._board.must_leave = True

    def run(self, driver: DriverProcess | None) -> int:
        """Run the attempt; return the exit code. Without a driver it has ended, and is delivered."""
        try:
            if driver is None:
                self._attempt.record = self._folder.exit_record()
                self._board.start()
            self._perform_all(self._life.deliver() if driver is None else self._begin(driver))
            self._loop.run()
        finally:
            if self._session is not None:
                self._session.release()
            self._board.close()
        return EXIT_NOT_STARTED if self._folder.is_delivered and self._attempt.record is None else 0

    def _begin(self, driver: DriverProcess) -> tuple[m.Instruction, ...]:
        self._driver, session = driver, None
        try:
            if self._plan.connect is not None:
                root = str(self._plan.release_root)
                given = self._attempt.order.task.spark_conf
                conf = {name: at_release(text, root) for name, text in given.items()}
                self._session = AttemptSession(self._folder, self._plan.connect, conf)
            self._board.start()
            if fault := driver.fault():
                raise SystemExit(f"the driver cannot begin: {fault}")  # unclaimed, so it counts as refused
            if self._session is not None:
                session = self._session.opened()
        except PropertyRefusedError as exc:
            self._unfit = str(exc)
        except ConnectSessionError as exc:
            raise SystemExit(str(exc)) from exc  # as above
        self._attempt.claim = replace(
            self._attempt.new_claim(Holder.PROCESS),
            pid=driver.id.pid,
            start_ticks=driver.id.start_ticks,
            session=session,
        )
        return self._life.begin()

    # --- events and instructions ---

    def _post(self, event: m.Event) -> None:
        """Report an event. Any thread."""
        self._loop.post(partial(self._apply, event))

    def _apply(self, event: m.Event) -> None:
        if isinstance(self._life.state, m.Running):  # first: a driver that has ended was not told to
            self._driver.collect()
            if (ended := self._ended()) is not None:
                self._perform_all(self._life.apply(ended, boottime_s()))
        self._perform_all(self._life.apply(event, boottime_s()))

    def _perform_all(self, instructions: tuple[m.Instruction, ...]) -> None:
        for instruction in instructions:
            self._perform(instruction)
        due_s = self._life.due_s
        if due_s < self._tick_s:
            self._tick_s = due_s
            self._loop.after(max(0.0, due_s - boottime_s()), partial(self._ticked, due_s))

    def _ticked(self, due_s: float) -> None:
        if due_s == self._tick_s:  # else an earlier one was set after it
            self._tick_s = m.NEVER_S
            self._apply(m.Tick())

    def _perform(self, instruction: m.Instruction) -> None:
        match instruction:
            case m.PutClaim() | m.ReadBoard() | m.SendHeartbeat() | m.KeepCheckpoint() | m.PutEnd():
                self._board.put(self._attempt, instruction)
            case m.ReadNotes():
                self._apply(self._attempt.notes())
            case m.Prepare():
                self._apply(self._prepare())
            case m.StartDriver():
                self._start()
            case m.AskToEnd(why, kill):
                told = self._attempt.to_be_told(why)
                self._driver.signal(signal.SIGKILL if kill else signal.SIGTERM)
                self._apply(told)
            case m.KillDriver():
                self._driver.signal(signal.SIGKILL)
            case m.KillStarter():  # a runner starts its driver itself
                pass
            case m.Commit():
                self._do(self._committing, self._commit)
            case m.Clear() | m.Record() | m.StoreLog() | m.ForgetAttempt() | m.LeaveAttempt():
                self._finish(instruction)

    def _do(self, thread: ThreadPoolExecutor, work: Callable[[], m.Event | None]) -> Future[m.Event | None]:
        done = thread.submit(work)
        done.add_done_callback(lambda _: self._loop.post(partial(self._answered, done)))
        return done

    def _answered(self, done: Future[m.Event | None]) -> None:
        event = done.result()  # its exception ends the process
        if event is not None:
            self._apply(event)

    # --- until the end of the driver ---

    def _prepare(self) -> m.Prepared | m.Unfit:
        try:
            self._folder.record_claim(self._attempt.claim)
        except OSError as exc:
            return m.Unfit(f"{self._folder.claim_file} cannot be written: {exc.strerror}")
        if self._unfit:
            return m.Unfit(self._unfit, pipeline_at_fault=True)
        try:
            self._attempt.output = make_output(self._folder, self._plan, self._attempt.order)
            self._before = state_of(self._attempt.output)
        except OSError as exc:
            why = f"its output folder {exc.filename} cannot be made: {exc.strerror}. Check `worker.data`."
            return m.Unfit(why)
        self._limits = self._attempt.limit_check(self._driver.processes)
        for thread in (self._committing, *([self._measuring] if self._limits.measures else [])):
            thread.submit(int)  # start it now: the task may use up all threads of the host
        return m.Prepared()

    def _start(self) -> None:
        self._attempt.started_at, self._attempt.oom_kills = datetime.now(UTC), procfs.oom_kills()
        self._driver.go()
        self._uploader.start()
        self._loop.when_ended(self._driver.handle, self._exited)
        self._loop.after(_TICK_S, self._watch)
        _log.info("driver_started", attempt=self._attempt.order.attempt, pid=self._driver.id.pid)

    def _watch(self) -> None:
        """Collect orphans, see that the Spark Connect server lives, and measure the attempt."""
        if self._driver.exit_status is not None:  # `_clear` collects now
            return
        self._driver.collect()
        if self._session is not None and self._session.is_gone:
            self._apply(m.ServerGone())
        self._limits.free_log()
        if self._limits.measures and (self._measured is None or self._measured.done()):
            self._measured = self._do(self._measuring, self._measure)
        self._loop.after(_TICK_S, self._watch)

    def _measure(self) -> m.Event | None:
        why = self._limits.measure()
        return None if why is None else m.Exceeded(why)

    def _exited(self) -> None:
        if isinstance(self._life.state, m.Running):  # else it was seen before, and `_clear` collects now
            self._apply(m.Tick())
            if self._ended() is None:  # a tracer, such as a debugger, gets its status first
                self._loop.after(_TICK_S, self._exited)

    def _ended(self) -> m.Exited | None:
        if self._driver.exit_status is None:
            return None
        return m.Exited(self._driver.exit_status, self._folder.came_to_its_end())

    # --- from the end of the driver on ---

    def _finish(
        self, instruction: m.Clear | m.Record | m.StoreLog | m.ForgetAttempt | m.LeaveAttempt
    ) -> None:
        match instruction:
            case m.Clear():
                self._apply(self._clear())
            case m.Record(story):
                self._apply(self._record(story))
            case m.StoreLog():
                self._uploader.start()
                self._apply(m.LogStored(self._uploader.finish(_LOG_DEADLINE_S)))
            case m.ForgetAttempt(why):
                self._folder.mark_delivered(why)  # so that no worker reports the attempt as lost
                self._loop.stop()
            case m.LeaveAttempt():
                self._loop.stop()

    def _clear(self) -> m.Event:
        if not self._driver.end_all():
            _log.error("driver_left_processes", attempt=self._attempt.order.attempt)
        if self._attempt.started_at is not None:
            self._limits.free_log()
            self._attempt.used = self._driver.used
        return m.Cleared(server_gone=self._session is not None and not self._session.release())

    def _commit(self) -> m.Event:
        output, unseen = self._attempt.output, self._plan.unseen_output
        place = place_of(self._plan, partial(open_data, self._connections.data))

        def check() -> None:
            if unseen and (written := spark_write_in(output, self._before)):
                raise OutputRefusedError(f"Spark has written to {written}, but {unseen}")

        return self._attempt.commit(place, check)

    def _record(self, story: m.Story) -> m.Event:
        end = self._attempt.ended(story, "runner", self._folder.application(), self._driver.jvm)
        self._attempt.record = record = self._folder.record_exit(end)
        self._folder.empty_scratch()
        _log.info("driver_ended", attempt=record.attempt, outcome=record.outcome.value, reason=record.reason)
        return m.Recorded()


def run_attempt(folder: AttemptFolder, startup: int, loan: Loan | None = None) -> int:
    """Run an attempt in this process, which has one thread. `startup`: descriptor of a `RunnerStartup`."""
    configure_log()
    until_s = time.monotonic() + _LOCK_PATIENCE_S
    while folder.lock.take(own_process()) is None:
        if time.monotonic() > until_s:
            _log.info("another_runner_has_it", attempt=str(folder.attempt))
            return 0
        time.sleep(0.02)
    source = os.fdopen(startup, "rb", buffering=0)
    if folder.is_delivered:
        return 0
    adopt_orphans()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    plan, order = read_plan(source), folder.order()
    # The driver is forked first, while there is one thread and no secret in memory.
    driver = DriverProcess(folder, plan, order, loan) if folder.exit_record() is None else None
    end_with_any_thread()
    connections = read_connections(source)
    source.close()
    enter_environment(connections)
    runner = Runner(folder, plan, order, connections)
    signal.signal(signal.SIGTERM, runner.leave)
    try:
        return runner.run(driver)
    except Exception:  # noqa: BLE001 - the top of the program
        traceback.print_exc()  # its last line says why the attempt was refused
        leave(1)  # at once: a thread that hangs must not keep the lock


def run_and_exit(folder: AttemptFolder, startup: int, loan: Loan | None = None) -> NoReturn:
    """Like `run_attempt`, but ends the process."""
    leave(run_attempt(folder, startup, loan))


def main(arguments: list[str]) -> int:
    """Start from the command line."""
    return run_and_exit(AttemptFolder(Path(arguments[0])), take_standard_input())


if __name__ == "__main__":
    sys.exit(run_program(partial(main, sys.argv[1:])))
