"""Runs the pooled attempts of one worker, and outlives it until they have ended.

The worker's fork server forks it. Guarantees, whichever process dies at whichever time:
  * User code starts only after our CLAIM is in ZooKeeper. If our session may have expired in the meantime, so
    that a leader may have closed the attempt, END is read first.
  * A driver dies with the zygote, and the zygote with the executor. While the executor lives, which its lock
    shows, no attempt is reported as lost.
  * An outage of ZooKeeper or S3 does not affect running drivers.
  * The output of a successful attempt, and its exit record, are on disk before its END.

Threads: main (the loop below), `executor-board`, `executor-logs`, `executor-flush_<n>` while outputs are
committed, with `data-transfer_<n>` if they are uploaded, and those of the ZooKeeper client.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import structlog

from nimbus.attempt.model import Ordered, Story
from nimbus.domain.ids import AttemptId
from nimbus.domain.slots import Claim, End, Holder, Slots
from nimbus.domain.task_run import Outcome
from nimbus.ports import AttemptBoard
from nimbus.worker import procfs, remains
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.board_link import CHECKPOINT_EVERY_S, outdated_by
from nimbus.worker.clock import boottime_s
from nimbus.worker.connections import Connections, enter_environment, open_board, open_data, open_logs
from nimbus.worker.data.commit import committed
from nimbus.worker.data.places import place_of
from nimbus.worker.data.ports import DataPlace
from nimbus.worker.driver_plan import attempt_environment, make_output, measured, write_plan
from nimbus.worker.identity import own_process
from nimbus.worker.limited_log import LimitedLog
from nimbus.worker.limits import LimitWatch, limits_of
from nimbus.worker.log_upload import log_tail
from nimbus.worker.loop import Loop
from nimbus.worker.pool.board_thread import BoardThread
from nimbus.worker.pool.drivers import DriverEnd, Drivers
from nimbus.worker.pool.exits import Exits
from nimbus.worker.pool.folder import ExecutorFolder
from nimbus.worker.pool.logs import Logs
from nimbus.worker.pool.messages import Answer, PooledOrder, Unstored, receive_order
from nimbus.worker.pool.outbox import Outbox
from nimbus.worker.process_log import EXIT_FAILED, configure_log, end_with_any_thread, leave
from nimbus.worker.settings import read_connections
from nimbus.worker.tags import attempt_tag
from nimbus.worker.verdict import Verdict, judge

_TICK_S = 0.5
_EMPTY_LOOKS = 3
_STUCK_S = 10.0
"""Time after a SIGKILL of a driver; if the zygote has not reported its end by then, it counts as stuck."""
_LOOK_AFTER_S = 0.3
"""An attempt that has run this long is read on the board, and watched from then on."""
_LOOK_EVERY_S = 5.0
"""Interval of reads without a watch event, so that a lost watch costs seconds, not the attempt."""
_PROGRESS_EVERY_S = 2.0
_FLUSHING_AT_ONCE = 4
_LOGS_DEADLINE_S = 5.0
_LEAVE_S = 2.0
"""Time for the delivery of ENDs after SIGTERM."""

_log = structlog.get_logger("nimbus.worker.executor")


@dataclass(slots=True, eq=False)
class _Held:
    """An attempt of this executor."""

    order: PooledOrder
    folder: AttemptFolder
    claim: Claim
    output: Path
    place: DataPlace
    begun: Future[None]
    """The result of `place.begin`."""
    deadline_s: float = float("inf")
    """Seconds since boot; set when it starts."""
    started_at: datetime | None = None
    started_s: float = 0.0
    oom_kills: int = 0
    """The machine's count before it started."""
    running: bool = False
    committing: bool = False
    """True while its output is being flushed or uploaded."""
    ordered: Ordered = Ordered.NOT
    was_done: bool = False
    """True if its code had come to its end before it was ordered to end."""
    kill_at_s: float = float("inf")
    watched: bool = False
    looked_s: float = 0.0
    gone_since_s: float | None = None
    empty_looks: int = 0
    """Reads without its claim, before it starts."""
    looking: bool = False
    beating: bool = False
    """True while a beat is queued for the board."""
    killed_s: float | None = None
    watch: LimitWatch | None = None
    """Measures its use, after it has run for a while."""
    log: LimitedLog | None = None
    exceeded: str | None = None
    progress: Any = None
    progress_s: float = 0.0
    kept: str | None = None
    """The checkpoint that was sent last."""
    kept_s: float = 0.0
    keeping: bool = False
    """True while a checkpoint is queued for the board."""

    @property
    def attempt(self) -> AttemptId:
        return self.folder.attempt


