"""An executor's loop, with drivers and a board that do what a test says."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import Isolation
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptBoard, Enqueue, StoreUnavailableError
from nimbus.worker.attempt import board_link
from nimbus.worker.attempt.connections import OpenBoard
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.data.places import FolderPlace
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.loop import Loop
from nimbus.worker.pool import executor
from nimbus.worker.pool.drivers import DriverEnd, Drivers, DriversOwner
from nimbus.worker.pool.executor import ExecutorProcess
from nimbus.worker.pool.folder import ExecutorFolder, read_exits
from nimbus.worker.pool.messages import connected, send_order
from nimbus.worker.settings import ExecutorStartup
from tests.nimbus.worker_bench import Bench, eventually

ATTEMPT = "run1.task.1"


class _Board:
    """Slots in memory."""

    def __init__(self) -> None:
        self.slots: dict[str, Claim | End] = {}
        self.away = False
        self.hangs: threading.Event | None = None
        """Set: reads wait for it."""
        self.reads = self.beats = 0
        self.defects = 0
        """How many of the next heartbeats fail with an error that nobody expects."""
        self.reads_fail = False
        self.has_heartbeat, self.stop_requested = True, False
        self.took_s = 0.0
        """How long a claim takes, on the clock `now_s`."""
        self.changed: Enqueue | None = None

    def now_s(self) -> float:
        return boottime_s() + (self.took_s if self.slots else 0.0)

    def fill(self, records: Sequence[Claim | End]) -> Sequence[Claim | End | None]:
        if self.away:
            raise StoreUnavailableError("away")
        return [self.slots.setdefault(type(record).__name__, record) for record in records]

    def read_all(self, attempts: Mapping[AttemptId, Enqueue | None]) -> Mapping[AttemptId, Slots]:
        self.reads += 1
        if self.reads_fail:
            raise KeyError("slots")
        if self.hangs is not None:
            self.hangs.wait(60)
        if self.away:
            raise StoreUnavailableError("away")
        self.changed = next(iter(attempts.values())) or self.changed
        claim = cast(Claim, self.slots.get("Claim"))
        slots = Slots(claim=claim, has_heartbeat=self.has_heartbeat, stop_requested=self.stop_requested)
        return dict.fromkeys(attempts, slots)

    def heartbeat(self, _: AttemptId, progress: Mapping[str, object]) -> None:
        del progress
        self.beats += 1
        if self.away:
            raise StoreUnavailableError("away")
        if self.defects:
            self.defects -= 1
            raise KeyError("beat")


class _Drivers:
    """Drivers that run until a test ends them."""

    are_ready = True

    def __init__(self, ended: Callable[[DriverEnd], None]) -> None:
        self._ended = ended
        self.started: list[AttemptFolder] = []
        self.signals: list[signal.Signals] = []

    def start(self, folder: AttemptFolder, *_: object, **__: object) -> None:
        self.started.append(folder)

    def can_fork(self, *_: object) -> bool:
        return True

    def signal(self, _: str, number: signal.Signals) -> None:
        self.signals.append(number)

    def processes(self, _: str) -> list[int]:
        return []

    def close(self) -> None:
        pass

    def end(self) -> None:
        """The driver ends after its code. Loop thread."""
        self.started[-1].done_file.touch()
        self._ended(DriverEnd(ATTEMPT, 0, ""))


class _Pool:
    """An executor on a thread."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.board = bench, _Board()
        monkeypatch.setattr(executor, "open_board", lambda _: self._opened())
        monkeypatch.setattr(executor, "Drivers", self._drivers)
        for module in (executor, board_link):
            monkeypatch.setattr(module, "boottime_s", self.board.now_s)
        self.folder = ExecutorFolder.new(bench.root / "w1")
        self.worker, theirs = connected()
        self.executor = ExecutorProcess(self.folder, theirs, ExecutorStartup(connections=bench.connections))
        self.left: Mapping[str, End] | None = None
        """The exit records on disk when the executor ended."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _opened(self) -> OpenBoard:
        return OpenBoard(cast(AttemptBoard, self.board), lambda: None)

    def _drivers(self, loop: Loop, owner: DriversOwner, **_: object) -> Drivers:
        self.drivers = _Drivers(owner.driver_ended)
        loop.post(owner.drivers_are_ready)
        return cast(Drivers, self.drivers)

    def _run(self) -> None:
        self.executor.run()
        self.left = read_exits(self.folder.exits)

    def order(self) -> None:
        order = self.bench.order("task.py", isolation=Isolation.POOLED)
        send_order(self.worker, order, self.bench.startup().plan)

    def do(self, action: Callable[[], None]) -> None:
        self.executor._loop.post(action)

    def end(self) -> End:
        return cast(End, eventually(lambda: self.board.slots.get("End"), "END"))

    def close(self) -> None:
        self.worker.close()
        self.executor._loop.stop()
        self._thread.join(60)
        self.executor._board.close()
        self.executor._flush.shutdown()


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Pool]:
    bench = Bench(tmp_path)
    made = _Pool(bench, monkeypatch)
    yield made
    made.close()
    bench.close()


def test_executor_that_must_end_in_an_outage_leaves_the_record_of_a_success(pool: _Pool) -> None:
    pool.board.hangs = threading.Event()
    pool.order()
    eventually(lambda: pool.board.reads, "the board is asked, and does not answer")

    pool.do(pool.drivers.end)
    eventually(lambda: pool.executor._held[ATTEMPT].record, "the record is made")
    pool.executor.leave()
    pool.board.away = True
    pool.board.hangs.set()

    eventually(lambda: pool.left is not None, "it ends")
    assert pool.left is not None
    assert pool.left[ATTEMPT].outcome is Outcome.SUCCEEDED


def test_executor_that_must_end_in_an_outage_leaves_a_claim_to_a_worker(pool: _Pool) -> None:
    pool.board.away = True
    pool.order()
    eventually(lambda: pool.executor._held, "the order is taken")

    pool.executor.leave()

    eventually(lambda: pool.left is not None, "it ends")
    assert pool.folder.task(ATTEMPT).path.is_dir()
    assert not pool.board.slots


def test_attempt_has_heartbeats_while_its_output_is_stored(
    pool: _Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing, goes_on = threading.Event(), threading.Event()

    def commit(*_: object, **_named: object) -> None:
        storing.set()
        goes_on.wait(60)

    monkeypatch.setattr(FolderPlace, "commit", commit)
    pool.order()
    changed = eventually(lambda: pool.board.changed, "the board is watched")
    pool.do(pool.drivers.end)
    assert storing.wait(60)

    pool.board.has_heartbeat = False
    changed()

    try:
        eventually(lambda: pool.board.beats, "a heartbeat")
    finally:
        goes_on.set()
    assert pool.end().outcome is Outcome.SUCCEEDED


def test_defect_in_a_heartbeat_costs_no_attempt_its_executor(pool: _Pool) -> None:
    pool.board.defects, pool.board.has_heartbeat = 1, False
    pool.order()
    eventually(lambda: pool.board.beats > 1, "the heartbeat is tried again")

    pool.do(pool.drivers.end)

    assert pool.end().outcome is Outcome.SUCCEEDED


def test_read_that_always_fails_is_not_tried_any_more_after_the_end(pool: _Pool) -> None:
    pool.board.reads_fail = True
    pool.order()
    eventually(lambda: pool.board.reads, "the board is read")

    pool.do(pool.drivers.end)

    assert pool.end().outcome is Outcome.SUCCEEDED
    eventually(lambda: not pool.executor._held, "it is over")
    eventually(lambda: not pool.executor._board._waiting, "nothing waits for the board")


def test_late_claim_is_read_again_and_a_stop_seen_there_is_kept(pool: _Pool) -> None:
    pool.board.took_s, pool.board.stop_requested = 60.0, True

    pool.order()

    assert pool.end().outcome is Outcome.STOPPED
    assert pool.drivers.started == []
