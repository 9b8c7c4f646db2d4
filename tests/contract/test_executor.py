"""One suite for every Executor of a worker: a process for each attempt, and the pool."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.domain.ids import HostId, WorkerId
from nimbus.domain.pipeline import Isolation
from nimbus.domain.run import Outcome
from nimbus.domain.slots import Claim, Holder
from nimbus.worker import procfs
from nimbus.worker.executor import Executor, Sight
from nimbus.worker.tags import EXECUTOR_VARIABLE
from nimbus.worker.testing_bench import Bench, eventually
from nimbus.worker.worker import Worker

ATTEMPT = "run1.task.1"
WAITS = """
import sys, time
from pathlib import Path
with open(sys.argv[1], "a") as file:
    file.write("ran\\n")
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""
ISOLATION = {Holder.PROCESS: Isolation.ISOLATED, Holder.POOLED: Isolation.POOLED}


class Case:
    """A worker, and an attempt that one of its executors runs until the gate is opened."""

    def __init__(self, root: Path, holder: Holder) -> None:
        self.root, self.holder = root, holder
        self.bench = Bench(root)
        self.workers: list[Worker] = []

    def start(self) -> Worker:
        worker = self.bench.worker("w1")
        worker.start()
        self.workers.append(worker)
        return worker

    def run(self) -> Claim:
        """Have the attempt run; its claim."""
        script = self.bench.script("main.py", WAITS)
        args = (str(self.root / "ran"), str(self.root / "gate"))
        order = self.bench.order(script, attempt=ATTEMPT, args=args, isolation=ISOLATION[self.holder])
        self.bench.board.assign("w1", order)
        eventually((self.root / "ran").exists, "the task runs")
        claim = self.bench.slots().claim
        assert claim is not None
        return claim

    @property
    def elsewhere(self) -> Executor:
        """The same executor of another worker on this host, which has launched nothing."""
        return self.bench.worker("w2").executors[self.holder]

    def stop_workers(self) -> None:
        for worker in self.workers:
            worker.close(timedelta(seconds=10))
            assert worker.failure is None
        self.workers.clear()

    def kill_holder(self) -> None:
        """Kill what holds the attempt, so that it can write no END."""
        if self.holder is Holder.PROCESS:
            runner = self.bench.runner()
            assert runner is not None
            os.kill(runner.pid, signal.SIGKILL)
        else:
            procfs.kill_all(self._executor_processes, deadline_s=10.0)
        eventually(lambda: not self.bench.processes(), "the driver ends with its holder")

    def _executor_processes(self) -> list[procfs.ProcessId]:
        return procfs.with_variable(EXECUTOR_VARIABLE, str(self.root / "w1")) + (
            procfs.with_variable(EXECUTOR_VARIABLE, str(self.root / "w2"))
        )

    def close(self) -> None:
        (self.root / "gate").touch()
        self.stop_workers()
        procfs.kill_all(self._executor_processes, deadline_s=10.0)
        self.bench.close()


@pytest.fixture(params=list(Holder))
def case(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Case]:
    made = Case(tmp_path, request.param)
    yield made
    made.close()


def test_claim_names_the_holder_before_user_code_runs(case: Case) -> None:
    case.start()

    assert case.run().holder is case.holder


def test_attempt_goes_on_without_its_worker_and_any_worker_of_the_host_sees_it(case: Case) -> None:
    case.start()
    claim = case.run()
    case.stop_workers()

    assert case.elsewhere.probe(ATTEMPT, claim) is Sight.ALIVE
    assert case.elsewhere.probe(ATTEMPT, claim) is Sight.ALIVE

    (case.root / "gate").touch()
    assert case.bench.await_end().outcome is Outcome.SUCCEEDED


def test_attempt_whose_holder_was_killed_is_gone_and_reaped_as_lost(case: Case) -> None:
    case.start()
    claim = case.run()
    case.stop_workers()
    case.kill_holder()

    assert case.elsewhere.probe(ATTEMPT, claim) is Sight.GONE
    end = case.elsewhere.reap(ATTEMPT, claim)
    again = case.elsewhere.reap(ATTEMPT, claim)

    assert (end.outcome, end.nonce) == (Outcome.LOST, claim.nonce)
    assert replace(again, ended_at=end.ended_at) == end


def test_nothing_is_known_of_an_attempt_on_another_host(case: Case) -> None:
    case.start()
    claim = case.run()

    assert case.elsewhere.probe(ATTEMPT, replace(claim, host=HostId("another"))) is Sight.ELSEWHERE


def test_attempt_that_nothing_claimed_is_gone(case: Case) -> None:
    case.bench.order("main.py", attempt=ATTEMPT)

    assert case.elsewhere.probe(ATTEMPT, None) is Sight.GONE
    assert case.elsewhere.reap(ATTEMPT, None).outcome is Outcome.LOST


def test_attempt_that_is_launched_a_second_time_runs_its_code_once(case: Case) -> None:
    case.start()
    case.run()
    (order,) = case.bench.board.assignments(WorkerId("w1"))
    second = case.bench.worker("w2")
    case.workers.append(second)
    case.bench.board.assign("w2", order)

    second.start()

    eventually(lambda: ATTEMPT in second.attempts(), "the second worker has the order")
    eventually(lambda: not second.unended(), "the second worker has done with it")
    (case.root / "gate").touch()
    assert case.bench.await_end().outcome is Outcome.SUCCEEDED
    assert (case.root / "ran").read_text() == "ran\n"