class Executor:
    """One executor. Main thread."""

    def __init__(self, folder: ExecutorFolder, worker: socket.socket, connections: Connections) -> None:
        self._folder, self._worker = folder, worker
        self._loop = Loop()
        self._held: dict[str, _Held] = {}
        self._answers = Outbox(worker, self._loop)
        self._leaving = False
        """True if there are no more orders: the process ends with its last attempt."""
        self._ticking, self._oom_kills = False, 0
        self._drivers = Drivers(self._loop, ended=self._driver_ended, zygote_ended=self._all_lost)
        self._flush = ThreadPoolExecutor(_FLUSHING_AT_ONCE, thread_name_prefix="executor-flush")
        self._board = BoardThread(partial(open_board, connections), Exits(folder.exits), self._loop.post)
        self._logs = Logs(partial(open_logs, connections), self._tell_unstored)
        self._open_data = cache(partial(open_data, connections.data))
        self._go_within_s = connections.session_timeout_s / 2

    def run(self) -> int:
        """Serve until the worker and the last attempt have ended."""
        self._board.start()
        self._loop.listen(self._worker.fileno(), self._receive)
        self._loop.run()
        self._drivers.close()
        self._logs.close(_LOGS_DEADLINE_S)
        return 0

    def _tell_unstored(self, unstored: Unstored) -> None:
        self._loop.post(partial(self._answers.send, unstored.encode()))

    def leave(self, *_signal: object) -> None:
        """Handle SIGTERM: accept no more orders. Attempts continue; a worker delivers waiting ENDs."""
        self._loop.post(self._leave)
        self._loop.post(partial(self._loop.after, _LEAVE_S, self._give_up))

    def _give_up(self) -> None:
        if any(held.running or held.committing for held in self._held.values()):
            self._loop.after(_LEAVE_S, self._give_up)
        else:
            self._loop.stop()

    def _leave(self) -> None:
        if self._leaving:
            return
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
            self._take(order)

    def _take(self, order: PooledOrder) -> None:
        attempt = order.order.attempt
        if attempt in self._held:
            return
        try:
            folder = self._folder.create_task(attempt)
            output = make_output(folder, order.plan, order.order)
            write_plan(folder, order.plan, order.order)
        except OSError as exc:
            self._folder.task(attempt).discard()
            why = f"its folders cannot be made: {exc.strerror}: {exc.filename}"
            self._answers.send(Answer(attempt, why).encode())
            return
        claim = Claim(
            attempt=attempt,
            worker=order.plan.worker,
            host=order.plan.host,
            holder=Holder.POOLED,
            claimed_at=datetime.now(UTC),
            nonce=secrets.token_hex(8),
            folder=str(folder.path),
        )
        place = place_of(order.plan, self._open_data)
        begun = self._flush.submit(place.begin, output)
        held = self._held[attempt] = _Held(order, folder, claim, output, place, begun)
        self._board.fill(claim, partial(self._claimed, held))

    def _claimed(self, held: _Held, standing: Claim | End | None, asked_s: float) -> None:
        if not isinstance(standing, Claim) or standing.nonce != held.claim.nonce:
            _log.warning("claim_refused", attempt=str(held.attempt), standing=str(standing))
            self._drop(held)
        elif boottime_s() - asked_s <= self._go_within_s:
            self._start(held)
        else:  # this process was stopped: a leader may have closed it, and another attempt may run
            _log.warning("claim_looked_at_again", attempt=str(held.attempt))
            self._board.call(self._read(held, None), partial(self._start_if_ours, held, boottime_s()))

    def _start_if_ours(self, held: _Held, asked_s: float, slots: Slots) -> None:
        if outdated_by(slots, held.claim):
            self._drop(held)
        elif slots.claim is not None:
            self._claimed(held, slots.claim, asked_s)
        elif held.empty_looks < _EMPTY_LOOKS:  # a server may lag behind
            held.empty_looks += 1
            again = partial(self._board.call, self._read(held, None))
            self._loop.after(1.0, lambda: again(partial(self._start_if_ours, held, boottime_s())))
        else:
            self._end(held, Verdict(Outcome.LOST, "its claim is gone", None))

    def _drop(self, held: _Held) -> None:
        """Drop an attempt that another process has, or that is not needed any more."""
        held.folder.discard()
        self._done(held)

    def _done(self, held: _Held, outcome: Outcome | None = None) -> None:
        del self._held[str(held.attempt)]
        self._answers.send(Answer(str(held.attempt), outcome=outcome).encode())
        self._end_if_done()

    # A driver.

    def _start(self, held: _Held) -> None:
        held.running, held.started_at, held.started_s = True, datetime.now(UTC), boottime_s()
        held.looked_s = held.started_s
        timeout = held.order.order.timeout
        if timeout is not None:
            held.deadline_s = held.started_s + timeout.total_seconds()
        plan, until_s = held.order.plan, held.started_s + self._go_within_s
        environment = attempt_environment(held.folder, plan)
        self._drivers.start(held.folder, environment, plan.user, until_s=until_s)
        if not self._ticking:
            self._ticking, self._oom_kills = True, procfs.oom_kills()
            self._loop.after(_TICK_S, self._tick)
        held.oom_kills = self._oom_kills

    def _driver_ended(self, end: DriverEnd) -> None:
        held = self._held.get(end.attempt)
        if held is None or not held.running:
            return
        held.running = False
        if end.fault:
            verdict = Verdict(Outcome.REFUSED, f"the driver cannot begin: {end.fault}", None)
        else:
            is_not_ordered, is_program = held.ordered is Ordered.NOT, held.order.order.task.kind.is_program
            came_to_its_end = held.folder.came_to_its_end() if is_not_ordered else held.was_done
            is_clear = end.status == 0 and (came_to_its_end or is_program)
            verdict = judge(
                Story(end.status, held.ordered, came_to_its_end, exceeded=held.exceeded or ""),
                is_program=is_program,
                timeout=held.order.order.timeout,
                log_tail="" if is_clear else log_tail(held.folder),
                oom_killer=end.status != 0 and procfs.oom_kills() > held.oom_kills,
            )
        if verdict.outcome is not Outcome.SUCCEEDED:
            self._end(held, verdict)
            return
        held.committing = True
        committing = self._flush.submit(
            committed, verdict, held.place, held.folder, held.output, held.begun.result
        )
        committing.add_done_callback(lambda done: self._loop.post(partial(self._committed, held, done)))

    def _committed(self, held: _Held, done: Future[tuple[Verdict, str | None]]) -> None:
        self._end(held, *done.result())

    def _end(self, held: _Held, verdict: Verdict, reference: str | None = None) -> None:
        end = End(
            attempt=str(held.attempt),
            outcome=verdict.outcome,
            written_by="executor",
            ended_at=datetime.now(UTC),
            started_at=held.started_at,
            exit_code=verdict.exit_code,
            reason=verdict.reason,
            failure=verdict.failure,
            output=reference,
            result=verdict.result,
            checkpoint=None if verdict.outcome is Outcome.SUCCEEDED else held.folder.checkpoint(),
            nonce=held.claim.nonce,
        )
        self._board.fill(end, partial(self._ended, held))

    def _ended(self, held: _Held, standing: Claim | End | None, _asked_s: float) -> None:
        if isinstance(standing, End) and standing.outcome is not Outcome.SUCCEEDED:
            _log.info("attempt_ended", attempt=str(held.attempt), outcome=standing.outcome.value)
        self._logs.ended(held.folder)
        self._done(held, standing.outcome if isinstance(standing, End) else None)

    def _all_lost(self) -> None:
        _log.error("zygote_died", running=sum(held.running for held in self._held.values()))
        for held in list(self._held.values()):
            if held.running:
                held.running = False
                # Processes in their own session are not among the zygote's descendants any more.
                remains.kill_tagged(attempt_tag(held.order.plan.cluster, str(held.attempt)))
                self._end(held, Verdict(Outcome.LOST, "the process that forked its driver died", None))

    # Attempts that run for a while.

    def _tick(self) -> None:
        now, self._oom_kills = boottime_s(), procfs.oom_kills()
        running = [held for held in self._held.values() if held.running]
        for held in running:
            self._bound(held, now)
        self._look_at([held for held in running if self._is_due(held, now)], now)
        for held in running:
            self._tell_progress(held, now)
            self._keep_checkpoint(held, now)
        if self._held:
            self._loop.after(_TICK_S, self._tick)
        else:
            self._ticking = False

    def _bound(self, held: _Held, now: float) -> None:
        """End a driver at its timeout or limit, on request, or if its work became useless."""
        if held.ordered is Ordered.NOT and now >= held.deadline_s:
            self._ask_to_end(held, Ordered.TIMEOUT)
        self._limit(held, now)
        if now >= held.kill_at_s:
            held.kill_at_s, held.killed_s = float("inf"), now
            self._drivers.signal(str(held.attempt), signal.SIGKILL)
        if held.killed_s is not None and now - held.killed_s > _STUCK_S:
            _log.error("zygote_stuck", attempt=str(held.attempt))
            held.killed_s = None
            self._drivers.kill_zygote()

    def _limit(self, held: _Held, now: float) -> None:
        if held.watch is None or held.log is None:
            held.watch = LimitWatch(
                limits_of(held.order.order),
                processes=partial(self._drivers.processes, str(held.attempt)),
                folders=measured(held.folder, held.output),
            )
            held.log = LimitedLog(held.folder.log, limits_of(held.order.order).log_bytes)
        with suppress(OSError):  # the file system cannot punch holes, so the log grows
            held.log.free_middle()
        if held.exceeded is None and (why := held.watch.check(now)) is not None:
            held.exceeded = why
            self._ask_to_end(held, Ordered.LIMIT)

    def _ask_to_end(self, held: _Held, why: Ordered) -> None:
        if held.ordered is not Ordered.NOT or not held.running:
            return
        _log.warning("driver_asked_to_end", attempt=str(held.attempt), why=why.value)
        now = boottime_s()
        held.ordered, held.was_done = why, held.folder.came_to_its_end()
        held.kill_at_s = now + held.order.plan.stop_grace_s
        if why is Ordered.LIMIT:
            held.kill_at_s, held.killed_s = float("inf"), now
        number = signal.SIGKILL if why is Ordered.LIMIT else signal.SIGTERM
        self._drivers.signal(str(held.attempt), number)

    def _is_due(self, held: _Held, now: float) -> bool:
        long = now - held.started_s >= _LOOK_AFTER_S
        return long and not held.looking and (not held.watched or now - held.looked_s >= _LOOK_EVERY_S)

    def _look_at(self, due: list[_Held], now: float) -> None:
        if not due:
            return
        wanted: dict[AttemptId, Any] = {}
        for held in due:
            if not held.watched:
                self._logs.follow(held.folder, limits_of(held.order.order).log_bytes)
                wanted[held.attempt] = partial(self._loop.post, partial(self._changed, held))
            else:
                wanted[held.attempt] = None  # armed already; more watches would accumulate
            held.watched, held.looking, held.looked_s = True, True, now
        self._board.call(lambda board: board.read_all(wanted), partial(self._looked, due))

    def _read(self, held: _Held, changed: Any) -> Any:
        return lambda board: board.read(held.attempt, changed)

    def _changed(self, held: _Held) -> None:
        if held.running:
            again = partial(self._loop.post, partial(self._changed, held))
            self._board.call(self._read(held, again), partial(self._heed, held))

    def _looked(self, due: list[_Held], found: Mapping[AttemptId, Slots]) -> None:
        for held in due:
            self._heed(held, found[held.attempt])

    def _heed(self, held: _Held, slots: Slots) -> None:
        held.looking = False
        if not held.running:
            return
        now = boottime_s()
        if slots.claim is not None:
            held.gone_since_s = None
        if slots.stop_requested:
            self._ask_to_end(held, Ordered.STOP)
        if outdated_by(slots, held.claim):
            self._ask_to_end(held, Ordered.OUTDATED)
        elif slots.claim is None:
            # A server that lags behind may not show it for a moment; two reads, some seconds apart, prove
            # that the attempt was archived while we were cut off.
            if held.gone_since_s is None:
                held.gone_since_s = now
            elif now - held.gone_since_s >= _LOOK_EVERY_S:
                self._ask_to_end(held, Ordered.OUTDATED)
        elif not slots.beating:  # our session is new
            self._beat(held)

    def _tell_progress(self, held: _Held, now: float) -> None:
        if now - held.progress_s < _PROGRESS_EVERY_S or now - held.started_s < _PROGRESS_EVERY_S:
            return
        held.progress_s = now
        progress = held.folder.progress()
        if progress != held.progress:
            held.progress = progress
            self._beat(held)

    def _keep_checkpoint(self, held: _Held, now: float) -> None:
        if held.keeping or now - held.kept_s < CHECKPOINT_EVERY_S:
            return
        checkpoint, nonce, held.kept_s = held.folder.checkpoint(), held.claim.nonce, now
        if checkpoint in (None, held.kept) or nonce is None:
            return
        held.keeping, held.kept = True, checkpoint

        def keep(board: AttemptBoard) -> None:
            held.keeping = False
            board.keep_checkpoint(held.attempt, nonce, checkpoint)

        self._board.call(keep, lambda _: None)

    def _beat(self, held: _Held) -> None:
        if held.beating:
            return
        held.beating = True

        def beat(board: AttemptBoard) -> None:
            held.beating = False
            board.beat(held.attempt, held.progress)

        self._board.call(beat, lambda _: None)


def run_and_exit(folder: ExecutorFolder, startup: int, worker: socket.socket) -> int:
    """Run an executor, in a forked process with one thread.

    Args:
        folder: This executor's own folder.
        startup: Descriptor of the connections, as JSON; it is closed.
        worker: Socket of the worker, which sends orders.
    """
    configure_log()
    end_with_any_thread()
    if not _has_lock(folder):
        os._exit(0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with os.fdopen(startup, "rb", buffering=0) as source:
        connections = read_connections(source)
    enter_environment(connections)
    try:
        executor = Executor(folder, worker, connections)
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
