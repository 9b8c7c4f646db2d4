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

import json
import os
import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import structlog

from nimbus.attempt import model as m
from nimbus.attempt.life import Life
from nimbus.attempt.upkeep import Pace
from nimbus.domain.ids import AttemptId
from nimbus.domain.slots import Claim, End, Holder, Slots
from nimbus.domain.task_run import Outcome
from nimbus.ports import AttemptBoard
from nimbus.worker import procfs, remains
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.board_link import holder_of, looked
from nimbus.worker.clock import boottime_s
from nimbus.worker.connections import Connections, enter_environment, open_board, open_data, open_logs
from nimbus.worker.data.commit import committed
from nimbus.worker.data.places import place_of
from nimbus.worker.data.ports import DataPlace
from nimbus.worker.driver_plan import attempt_environment, make_output, measured, write_plan
from nimbus.worker.identity import own_process
from nimbus.worker.limit_check import LimitCheck
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
"""How often all attempts are looked at, and how long a log may grow beyond its limit."""
_STUCK_S = 10.0
"""Time after a SIGKILL of a driver; if the zygote has not reported its end by then, it counts as stuck."""
_LOOK_AFTER_S = 0.3
"""An attempt that has run this long is read on the board and measured, and watched from then on."""
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
    life: Life
    claim: Claim
    output: Path
    place: DataPlace
    begun: Future[None]
    """The result of `place.begin`."""
    started_at: datetime | None = None
    started_s: float = 0.0
    """Seconds since boot."""
    oom_kills: int = 0
    """The machine's count before it started."""
    limits: LimitCheck | None = None
    """Measures its use, after it has run for a while."""
    newest: dict[type[m.Beat | m.Keep], m.Beat | m.Keep] = field(default_factory=dict)
    queued: set[type[m.Beat | m.Keep]] = field(default_factory=set)
    """Kinds in `newest` that wait for the board."""
    kept: tuple[Verdict, str | None] | None = None
    """The verdict about a success after its output was stored, or was not; and the output's reference."""
    record: End | None = None
    outcome: Outcome | None = None
    """That of END."""

    @property
    def attempt(self) -> AttemptId:
        return self.folder.attempt

    @property
    def is_running(self) -> bool:
        return isinstance(self.life.state, m.Running)


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
        self._looks: dict[_Held, bool] = {}
        """Attempts that must be read together, soon; True: with a watch."""
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
        still = (m.Running, m.Clearing, m.Committing, m.Recording)
        if any(isinstance(held.life.state, still) for held in self._held.values()):
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
        held = _Held(order, folder, self._new_life(order), claim, output, place, begun)
        self._held[attempt] = held
        if not self._ticking:
            self._ticking, self._oom_kills = True, procfs.oom_kills()
            self._loop.after(_TICK_S, self._tick)
        self._follow(held, held.life.begin())

    def _new_life(self, order: PooledOrder) -> Life:
        timeout = order.order.timeout
        terms = m.Terms(
            timeout_s=m.NEVER_S if timeout is None else timeout.total_seconds(),
            stop_grace_s=order.plan.stop_grace_s,
            claim_valid_s=self._go_within_s,
            stuck_after_s=_STUCK_S,
            is_program=order.order.task.kind.is_program,
        )
        return Life(terms, Pace(first_look_s=_LOOK_AFTER_S))

    # Events and instructions.

    def _tick(self) -> None:
        now, self._oom_kills = boottime_s(), procfs.oom_kills()
        for held in list(self._held.values()):
            if now >= held.life.due_s:
                self._tell(held, m.Tick())
            if held.is_running and now - held.started_s >= _LOOK_AFTER_S:
                self._measure(held)
        if self._held:
            self._loop.after(_TICK_S, self._tick)
        else:
            self._ticking = False

    def _tell(self, held: _Held, event: m.Event) -> None:
        self._follow(held, held.life.hear(event, boottime_s()))

    def _follow(self, held: _Held, instructions: tuple[m.Instruction, ...]) -> None:
        for instruction in instructions:
            self._perform(held, instruction)

    def _perform(self, held: _Held, instruction: m.Instruction) -> None:
        match instruction:
            case m.Claim():
                self._board.fill(held.claim, partial(self._claimed, held))
            case m.Look(watch):
                self._look(held, watch=watch)
            case m.Beat() | m.Keep():
                self._write(held, instruction)
            case m.ReadNotes():
                progress = json.dumps(held.folder.progress())
                self._tell(held, m.NotesRead(progress, held.folder.checkpoint()))
            case m.Prepare():  # `_take` has made its files
                self._tell(held, m.Prepared())
            case m.Start() | m.AskToEnd() | m.Kill() | m.KillStarter():
                self._drive(held, instruction)
            case m.Clear() | m.Commit() | m.Record() | m.PutEnd() | m.StoreLog() | m.Forget() | m.Leave():
                self._finish(held, instruction)

    def _drive(self, held: _Held, instruction: m.Start | m.AskToEnd | m.Kill | m.KillStarter) -> None:
        match instruction:
            case m.Start():
                self._start(held)
            case m.AskToEnd(why, kill):
                was_done = held.folder.came_to_its_end()
                _log.warning("driver_asked_to_end", attempt=str(held.attempt), why=why.value)
                self._drivers.signal(str(held.attempt), signal.SIGKILL if kill else signal.SIGTERM)
                self._tell(held, m.ToldToEnd(was_done))
            case m.Kill():
                self._drivers.signal(str(held.attempt), signal.SIGKILL)
            case m.KillStarter():
                _log.error("zygote_stuck", attempt=str(held.attempt))
                self._drivers.kill_zygote()

    def _finish(
        self,
        held: _Held,
        instruction: m.Clear | m.Commit | m.Record | m.PutEnd | m.StoreLog | m.Forget | m.Leave,
    ) -> None:
        match instruction:
            case m.Clear():  # the zygote has ended its processes; see also `_all_lost`
                self._tell(held, m.Cleared())
            case m.Commit():
                self._commit(held)
            case m.Record(story):
                held.record = self._end(held, story)
                noted = partial(self._tell, held, m.Recorded())
                self._board.fill(held.record, partial(self._end_filled, held), noted)
            case m.PutEnd():  # the board's thread goes on to that by itself, because it takes many together
                pass
            case m.StoreLog():  # in the background
                self._logs.ended(held.folder)
                self._tell(held, m.LogStored(is_complete=True))
            case m.Forget() | m.Leave():
                self._forget(held)

    def _forget(self, held: _Held) -> None:
        if held.record is None:  # it is another process's, or not needed any more
            held.folder.discard()
        del self._held[str(held.attempt)]
        self._answers.send(Answer(str(held.attempt), outcome=held.outcome).encode())
        self._end_if_done()

    # The board.

    def _claimed(self, held: _Held, standing: Claim | End | None, asked_s: float) -> None:
        holder = holder_of(standing if isinstance(standing, Claim) else None, held.claim)
        if holder is not m.Holder.OURS:
            _log.warning("claim_refused", attempt=str(held.attempt), standing=str(standing))
        self._tell(held, m.Withdrawn() if standing is None else m.ClaimAnswered(holder, asked_s))

    def _look(self, held: _Held, *, watch: bool) -> None:
        if held.record is not None:  # END is on its way, and needs no answer
            return
        if not self._looks:
            self._loop.post(self._read_all)
        self._looks[held] = watch or self._looks.get(held, False)

    def _read_all(self) -> None:
        due, self._looks = self._looks, {}
        wanted = {held.attempt: self._changed(held) if watch else None for held, watch in due.items()}

        def read(board: AttemptBoard) -> tuple[float, Mapping[AttemptId, Slots]]:
            return boottime_s(), board.read_all(wanted)

        def tell(answer: tuple[float, Mapping[AttemptId, Slots]]) -> None:
            for held in due:
                self._tell(held, looked(answer[1][held.attempt], held.claim, answer[0]))

        self._board.call(read, tell)

    def _changed(self, held: _Held) -> Callable[[], None]:
        return partial(self._loop.post, partial(self._tell, held, m.Changed()))

    def _write(self, held: _Held, instruction: m.Beat | m.Keep) -> None:
        """Write the newest one of its kind when the board answers, unless END is on its way."""
        kind = type(instruction)
        held.newest[kind] = instruction
        if kind in held.queued:
            return
        held.queued.add(kind)

        def write(board: AttemptBoard) -> None:
            held.queued.discard(kind)
            if held.record is not None:
                return
            match held.newest[kind]:
                case m.Beat(progress):
                    board.beat(held.attempt, json.loads(progress))
                case m.Keep(checkpoint):
                    board.keep_checkpoint(held.attempt, str(held.claim.nonce), checkpoint)

        self._board.call(write, lambda _: None)

    def _end_filled(self, held: _Held, standing: Claim | End | None, _asked_s: float) -> None:
        if not isinstance(standing, End):
            self._tell(held, m.Withdrawn())
            return
        held.outcome = standing.outcome
        if standing.outcome is not Outcome.SUCCEEDED:
            _log.info("attempt_ended", attempt=str(held.attempt), outcome=standing.outcome.value)
        self._tell(held, m.EndAnswered(f"END says {standing.outcome} by {standing.written_by}"))

    # A driver.

    def _start(self, held: _Held) -> None:
        held.started_at, held.started_s, held.oom_kills = datetime.now(UTC), boottime_s(), self._oom_kills
        plan, until_s = held.order.plan, held.started_s + self._go_within_s
        environment = attempt_environment(held.folder, plan)
        self._drivers.start(held.folder, environment, plan.user, until_s=until_s)

    def _measure(self, held: _Held) -> None:
        if held.limits is None:
            limits = limits_of(held.order.order)
            watch = LimitWatch(
                limits,
                processes=partial(self._drivers.processes, str(held.attempt)),
                folders=measured(held.folder, held.output),
            )
            held.limits = LimitCheck(watch, LimitedLog(held.folder.log, limits.log_bytes))
            self._logs.follow(held.folder, limits.log_bytes)
        if (why := held.limits.check()) is not None:
            self._tell(held, m.Exceeded(why))

    def _driver_ended(self, end: DriverEnd) -> None:
        held = self._held.get(end.attempt)
        if held is not None:
            self._tell(held, m.Exited(end.status, held.folder.came_to_its_end(), end.fault))

    def _all_lost(self) -> None:
        running = [held for held in self._held.values() if held.is_running]
        _log.error("zygote_died", running=len(running))
        for held in running:
            # Processes in their own session are not among the zygote's descendants any more.
            remains.kill_tagged(attempt_tag(held.order.plan.cluster, str(held.attempt)))
            self._tell(held, m.StarterDied())

    # The end of an attempt.

    def _commit(self, held: _Held) -> None:
        success = Verdict(Outcome.SUCCEEDED, "", 0)
        committing = self._flush.submit(
            committed, success, held.place, held.folder, held.output, held.begun.result
        )
        committing.add_done_callback(lambda done: self._loop.post(partial(self._committed, held, done)))

    def _committed(self, held: _Held, done: Future[tuple[Verdict, str | None]]) -> None:
        held.kept = done.result()
        self._tell(held, m.Committed(held.kept[0].reason))

    def _end(self, held: _Held, story: m.Story) -> End:
        verdict, reference = held.kept or (self._judge(held, story), None)
        return End(
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

    def _judge(self, held: _Held, story: m.Story) -> Verdict:
        return judge(
            story,
            is_program=held.order.order.task.kind.is_program,
            timeout=held.order.order.timeout,
            log_tail=log_tail(held.folder),
            oom_killer=held.started_at is not None and procfs.oom_kills() > held.oom_kills,
        )


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
