"""One suite for every Executor of a worker: a process for each attempt, the pool, and clusters."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nimbus.domain.attempts.slots import Claim, Holder
from nimbus.domain.attempts.workers import Assignment, AssignmentKind
from nimbus.domain.ids import HostId, WorkerId
from nimbus.domain.pipelines.pipeline import Isolation, SparkDeploy, SparkPlace
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.executor import Executor, Sight
from nimbus.worker.host import procfs
from nimbus.worker.host.remains import EXECUTOR_VARIABLE
from nimbus.worker.worker import Worker
from tests.nimbus.cluster_bench import TARGET, ClusterBench, cluster_bench
from tests.nimbus.worker_bench import eventually

ATTEMPT = "run1.task.1"
WAITS = """
import sys, time
from pathlib import Path
with open(sys.argv[1], "a") as file:
    file.write("ran\\n")
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""

BUSY = """
import subprocess, sys, time
child = (
    "import time\\nheld = bytearray(b'x') * (200 << 20)\\nwhile time.process_time() < 0.5: pass\\n"
    "print(flush=True)\\ntime.sleep(600)"
)
started = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
started.stdout.readline()
while time.process_time() < 0.5:
    pass
"""
"""It leaves a process behind, which must be killed."""


class Case:
    """A worker, and an attempt that one of its executors runs until the gate opens."""

    def __init__(self, cluster: ClusterBench, holder: Holder) -> None:
        self.cluster, self.holder, self.code = cluster, holder, WAITS
        self.bench, self.root = cluster.bench, cluster.bench.root
        self.start = cluster.worker
        self.stop_workers = cluster.stop_workers

    def run(self) -> Claim:
        """Run the attempt. Returns its claim."""
        self.bench.board.assign("w1", self.order())
        eventually((self.root / "ran").exists, "the task runs")
        claim = self.bench.slots().claim
        assert claim is not None
        return claim

    def order(self) -> Assignment:
        script = self.bench.script("main.py", self.code)
        args = (str(self.root / "ran"), str(self.root / "gate"))
        isolation = Isolation.POOLED if self.holder is Holder.POOLED else Isolation.ISOLATED
        made = self.bench.order(script, attempt=ATTEMPT, args=args, isolation=isolation)
        if self.holder is not Holder.APPLICATION:
            return made
        place = SparkPlace(target=TARGET, deploy=SparkDeploy.CLUSTER)
        return replace(made, task=replace(made.task, spark_place=place))

    @property
    def elsewhere(self) -> Executor:
        """The same kind of executor, of another worker on this host, which has launched no attempt."""
        return self.bench.worker("w3", clusters=self.cluster.targets).executors[self.holder]

    def out_of_sight(self, claim: Claim) -> Claim:
        """The claim of a holder that no worker here can see."""
        if claim.driver is not None:
            return replace(claim, driver=replace(claim.driver, target="another"))
        return replace(claim, host=HostId("another"))

    def kill_holder(self) -> None:
        """Kill the holder of the attempt, so that it cannot write END."""
        if self.holder is Holder.PROCESS:
            runner = self.bench.runner()
            assert runner is not None
            os.kill(runner.pid, signal.SIGKILL)
        elif self.holder is Holder.POOLED:
            procfs.kill_all(self._executor_processes, deadline_s=60.0)
        else:
            self.cluster.manager.kill("driver-0001")
        eventually(lambda: not self.bench.processes(), "the driver ends with its holder")

    def _executor_processes(self) -> list[procfs.ProcessId]:
        return [
            found
            for worker in ("w1", "w2")
            for found in procfs.with_variable(EXECUTOR_VARIABLE, str(self.root / worker))
        ]

    def has_launched(self, worker: Worker) -> bool:
        """True if a worker that finds the attempt claimed has dropped it, or follows its driver."""
        if self.holder is Holder.APPLICATION:
            return (self.root / "w2" / "applications" / f"{ATTEMPT}.json").exists()
        return not worker.unended()

    def close(self) -> None:
        (self.root / "gate").touch()
        self.stop_workers()
        procfs.kill_all(self._executor_processes, deadline_s=60.0)


@pytest.fixture(params=list(Holder))
def case(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Case]:
    with cluster_bench(tmp_path, forks=request.param is not Holder.APPLICATION) as cluster:
        made = Case(cluster, request.param)
        yield made
        made.close()


def test_attempt_goes_on_without_its_worker_and_any_worker_of_the_host_sees_it(case: Case) -> None:
    case.start()
    claim = case.run()
    assert claim.holder is case.holder, "it is there before user code runs"
    assert case.elsewhere.probe(ATTEMPT, case.out_of_sight(claim)) is Sight.ELSEWHERE
    case.stop_workers()

    assert case.elsewhere.probe(ATTEMPT, claim) is Sight.ALIVE
    assert case.elsewhere.probe(ATTEMPT, claim) is Sight.ALIVE

    (case.root / "gate").touch()
    assert case.bench.await_end().outcome is Outcome.SUCCEEDED


def test_attempt_whose_holder_was_killed_is_ended_as_lost_by_a_worker_that_is_asked(case: Case) -> None:
    case.start()
    claim = case.run()
    case.stop_workers()
    case.kill_holder()

    (order,) = case.bench.board.assignments(WorkerId("w1"))
    case.bench.board.assign("w2", replace(order, kind=AssignmentKind.REAP, claim=claim))
    case.start("w2")

    end = case.bench.await_end()
    assert (end.outcome, end.written_by, end.nonce) == (Outcome.LOST, "worker", claim.nonce)

    # Collecting may be repeated.
    first = case.elsewhere.collect(ATTEMPT, claim)
    again = case.elsewhere.collect(ATTEMPT, claim)
    assert (first.outcome, first.nonce) == (Outcome.LOST, claim.nonce)
    assert replace(again, ended_at=first.ended_at) == first


def test_attempt_that_is_launched_a_second_time_runs_its_code_once(case: Case) -> None:
    case.start()
    case.run()
    (order,) = case.bench.board.assignments(WorkerId("w1"))
    case.bench.board.assign("w2", order)

    second = case.start("w2")

    eventually(lambda: ATTEMPT in second.attempts(), "the second worker has the order")
    eventually(lambda: case.has_launched(second), "the second worker has dropped or followed the attempt")
    (case.root / "gate").touch()
    assert case.bench.await_end().outcome is Outcome.SUCCEEDED
    assert (case.root / "ran").read_text() == "ran\n"


def test_end_says_what_the_attempt_used_with_the_processes_that_it_left(case: Case) -> None:
    case.code = BUSY
    case.start()
    case.bench.board.assign("w1", case.order())

    end = case.bench.await_end()

    assert (end.outcome, end.reason) == (Outcome.SUCCEEDED, "")
    assert end.cost is not None
    assert (end.cost.cpu_ms or 0) >= 990
    assert 200 << 20 <= (end.cost.peak_memory_bytes or 0) < 600 << 20
    assert end.cost.task_ms is None
