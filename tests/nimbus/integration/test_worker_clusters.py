"""Two clusters on one host with equal run ids, such as those of schedules: each only touches its own runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.domain.attempts.workers import AssignmentKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.host.procfs import ProcessId, is_alive
from nimbus.worker.launcher import launch
from tests.nimbus.worker_bench import Bench, eventually

SLIPS_AWAY = """
import subprocess, sys, time
from pathlib import Path
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
here = Path(sys.argv[1])
(here / "part").write_text(str(child.pid))
(here / "part").rename(here / "child")
while not (here / "gate").exists():
    time.sleep(0.02)
"""


@pytest.fixture
def benches(tmp_path: Path) -> Iterator[tuple[Bench, Bench]]:
    made = Bench(tmp_path / "one"), Bench(tmp_path / "two")
    yield made
    for bench in made:
        bench.close()


def _run(bench: Bench) -> tuple[ProcessId, ProcessId]:
    """Run the attempt without a worker: its runner, and a process outside the runner's session."""
    order = bench.order(bench.script("task.py", SLIPS_AWAY), args=(str(bench.root),))
    bench.folder().create(order)
    launch(bench.folder(), bench.startup())
    eventually((bench.root / "child").exists, "the task runs")
    pid = int((bench.root / "child").read_text())
    runner = bench.runner()
    assert runner is not None
    eventually(lambda: any(found.pid == pid for found in bench.processes()), "the child has its tag")
    return runner, next(found for found in bench.processes() if found.pid == pid)


def test_remains_of_an_attempt_are_killed_while_its_namesake_of_another_cluster_runs_on(
    benches: tuple[Bench, Bench],
) -> None:
    one, two = benches
    (runner, child), (other_runner, other_child) = _run(one), _run(two)
    worker = one.worker()
    worker.start()
    try:
        os.kill(runner.pid, signal.SIGKILL)

        assert one.await_end().outcome is Outcome.LOST
    finally:
        worker.close(timedelta(seconds=10))
    assert not is_alive(child)
    assert is_alive(other_runner)
    assert is_alive(other_child)
    (two.root / "gate").touch()
    assert two.await_end().outcome is Outcome.SUCCEEDED


def test_remains_of_another_clusters_attempt_are_left_to_its_own_worker(benches: tuple[Bench, Bench]) -> None:
    one, two = benches
    (runner, child), (other_runner, other_child) = _run(one), _run(two)
    for killed in (runner, other_runner):
        os.kill(killed.pid, signal.SIGKILL)
    eventually(lambda: (one.runner(), two.runner()) == (None, None), "both runners are gone")
    worker, other_worker = one.worker(), two.worker()
    worker.start()
    try:
        assert one.await_end().outcome is Outcome.LOST
        assert not is_alive(child)
        assert is_alive(other_child)
        other_worker.start()

        assert two.await_end().outcome is Outcome.LOST
    finally:
        worker.close(timedelta(seconds=10))
        other_worker.close(timedelta(seconds=10))
    assert not is_alive(other_child)


def test_attempt_is_reaped_while_its_namesake_of_another_cluster_runs_on(
    benches: tuple[Bench, Bench],
) -> None:
    one, two = benches
    (runner, child), (other_runner, _) = _run(one), _run(two)
    claim = eventually(lambda: one.slots().claim, "the claim")
    os.kill(runner.pid, signal.SIGKILL)
    eventually(lambda: one.runner() is None, "the runner is gone")
    order = one.folder().order()
    worker = one.worker("w2")
    worker.start()
    try:
        one.board.assign("w2", replace(order, kind=AssignmentKind.REAP, claim=claim))

        assert one.await_end().outcome is Outcome.LOST
    finally:
        worker.close(timedelta(seconds=10))
    assert not is_alive(child)
    assert is_alive(other_runner)


def test_attempt_is_supervised_by_a_runner_in_a_folder_of_another_worker_of_its_cluster(
    benches: tuple[Bench, Bench],
) -> None:
    one, two = benches
    (_, child), (other_runner, _) = _run(one), _run(two)
    os.kill(other_runner.pid, signal.SIGKILL)
    reap = replace(one.folder().order(), kind=AssignmentKind.REAP, claim=one.slots().claim)
    worker = one.worker("w2")
    worker.start()
    try:
        one.board.assign("w2", reap)
        eventually(lambda: reap.attempt in worker.collecting(), "the order is seen")
        assert one.slots().end is None
        assert is_alive(child)

        (one.root / "gate").touch()

        assert one.await_end().outcome is Outcome.SUCCEEDED
    finally:
        worker.close(timedelta(seconds=10))
