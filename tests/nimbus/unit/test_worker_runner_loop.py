"""A runner's loop, with a driver and a board that do what a test says."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from nimbus.attempt import model as m
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import Limits, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptBoard, Enqueue
from nimbus.worker import runner
from nimbus.worker.attempt import board_link
from nimbus.worker.attempt.connections import OpenBoard
from nimbus.worker.attempt.limits import LimitWatch
from nimbus.worker.driver.files import write_plan
from nimbus.worker.driver.process import DriverProcess
from nimbus.worker.host import procfs
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.identity import own_process
from nimbus.worker.host.usage import Usage
from nimbus.worker.runner import Runner
from tests.nimbus.worker_bench import Bench, eventually


class _Board:
    """Slots in memory."""

    def __init__(self) -> None:
        self.standing: Claim | None = None
        self.filled: End | None = None
        self.stop_requested = False
        self.took_s = 0.0
        """How long a claim takes, on the clock `now_s`."""

    def now_s(self) -> float:
        return boottime_s() + (self.took_s if self.standing else 0.0)

    def fill(self, records: Sequence[Claim | End]) -> Sequence[Claim | End]:
        (record,) = records
        if isinstance(record, End):
            self.filled = self.filled or record
            return [self.filled]
        self.standing = self.standing or record
        return [self.standing]

    def read_all(self, attempts: Mapping[AttemptId, Enqueue | None]) -> Mapping[AttemptId, Slots]:
        slots = Slots(
            claim=self.standing, end=self.filled, has_heartbeat=True, stop_requested=self.stop_requested
        )
        return dict.fromkeys(attempts, slots)

    def heartbeat(self, _: AttemptId, progress: Mapping[str, object]) -> None:
        pass


class _Driver:
    """Runs until a test ends it."""

    def __init__(self) -> None:
        self.id = own_process()
        self.handle, self._alive = os.pipe2(os.O_CLOEXEC)
        self.exit_status: int | None = None
        self.went = threading.Event()
        self.status: int | None = None
        self.collections = 0
        self.jvm = ""
        self.used = Usage(5, 7)

    def fault(self) -> str:
        return ""

    def processes(self) -> list[int]:
        return procfs.below(os.getpid())

    def go(self) -> None:
        self.went.set()

    def signal(self, number: int) -> None:
        pass

    def end(self, status: int | None = 0) -> None:
        self.status = status
        os.close(self._alive)

    def collect(self) -> bool:
        self.exit_status = self.status
        self.collections += 1
        return False

    def end_all(self) -> bool:
        return True


class _Attempt:
    """A runner on a thread."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: TaskKind) -> None:
        self.board, self.driver, self.folder = _Board(), _Driver(), bench.folder()
        monkeypatch.setattr(runner, "open_board", lambda _: self._opened())
        for module in (runner, board_link):
            monkeypatch.setattr(module, "boottime_s", self.board.now_s)
        limits = Limits(memory_bytes=1 << 40, log_bytes=64 << 10)
        order = bench.order("task.py", limits=limits, task_kind=kind)
        self.folder.create(order)
        plan = bench.startup().plan
        write_plan(self.folder, plan, order)
        self.runner = Runner(self.folder, plan, order, bench.connections)
        self._thread = threading.Thread(target=self._run)

    def _opened(self) -> OpenBoard:
        return OpenBoard(cast(AttemptBoard, self.board), lambda: None)

    def _run(self) -> None:
        self.runner.run(cast(DriverProcess, self.driver))

    def launch(self) -> None:
        self._thread.start()

    def start(self) -> None:
        self.launch()
        assert self.driver.went.wait(60)

    def end(self, status: int | None = 0) -> None:
        self.folder.done_file.touch()
        self.driver.end(status)

    def close(self) -> None:
        self.runner._loop.stop()
        self._thread.join(60)
        for threads in (self.runner._committing, self.runner._measuring):
            threads.shutdown()


@pytest.fixture
def attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[_Attempt]:
    """Of a Python task, or of the kind that is its parameter."""
    bench = Bench(tmp_path)
    made = _Attempt(bench, monkeypatch, getattr(request, "param", TaskKind.PYTHON))
    yield made
    made.close()
    bench.close()


def test_measurement_that_hangs_does_not_delay_the_end(
    attempt: _Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def check(*_: object) -> None:
        begun.set()
        goes_on.wait(60)

    monkeypatch.setattr(LimitWatch, "check", check)
    attempt.start()
    assert begun.wait(60)

    attempt.end()

    try:
        eventually(lambda: attempt.board.filled, "END is filled")
    finally:
        goes_on.set()
    assert attempt.board.filled is not None
    assert attempt.board.filled.outcome is Outcome.SUCCEEDED


def test_task_that_uses_up_all_threads_costs_the_runner_none(
    attempt: _Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if attempt.driver.went.is_set() and thread.name.startswith(("runner-commit", "runner-limits")):
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    measured = threading.Event()
    monkeypatch.setattr(LimitWatch, "check", lambda *_: measured.set())
    attempt.start()
    assert measured.wait(60)

    attempt.end()

    assert eventually(lambda: attempt.board.filled, "END is filled").outcome is Outcome.SUCCEEDED


def test_log_of_a_short_attempt_is_within_its_limit_before_it_ends(attempt: _Attempt) -> None:
    attempt.start()
    attempt.folder.log.write_bytes(b"x" * (1 << 20))

    attempt.end()

    eventually(lambda: attempt.board.filled, "END is filled")
    assert attempt.folder.log.stat().st_blocks * 512 <= 128 << 10


def test_status_of_a_driver_that_a_tracer_holds_is_awaited(attempt: _Attempt) -> None:
    attempt.start()
    attempt.end(status=None)
    before = attempt.driver.collections
    eventually(lambda: attempt.driver.collections > before, "its status is asked for")
    assert attempt.folder.exit_record() is None

    attempt.driver.status = 0

    end = eventually(lambda: attempt.board.filled, "END is filled")
    assert end.outcome is Outcome.SUCCEEDED


def test_late_claim_is_read_again_and_a_stop_seen_there_is_kept(attempt: _Attempt) -> None:
    attempt.board.took_s, attempt.board.stop_requested = 60.0, True

    attempt.launch()

    end = eventually(lambda: attempt.board.filled, "END is filled")
    assert end.outcome is Outcome.STOPPED
    assert not attempt.driver.went.is_set()


def test_task_does_not_start_if_the_disk_takes_no_claim(
    attempt: _Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Claim) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(attempt.folder.claim_file))

    monkeypatch.setattr(attempt.runner._folder, "record_claim", full)
    attempt.launch()

    eventually(lambda: attempt.board.filled, "END")
    end = attempt.board.filled
    assert end is not None
    assert end.outcome is Outcome.REFUSED
    assert "claim.json cannot be written: No space left on device" in end.reason
    assert not attempt.driver.went.is_set()


@pytest.mark.parametrize("attempt", [TaskKind.SHELL], indirect=True)
def test_program_that_ended_while_the_runner_was_busy_was_not_told_to_end(attempt: _Attempt) -> None:
    attempt.start()
    goes_on = threading.Event()

    def be_busy() -> None:
        assert goes_on.wait(60)

    attempt.runner._loop.post(be_busy)
    attempt.runner._post(m.BoardRead(m.ClaimHolder.OURS, boottime_s(), stop_requested=True))
    attempt.driver.end(0)
    goes_on.set()

    eventually(lambda: attempt.board.filled, "END")
    assert attempt.board.filled is not None
    assert attempt.board.filled.outcome is Outcome.SUCCEEDED
