"""Runs the pooled attempts of one worker, and outlives it until they have ended.

The worker's fork server forks it. Guarantees, whichever process dies at whichever time:
  * User code starts only after our CLAIM is in ZooKeeper. If our session may have expired in the meantime, so
    that a leader may have closed the attempt, the board is read first.
  * A driver dies with the zygote, and the zygote with the executor. While the executor lives, which its lock
    shows, no attempt is reported as lost.
  * An outage of ZooKeeper or S3 does not affect running drivers.
  * The output of a successful attempt, and its exit record, are on disk before its END.

`nimbus.attempt` decides about each attempt; this module performs its instructions, and reports what happens.
Threads: main (the loop below), `executor-board`, `executor-logs`, `executor-flush_<n>` while outputs are
committed, with `data-transfer_<n>` if they are uploaded, and those of the ZooKeeper client.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial

import structlog

from nimbus.attempt import model as m
from nimbus.attempt.life import Life, Pace
from nimbus.domain.attempts.slots import Holder
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.board_link import BoardLink
from nimbus.worker.attempt.connections import enter_environment, open_board, open_data, open_logs
from nimbus.worker.attempt.held_attempt import HeldAttempt, LimitCheck
from nimbus.worker.data.places import place_of
from nimbus.worker.data.ports import DataPlace
from nimbus.worker.driver.files import attempt_environment, make_output, write_plan
from nimbus.worker.driver.main import DriverPlan
from nimbus.worker.host import procfs, remains
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.identity import own_process
from nimbus.worker.host.loop import Loop
from nimbus.worker.host.process_log import EXIT_FAILED, configure_log, end_with_any_thread, leave
from nimbus.worker.host.remains import attempt_tag
from nimbus.worker.pool.drivers import DriverEnd, Drivers
from nimbus.worker.pool.folder import ExecutorFolder, ExitRecords
from nimbus.worker.pool.logs import Logs
from nimbus.worker.pool.messages import Answer, NotPreloaded, SendQueue, Unstored, receive_order
from nimbus.worker.settings import ExecutorStartup, RunnerPlan, read_executor_startup

_TICK_S = 0.5
"""How often all attempts are looked at, and how long a log may grow beyond its limit."""
_STUCK_S = 10.0
"""Time after a SIGKILL of a driver; if the zygote has not reported its end by then, it counts as stuck."""
_MEASURE_AFTER_S = 0.3
"""An attempt that has run this long is read on the board and measured, and watched from then on."""
_FLUSHING_AT_ONCE = 4
_LOGS_DEADLINE_S = 5.0

_log = structlog.get_logger("nimbus.worker.executor")


@dataclass(slots=True, eq=False, kw_only=True)
class _Held(HeldAttempt):
    life: Life = field(init=False)
    place: DataPlace = field(init=False)
    driver: DriverPlan = field(init=False)
    executes: bool = False
    environment: Mapping[str, str] = field(init=False)
    started_s: float = 0.0
    """Seconds since boot."""
    limits: LimitCheck | None = None

    @property
    def is_running(self) -> bool:
        return isinstance(self.life.state, m.Running)


class ExecutorProcess:
    """One executor. Main thread."""

    def __init__(self, folder: ExecutorFolder, worker: socket.socket, startup: ExecutorStartup) -> None:
        connections = startup.connections
        self._folder, self._worker = folder, worker
        self._loop = Loop()
        self._held: dict[str, _Held] = {}
        self._answers = SendQueue(worker, self._loop)
        self._leaving = False
        """True if there are no more orders: the process ends with its last attempt."""
        self._ticking, self._oom_kills = False, 0
        self._drivers = Drivers(self._loop, self, preload=startup.preload, env=startup.env)
        self._flush = ThreadPoolExecutor(_FLUSHING_AT_ONCE, thread_name_prefix="executor-flush")
        self._board = BoardLink(
            "executor-board",
            partial(open_board, connections),
            self._post,
            self._loop.fail,
            exits=ExitRecords(folder.exits),
        )
        self._logs = Logs(partial(open_logs, connections), self._tell_unstored)
        self._open_data = cache(partial(open_data, connections.data))
        self._go_within_s = connections.session_timeout_s / 2

    def run(self) -> int:
        """Serve until the worker and the last attempt have ended."""
        self._board.start()
        self._loop.run()
        self._drivers.close()
        self._logs.close(_LOGS_DEADLINE_S)
        return 0

    def _tell_unstored(self, unstored: Unstored) -> None:
        self._loop.post(partial(self._answers.send, unstored.encode()))

    def leave(self, *_signal: object) -> None:
        """Handle SIGTERM: take no more orders. Claimed attempts continue; a worker does the rest."""
        self._loop.post(self._leave)
        self._board.must_leave = True

    def _leave(self) -> None:
        if self._leaving:
            return
        if self._drivers.are_ready:
            self._receive()  # orders that were already sent
        self._stop_listening()

    def _stop_listening(self) -> None:
        self._leaving = True
        self._loop.forget(self._worker.fileno())
        self._worker.close()  # the worker starts another executor for the next order
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._leaving and not self._held:
            self._loop.stop()

    # Orders.

    def _receive(self) -> None:
        while not self._leaving:
            try:
                order = receive_order(self._worker)
            except BlockingIOError:
                return
            except OSError:
                order = None
            if order is None:
                self._stop_listening()
                return
            self._take(*order)

    def _take(self, order: Assignment, plan: RunnerPlan) -> None:
        attempt = order.attempt
        if attempt in self._held:
            return
        try:
            folder = self._folder.create_task(attempt)
            output = make_output(folder, plan, order)
            held = _Held(order=order, plan=plan, folder=folder)
            held.driver = write_plan(folder, plan, order, partial(self._can_fork, held))
        except OSError as exc:
            self._folder.task(attempt).discard()
            why = f"its folders cannot be made: {exc.strerror}: {exc.filename}"
            self._answers.send(Answer(attempt, why).encode())
            return
        held.output = output
        terms = held.terms(claim_valid_s=self._go_within_s, stuck_after_s=_STUCK_S)
        held.life = Life(terms, Pace(first_board_read_s=_MEASURE_AFTER_S))
        held.claim = held.new_claim(Holder.POOLED)
        held.place = place_of(plan, self._open_data)
        self._held[attempt] = held
        if not self._ticking:
            self._ticking, self._oom_kills = True, procfs.oom_kills()
            self._loop.after(_TICK_S, self._tick)
        self._perform_all(held, held.life.begin())
        held.environment = attempt_environment(folder, plan)  # while the board takes the claim

    # Events and instructions.

    def _post(self, attempt: HeldAttempt, event: m.Event) -> None:
        """Report an event of the board. Any thread."""
        self._loop.post(partial(self._apply_to, attempt, event))

    def _apply_to(self, attempt: HeldAttempt, event: m.Event) -> None:
        if (held := self._held.get(str(attempt.id))) is attempt:  # else it is over
            self._apply(held, event)

    def _tick(self) -> None:
        now, self._oom_kills = boottime_s(), procfs.oom_kills()
        for held in list(self._held.values()):
            if now >= held.life.due_s:
                self._apply(held, m.Tick())
            if held.is_running and now - held.started_s >= _MEASURE_AFTER_S:
                self._measure(held)
        if self._held:
            self._loop.after(_TICK_S, self._tick)
        else:
            self._ticking = False

    def _apply(self, held: _Held, event: m.Event) -> None:
        self._perform_all(held, held.life.apply(event, boottime_s()))

    def _perform_all(self, held: _Held, instructions: tuple[m.Instruction, ...]) -> None:
        for instruction in instructions:
            self._perform(held, instruction)

    def _perform(self, held: _Held, instruction: m.Instruction) -> None:
        match instruction:
            case m.PutClaim() | m.ReadBoard() | m.SendHeartbeat() | m.KeepCheckpoint():
                self._board.put(held, instruction)
            case m.ReadNotes():
                self._apply(held, held.notes())
            case m.Prepare():  # `_take` has made its files
                self._apply(held, m.Prepared())
            case m.StartDriver() | m.AskToEnd() | m.KillDriver() | m.KillStarter():
                self._drive(held, instruction)
            case (
                m.Clear()
                | m.Commit()
                | m.Record()
                | m.PutEnd()
                | m.StoreLog()
                | m.ForgetAttempt()
                | m.LeaveAttempt()
            ):
                self._finish(held, instruction)

    def _drive(
        self, held: _Held, instruction: m.StartDriver | m.AskToEnd | m.KillDriver | m.KillStarter
    ) -> None:
        match instruction:
            case m.StartDriver():
                self._start(held)
            case m.AskToEnd(why, kill):
                told = held.to_be_told(why)
                self._drivers.signal(str(held.id), signal.SIGKILL if kill else signal.SIGTERM)
                self._apply(held, told)
            case m.KillDriver():
                self._drivers.signal(str(held.id), signal.SIGKILL)
            case m.KillStarter():
                _log.error("zygote_stuck", attempt=str(held.id))
                self._drivers.kill_zygote()

    def _finish(
        self,
        held: _Held,
        instruction: m.Clear | m.Commit | m.Record | m.PutEnd | m.StoreLog | m.ForgetAttempt | m.LeaveAttempt,
    ) -> None:
        match instruction:
            case m.Clear():  # the zygote has ended its processes; see also `zygote_ended`
                self._apply(held, m.Cleared())
            case m.Commit():
                done = self._flush.submit(held.commit, held.place)
                done.add_done_callback(lambda _: self._loop.post(lambda: self._apply(held, done.result())))
            case m.Record(story):
                held.record = held.ended(story, "executor")
                self._board.put(held, instruction)
            case m.PutEnd():  # included in `Record`, because the board's thread takes many together
                pass
            case m.StoreLog():  # in the background
                self._logs.ended(held.folder)
                self._apply(held, m.LogStored(is_complete=True))
            case m.ForgetAttempt():
                if held.record is None:  # it is another process's, or not needed any more
                    held.folder.discard()
                self._board.drop(held)
                self._forget(held)
            case m.LeaveAttempt():
                self._forget(held)

    def _forget(self, held: _Held) -> None:
        if held.outcome not in (None, Outcome.SUCCEEDED):
            _log.info("attempt_ended", attempt=str(held.id), outcome=held.outcome)
        del self._held[str(held.id)]
        self._answers.send(Answer(str(held.id), outcome=held.outcome).encode())
        self._end_if_done()

    # A driver.

    def _start(self, held: _Held) -> None:
        held.started_at, held.started_s, held.oom_kills = datetime.now(UTC), boottime_s(), self._oom_kills
        until_s = held.started_s + self._go_within_s
        self._drivers.start(
            held.folder,
            held.environment,
            held.plan.user,
            plan=held.driver,
            execute=held.executes,
            until_s=until_s,
        )

    def _can_fork(self, held: _Held, made: DriverPlan) -> bool:
        held.executes = not self._drivers.can_fork(made, {**held.plan.environment, **held.plan.secrets})
        return not held.executes

    def _measure(self, held: _Held) -> None:
        if held.limits is None:
            held.limits = held.limit_check(partial(self._drivers.processes, str(held.id)))
            self._logs.follow(held.folder, held.order.limits.log_bytes)
        if (why := held.limits.check()) is not None:
            self._apply(held, m.Exceeded(why))

    def drivers_are_ready(self) -> None:
        """See `DriversOwner`. Before that, an order would be claimed, and then wait too long."""
        if not self._leaving:
            self._loop.listen(self._worker.fileno(), self._receive)

    def not_preloaded(self, reasons: Mapping[str, str]) -> None:
        """See `DriversOwner`."""
        text = ", ".join(f"{module} ({why})" for module, why in reasons.items())
        self._answers.send(NotPreloaded(text).encode())

    def driver_ended(self, end: DriverEnd) -> None:
        """See `DriversOwner`."""
        held = self._held.get(end.attempt)
        if held is not None:
            held.used = end.used
            self._apply(held, m.Exited(end.status, held.folder.came_to_its_end(), end.fault))

    def zygote_ended(self) -> None:
        """See `DriversOwner`."""
        if not self._drivers.are_ready:
            self._loop.forget(self._worker.fileno())
        running = [held for held in self._held.values() if held.is_running]
        _log.error("zygote_died", running=len(running))
        for held in running:
            # Processes in their own session are not among the zygote's descendants any more.
            remains.kill_tagged(attempt_tag(held.plan.cluster, str(held.id)))
            self._apply(held, m.StarterDied())


def run_and_exit(folder: ExecutorFolder, startup: int, worker: socket.socket) -> int:
    """Run an executor in a forked process. `startup`: descriptor of an `ExecutorStartup`; it is closed."""
    configure_log()
    end_with_any_thread()
    if not _has_lock(folder):
        os._exit(0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with os.fdopen(startup, "rb", buffering=0) as source:
        given = read_executor_startup(source)
    enter_environment(given.connections)
    try:
        executor = ExecutorProcess(folder, worker, given)
        signal.signal(signal.SIGTERM, executor.leave)
        status = executor.run()
    except Exception:  # noqa: BLE001 - the top of the program
        _log.exception("executor_failed")
        status = EXIT_FAILED
    leave(status)  # at once: a thread that hangs must not keep the lock


def _has_lock(folder: ExecutorFolder) -> bool:
    """Take the lock; False: a worker considered this executor dead before, and removes the folder."""
    try:
        lock = folder.lock.take(own_process())
        return lock is not None and os.path.samestat(os.fstat(lock), folder.lock.path.stat())
    except FileNotFoundError:
        return False
