"""A worker's side of its executor: orders go to it, and what a dead one left is settled. Worker thread."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import structlog

from nimbus.domain.slots import End
from nimbus.domain.workers import Assignment
from nimbus.ports import AttemptBoard, Clock, LogArchive
from nimbus.worker import procfs, settlement
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.connections import Connections
from nimbus.worker.fork_launcher import ForkLauncher
from nimbus.worker.identity import own_process
from nimbus.worker.keeper import Phase
from nimbus.worker.log_upload import store_rest
from nimbus.worker.loop import Action, Loop
from nimbus.worker.pool.exits import read_exits
from nimbus.worker.pool.folder import ExecutorFolder
from nimbus.worker.pool.messages import PooledOrder, connected, receive_answer, send_order
from nimbus.worker.procfs import ProcessId
from nimbus.worker.retry import pauses
from nimbus.worker.settings import RunnerPlan, WorkerSettings, encode_connections
from nimbus.worker.tags import attempt_tag

_FULL_PAUSE_S = 0.05
_MOST_FAILURES = 3

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Live:
    """An executor that was alive when we looked last."""

    folder: ExecutorFolder
    connection: socket.socket | None
    """None: an earlier worker started it, and it takes no orders of ours."""
    sent: set[str] = field(default_factory=set)
    """Attempts that it has not done with."""


class PooledExecutor:
    """Runs pooled attempts, through an executor that it starts when it is needed."""

    def __init__(
        self,
        *,
        settings: WorkerSettings,
        board: AttemptBoard,
        logs: LogArchive | None,
        connections: Connections,
        clock: Clock,
        launcher: ForkLauncher,
        loop: Loop,
        do: Callable[[Action], None],
        phases: dict[str, Phase],
        refuse: Callable[[Assignment, str], None],
        look_again: Callable[[], None],
    ) -> None:
        """`do` runs an action now, and again later if ZooKeeper or the disk did not allow it."""
        self._settings, self._board, self._logs, self._clock = settings, board, logs, clock
        self._connections, self._launcher, self._loop, self._do = connections, launcher, loop, do
        self._phases, self._refuse, self._look_again = phases, refuse, look_again
        self._live: _Live | None = None
        self._failures = 0
        """To start an executor, since one was started."""
        self._orders: dict[str, Assignment] = {}
        self._log_pool = ThreadPoolExecutor(1, thread_name_prefix="worker-logs")

    @property
    def works(self) -> bool:
        """False: no executor could be started, again and again. Attempts can be run isolated."""
        return self._failures < _MOST_FAILURES

    @property
    def pid(self) -> int | None:
        """Of the executor that takes orders; None while there is none."""
        holder = None if self._live is None else self._live.folder.lock.last_holder()
        return None if holder is None else holder.pid

    def close(self) -> None:
        """Let the executor end with its last attempt."""
        if self._live is not None and self._live.connection is not None:
            self._loop.forget(self._live.connection.fileno())
            self._live.connection.close()
            self._live = None
        self._log_pool.shutdown(wait=False, cancel_futures=True)

    def sweep(self) -> None:
        """Pick up what earlier workers left: executors that live on, and those that died."""
        for folder in ExecutorFolder.all_in(self._settings.work_dir):
            live = _Live(folder, None, {str(task.attempt) for task in folder.tasks()})
            for attempt in live.sent:
                self._phases[attempt] = Phase.SETTLING
            self._await_end(live, folder.lock.last_holder())

    def launch(self, order: Assignment, plan: RunnerPlan) -> None:
        """Send an attempt to the executor. Safe to repeat.

        Raises:
            OSError: no executor can be started now; try again.
        """
        live = self._live or self._started()
        assert live.connection is not None  # noqa: S101 - it is ours
        live.sent.add(order.attempt)
        self._orders[order.attempt] = order
        self._phases[order.attempt] = Phase.RUNNING
        try:
            send_order(live.connection, PooledOrder(order=order, plan=plan))
        except BlockingIOError:
            self._loop.after(_FULL_PAUSE_S, partial(self._launch_again, order, plan))
        except (
            BrokenPipeError,
            ConnectionResetError,
        ) as exc:  # its end brings the order back
            _log.warning("executor_has_ended", attempt=order.attempt, error=str(exc))

    def _launch_again(self, order: Assignment, plan: RunnerPlan) -> None:
        if self._live is not None and order.attempt in self._live.sent:
            self._do(partial(self.launch, order, plan))

    def _started(self) -> _Live:
        folder = ExecutorFolder.new(self._settings.work_dir)
        ours, theirs = connected()
        try:
            with theirs:
                process = self._launcher.fork_executor(folder, encode_connections(self._connections), theirs)
        except OSError:
            ours.close()
            folder.remove()
            self._failures += 1
            raise
        self._failures = 0
        _log.info("executor_started", pid=process.pid if process else None, folder=str(folder.path))
        live = self._live = _Live(folder, ours)
        self._loop.listen(ours.fileno(), partial(self._hear, live))
        self._await_end(live, process)
        return live

    def _await_end(self, live: _Live, process: ProcessId | None) -> None:
        settle = partial(self._do, partial(self._settle, live, process))
        handle = procfs.open_handle(process) if process is not None else None
        if handle is not None:
            self._loop.when_ended(handle, settle)
        else:
            self._loop.after(0.0, settle)

    def _hear(self, live: _Live) -> None:
        assert live.connection is not None  # noqa: S101 - it is ours
        while True:
            try:
                answer = receive_answer(live.connection)
            except BlockingIOError:
                return
            except ConnectionResetError:  # said once, before what it has still sent
                continue
            if answer is None:  # its end is awaited, too
                self._loop.forget(live.connection.fileno())
                live.connection.close()
                if self._live is live:
                    self._live = None
                return
            self._done_with(live, *answer)

    def _done_with(self, live: _Live, attempt: str, refused: str | None) -> None:
        live.sent.discard(attempt)
        order = self._orders.pop(attempt, None)
        self._phases[attempt] = Phase.DONE
        if refused is not None and order is not None:
            self._refuse(order, refused)

    # After its end.

    def _settle(self, live: _Live, process: ProcessId | None) -> None:
        """Bring the attempts of a dead executor to their end. Repeated as a whole until all of it is done."""
        if self._live is live:
            self._live = None
        folder = live.folder
        if process is not None:
            settlement.kill_session(process)
        attempts = live.sent | {str(task.attempt) for task in folder.tasks()}
        if attempts:
            _log.warning("executor_died", folder=str(folder.path), attempts=sorted(attempts))
        exits = read_exits(folder.exits)
        for attempt in sorted(attempts):
            settlement.kill_tagged(attempt_tag(self._board.cluster(), attempt))
            self._settle_one(folder, attempt, exits.get(attempt))
            live.sent.discard(attempt)
        self._look_again()
        self._remove(folder)

    def _settle_one(self, folder: ExecutorFolder, attempt: str, record: End | None) -> None:
        self._orders.pop(attempt, None)
        task = folder.task(attempt)
        end = record or self._lost(task)
        if end is None:  # it was not claimed, or is archived, or another one has it: an order is taken anew
            self._phases.pop(attempt, None)
            self._store_log(folder, task, pauses(1.0, 30.0))
            return
        why = settlement.put_end(self._board, end)
        _log.info("attempt_settled", attempt=attempt, outcome=end.outcome.value, why=why)
        self._phases[attempt] = Phase.DONE
        self._store_log(folder, task, pauses(1.0, 30.0))

    def _lost(self, task: AttemptFolder) -> End | None:
        claim = self._board.read(task.attempt).claim
        if claim is None or claim.folder != str(task.path):
            return None
        return settlement.lost(claim, "its executor died", self._clock.now())

    def _store_log(self, folder: ExecutorFolder, task: AttemptFolder, waits: Iterator[float]) -> None:
        if self._logs is None or not task.log_size():
            task.discard()
            return
        storing = self._log_pool.submit(store_rest, task, self._logs)
        storing.add_done_callback(
            lambda done: self._loop.post(partial(self._stored, folder, task, done, waits))
        )

    def _stored(
        self, folder: ExecutorFolder, task: AttemptFolder, done: Future[None], waits: Iterator[float]
    ) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            _log.warning("log_not_stored", attempt=str(task.attempt), error=str(error)[:300])
            self._loop.after(next(waits), partial(self._store_log, folder, task, waits))
        elif not done.cancelled():
            task.discard()
            self._remove(folder)

    def _remove(self, folder: ExecutorFolder) -> None:
        if any(folder.tasks()):
            return
        if (lock := folder.lock.take(own_process())) is not None:  # else one starts in it just now
            folder.remove()
            os.close(lock)
