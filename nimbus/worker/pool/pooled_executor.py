"""Runs attempts in an executor process, and settles the attempts of a dead one. Worker thread."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from functools import partial

import structlog

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import Assignment
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.log import LeftoverLogs
from nimbus.worker.executor import AttemptPhase, Sight, WorkerContext
from nimbus.worker.host import procfs, remains
from nimbus.worker.host.identity import host_id, own_process
from nimbus.worker.host.loop import Action
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.host.remains import attempt_tag
from nimbus.worker.launcher import ForkLauncher
from nimbus.worker.pool.folder import NONE_RUNS, ExecutorFolder, exit_of, read_exits
from nimbus.worker.pool.messages import Answer, NotPreloaded, Unstored, connected, receive_answer, send_order
from nimbus.worker.settings import ExecutorStartup, RunnerPlan

_FULL_PAUSE_S = 0.05
_MAX_FAILURES = 3

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Live:
    folder: ExecutorFolder
    connection: socket.socket | None
    """None: an earlier worker started it, and it accepts no orders from this one."""
    sent: set[str] = field(default_factory=set)
    unstored: Unstored = field(default_factory=Unstored)
    not_preloaded: NotPreloaded = field(default_factory=NotPreloaded)


class PooledExecutor:
    """See `nimbus.worker.executor.Executor`. It starts an executor process when one is needed."""

    def __init__(
        self, context: WorkerContext, logs: LeftoverLogs, *, launcher: ForkLauncher, read_orders: Action
    ) -> None:
        """`read_orders` makes the worker read its orders again."""
        self._context, self._logs = context, logs
        self._launcher, self._read_orders = launcher, read_orders
        self._live: _Live | None = None
        self._failures = 0
        self._last_failure = ""
        self._orders: dict[str, Assignment] = {}

    @property
    def works(self) -> bool:
        """False if starting an executor failed repeatedly. Attempts can then run isolated."""
        return self._failures < _MAX_FAILURES

    @property
    def pid(self) -> int | None:
        """The pid of the executor that accepts orders; None if there is none."""
        holder = None if self._live is None else self._live.folder.lock.last_holder()
        return None if holder is None else holder.pid

    @property
    def state(self) -> str:
        """The executor process that accepts orders, or why there is none, as text."""
        if self._live is not None:
            state = "starting" if self.pid is None else f"pid {self.pid}"
            lacks = self._live.not_preloaded.text
            return f"{state}; not preloaded: {lacks}" if lacks else state
        if self._failures == 0:
            return NONE_RUNS
        return f"none: {self._last_failure}; pooled tasks {'wait' if self.works else 'run isolated'}"

    @property
    def unstored(self) -> Unstored:
        """Logs that the executor process could not store."""
        return Unstored() if self._live is None else self._live.unstored

    def close(self) -> None:
        """Close the connection, so that the executor ends with its last attempt."""
        if self._live is not None and self._live.connection is not None:
            self._context.loop.forget(self._live.connection.fileno())
            self._live.connection.close()
            self._live = None

    def sweep(self) -> None:
        """See `Executor.sweep`: watches living executor processes, and settles dead ones."""
        for folder in ExecutorFolder.all_in(self._context.settings.work_dir):
            live = _Live(folder, None, {str(task.attempt) for task in folder.tasks()})
            for attempt in live.sent:
                self._context.phases[attempt] = AttemptPhase.SETTLING
            self._await_end(live, folder.lock.last_holder())

    def launch(self, order: Assignment, plan: RunnerPlan) -> None:
        """See `Executor.launch`. Sends the attempt to the executor process."""
        live = self._live or self._started()
        assert live.connection is not None  # noqa: S101 - it is ours
        live.sent.add(order.attempt)
        self._orders[order.attempt] = order
        self._context.phases[order.attempt] = AttemptPhase.RUNNING
        try:
            send_order(live.connection, order, plan)
        except BlockingIOError:
            self._context.loop.after(_FULL_PAUSE_S, partial(self._launch_again, order, plan))
        except (BrokenPipeError, ConnectionResetError) as exc:  # when it ends, the order is handled again
            _log.warning("executor_has_ended", attempt=order.attempt, error=str(exc))

    def _launch_again(self, order: Assignment, plan: RunnerPlan) -> None:
        if self._live is not None and order.attempt in self._live.sent:
            self._context.do(partial(self.launch, order, plan))

    def _started(self) -> _Live:
        folder = ExecutorFolder.new(self._context.settings.work_dir)
        ours, theirs = connected()
        try:
            with theirs:
                settings = self._context.settings
                startup = ExecutorStartup(
                    connections=self._context.connections, preload=settings.preload, env=settings.env
                )
                process = self._launcher.fork_executor(folder, startup.encode(), theirs)
        except OSError as exc:
            ours.close()
            folder.remove()
            self._failures += 1
            self._last_failure = str(exc)
            raise
        self._failures = 0
        _log.info("executor_started", pid=process.pid if process else None, folder=str(folder.path))
        live = self._live = _Live(folder, ours)
        self._context.loop.listen(ours.fileno(), partial(self._receive, live))
        self._await_end(live, process)
        return live

    def _await_end(self, live: _Live, process: ProcessId | None) -> None:
        settle = partial(self._context.do, partial(self._settle, live, process))
        handle = procfs.open_handle(process) if process is not None else None
        if handle is not None:
            self._context.loop.when_ended(handle, settle)
        else:
            self._context.loop.after(0.0, settle)

    def _receive(self, live: _Live) -> None:
        assert live.connection is not None  # noqa: S101 - it is ours
        while True:
            try:
                answer = receive_answer(live.connection)
            except BlockingIOError:
                return
            except ConnectionResetError:  # raised once, before its last messages
                continue
            if answer is None:  # the handler of its end does the rest
                self._context.loop.forget(live.connection.fileno())
                live.connection.close()
                if self._live is live:
                    self._live = None
                return
            if isinstance(answer, Unstored):
                live.unstored = answer
            elif isinstance(answer, NotPreloaded):
                live.not_preloaded = answer
            else:
                self._done_with(live, answer)

    def _done_with(self, live: _Live, answer: Answer) -> None:
        live.sent.discard(answer.attempt)
        order = self._orders.pop(answer.attempt, None)
        if answer.refused is not None and order is not None:
            self._context.refuse(order, answer.refused)
        else:
            self._context.done(answer.attempt, answer.outcome)

    # After its end.

    def _settle(self, live: _Live, process: ProcessId | None) -> None:
        """End the attempts of a dead executor. Repeated as a whole until everything is done."""
        if self._live is live:
            self._live = None
        folder = live.folder
        if process is not None:
            remains.kill_session(process)
        attempts = live.sent | {str(task.attempt) for task in folder.tasks()}
        if attempts:
            _log.warning("executor_died", folder=str(folder.path), attempts=sorted(attempts))
        exits = read_exits(folder.exits)
        for attempt in sorted(attempts):
            remains.kill_tagged(self._tag(attempt))
            self._settle_one(folder, attempt, exits.get(attempt))
            live.sent.discard(attempt)
        self._read_orders()
        self._remove(folder)

    def _settle_one(self, folder: ExecutorFolder, attempt: str, record: End | None) -> None:
        self._orders.pop(attempt, None)
        task = folder.task(attempt)
        end = record or self._lost(task)
        if end is None:  # unclaimed, archived, or claimed by another process: read the order again
            self._context.phases.pop(attempt, None)
        else:
            self._context.settle(end)
            self._context.done(attempt, end.outcome)
        self._logs.store(task, partial(self._discard, folder, task))

    def _lost(self, task: AttemptFolder) -> End | None:
        claim = self._context.board.read(task.attempt).claim
        if claim is None or claim.folder != str(task.path):
            return None
        return self._context.lost(claim.attempt, claim, "its executor died")

    def _discard(self, folder: ExecutorFolder, task: AttemptFolder) -> None:
        task.discard()
        self._remove(folder)

    def _remove(self, folder: ExecutorFolder) -> None:
        if any(folder.tasks()) or not folder.path.is_dir():
            return
        if (lock := folder.lock.take(own_process())) is not None:  # else an executor is starting in it
            folder.remove()
            os.close(lock)

    # The methods below are for attempts of any worker of this host.

    def probe(self, attempt: str, claim: Claim | None) -> Sight:
        """See `Executor.probe`. An executor process lives as long as it holds its folder's lock."""
        if claim is not None and claim.host != host_id():
            return Sight.ELSEWHERE
        folder = None if claim is None else ExecutorFolder.of_claim(claim)
        held = folder is not None and folder.lock.is_held()
        return Sight.ALIVE if held or remains.runners(self._tag(attempt)) else Sight.GONE

    def collect(self, attempt: str, claim: Claim | None) -> End:
        """See `Executor.collect`."""
        folder = None if claim is None else ExecutorFolder.of_claim(claim)
        if folder is not None and (process := folder.lock.last_holder()) is not None:
            remains.kill_session(process)
        remains.kill_tagged(self._tag(attempt))
        # Read only now: a living executor process may still write the record.
        record = exit_of(folder.exits, claim) if folder is not None and claim is not None else None
        return record or self._context.lost(attempt, claim, "its executor is gone from its host")

    def _tag(self, attempt: str) -> str:
        return attempt_tag(self._context.board.cluster(), attempt)
