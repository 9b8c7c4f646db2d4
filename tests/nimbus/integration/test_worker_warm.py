"""Warm drivers: hand-over, loss, supervision. The driver is a fake; runner and fork server are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nimbus.domain.ids import WorkerId
from nimbus.domain.pipeline import TaskKind
from nimbus.domain.task_run import Outcome
from nimbus.domain.workers import AssignmentKind
from nimbus.worker import dead_runner, procfs, remains
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.fork_launcher import ForkLauncher
from nimbus.worker.warm.launcher import WarmLauncher
from tests.nimbus.worker_bench import Bench, eventually

FAKE = """
import json, os, sys, time
place, channel = sys.argv[1], int(sys.argv[2])
print("warmed up", flush=True)
{before_ready}
os.write(channel, b"r")
line = b""
while not line.endswith(b"\\n"):
    byte = os.read(channel, 1)
    if not byte:
        os._exit(75)
    line += byte
message = json.loads(line)
{before_bound}
os.write(channel, b"b")
if os.read(channel, 1) != b"g":
    os._exit(75)
print("the warm driver runs", message["folder"] == os.path.dirname(os.path.dirname(os.getcwd())), flush=True)
print("old place:", sorted(os.listdir(place)) == sorted(os.listdir(message["folder"])), flush=True)
{in_task}
open(os.path.join(message["folder"], "work", "done"), "w").close()
"""
COLD = "print('a cold driver runs')\n"
PLENTY = 64 << 30
WAITS_FOR_GATE = """
while not os.path.exists(os.path.join(message["folder"], "gate")):
    time.sleep(0.02)
"""


@dataclass
class Stage:
    bench: Bench
    warm: WarmLauncher
    memory: list[int]
    root: Path

    def launch(self, attempt: str = "run1.task.1", **order: object) -> AttemptFolder:
        folder = self.bench.folder(attempt)
        more = {"task_kind": TaskKind.PYSPARK, **order}
        folder.create(self.bench.order(self.bench.script("task.py", COLD), attempt=attempt, **more))
        self.runner = self.bench.launch(folder, self.bench.startup())
        return folder

    def ran(self, folder: AttemptFolder) -> str:
        """Wait for the attempt's end. Returns its log."""
        end = self.bench.await_end(str(folder.attempt))
        assert end.outcome is Outcome.SUCCEEDED, (end.reason, folder.runner_log.read_text())
        eventually(lambda: folder.is_delivered, "delivery")
        return folder.log.read_text()

    def until_it_runs(self, folder: AttemptFolder) -> None:
        eventually(lambda: folder.log.exists() and "runs True" in folder.log.read_text(), "the task runs")

    def warmed(self) -> None:
        """Order a task, and wait until a similar driver is ready."""
        self.ran(self.launch("run0.first.1"))
        self.keep_ready_until("1 ready")

    def keep_ready_until(self, state: str) -> None:
        def reached() -> bool:
            self.warm.keep_ready([])
            return self.warm.state.startswith(state)

        eventually(reached, f"{state} (is: {self.warm.state})")

    def places(self) -> list[Path]:
        root = self.root / "w1" / "warm"
        return list(root.iterdir()) if root.is_dir() else []


Setting = Callable[..., Stage]


@pytest.fixture
def stage(tmp_path: Path, worker_forks: Callable[[], ForkLauncher]) -> Iterator[Setting]:
    made: list[Stage] = []

    def make(
        before_ready: str = "", before_bound: str = "", in_task: str = "", limit: int = 1, ends: bool = False
    ) -> Stage:
        """`ends`: its fork server ends, by itself or with its worker, so it does not serve other tests."""
        program = tmp_path / "driver.py"
        program.write_text(FAKE.format(before_ready=before_ready, before_bound=before_bound, in_task=in_task))
        memory = [PLENTY]
        warm = WarmLauncher(
            ForkLauncher() if ends else worker_forks(),
            tmp_path / "w1",
            limit=limit,
            slots=2,
            memory=lambda: memory[0],
            command=(sys.executable, "-I", "-u", str(program)),
        )
        warm.start()
        made.append(Stage(Bench(tmp_path, warm), warm, memory, tmp_path))
        return made[0]

    yield make
    for one in made:
        one.warm.close()
        one.bench.close()


def _session(leader: procfs.ProcessId) -> list[int]:
    return [found.id.pid for found in procfs.living() if found.session == leader.pid]


# Hand-over.


def test_warm_driver_runs_the_attempt_in_its_folder_and_with_its_log(stage: Setting) -> None:
    there = stage()
    there.warmed()

    folder = there.launch()

    assert there.ran(folder) == "warmed up\nthe warm driver runs True\nold place: True\n"
    assert "driver_was_warm" in folder.runner_log.read_text()
    assert there.bench.slots().claim is not None
    eventually(lambda: there.places() == [], "the link is removed")


def test_warm_driver_is_used_once_and_replaced(stage: Setting) -> None:
    there = stage()
    there.warmed()
    assert "the warm driver runs" in there.ran(there.launch())

    assert "a cold driver runs" in there.ran(there.launch("run2.task.1"))
    there.keep_ready_until("1 ready")

    assert "the warm driver runs" in there.ran(there.launch("run3.task.1"))


def test_task_with_other_properties_of_the_jvm_starts_cold(stage: Setting) -> None:
    there = stage()
    there.warmed()

    folder = there.launch(spark_conf={"spark.driver.memory": "2g"})

    assert there.ran(folder) == "a cold driver runs\n"
    assert there.warm.pairs[0].is_ready


def test_task_with_other_properties_of_a_context_gets_the_warm_driver(stage: Setting) -> None:
    there = stage()
    there.warmed()

    folder = there.launch(spark_conf={"spark.sql.shuffle.partitions": "3"})

    assert "the warm driver runs" in there.ran(folder)


def test_attempt_with_a_warm_driver_goes_on_when_its_worker_dies_and_is_not_called_lost(
    stage: Setting,
) -> None:
    there = stage(in_task=WAITS_FOR_GATE, ends=True)
    there.warmed()
    folder = there.launch()
    there.until_it_runs(folder)

    there.warm.close()

    claim = there.bench.slots().claim
    reap = replace(folder.order(), kind=AssignmentKind.REAP, claim=claim)
    assert not there.bench.reap(reap)
    assert there.bench.slots().end is None
    assert folder.is_locked()
    (folder.path / "gate").touch()
    assert "the warm driver runs" in there.ran(folder)


def test_processes_of_an_attempt_that_was_handed_over_bear_its_tags(stage: Setting) -> None:
    there = stage(in_task=WAITS_FOR_GATE)
    there.warmed()
    folder = there.launch()
    there.until_it_runs(folder)

    assert there.bench.runner() == there.runner

    (folder.path / "gate").touch()
    there.ran(folder)


def test_runner_that_dies_after_the_hand_over_takes_the_warm_driver_along_and_is_settled(
    stage: Setting,
) -> None:
    there = stage(in_task=WAITS_FOR_GATE)
    there.warmed()
    folder = there.launch()
    there.until_it_runs(folder)
    assert there.runner is not None

    os.kill(there.runner.pid, signal.SIGKILL)

    runner = there.runner
    eventually(lambda: _session(runner) == [], "nothing is left")
    ending = dead_runner.ending_of_the_dead(folder, there.bench.board, WorkerId("w1"), datetime.now(UTC))
    assert ending is not None
    assert ending.outcome is Outcome.LOST


# A warm driver without an attempt.


def test_waiting_driver_is_no_process_of_any_attempt(stage: Setting) -> None:
    there = stage()
    there.warmed()
    pair = there.warm.pairs[0]
    assert len(_session(pair.runner)) == 2

    assert there.bench.processes("run0.first.1") == []
    folder = there.bench.folder("run0.first.1")
    last = folder.last_runner()
    assert last is not None
    remains.kill_session(last)
    remains.kill_tagged(f"{there.bench.board.cluster()}/run0.first.1")

    assert len(_session(pair.runner)) == 2
    assert pair.look()


def test_waiting_drivers_end_with_their_worker_and_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(FAKE.format(before_ready="", before_bound="", in_task=""))
    text = f"""
import sys, time
from pathlib import Path
from nimbus.worker.fork_launcher import ForkLauncher
from nimbus.worker.warm.pair import WarmPair
from nimbus.worker.warm.plan import WarmPlan
forks = ForkLauncher()
forks.start()
plan = WarmPlan(environment={{"PATH": "/bin"}}, master="local[2]")
command = (sys.executable, "-I", "-u", {str(tmp_path / "driver.py")!r})
pair = WarmPair(Path({str(tmp_path)!r}), forks, plan, command)
while not pair.is_ready:
    assert pair.look()
    time.sleep(0.02)
print(pair.runner.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        leader = int(worker.stdout.readline())
        runner = procfs.ProcessId(leader, procfs.start_ticks(leader) or 0)
        assert len(_session(runner)) == 2

        worker.kill()

        eventually(lambda: _session(runner) == [], "runner and driver end")
        eventually(lambda: list((tmp_path / "warm").iterdir()) == [], "their folder is removed")


def test_worker_removes_at_its_start_what_killed_runners_left(stage: Setting, tmp_path: Path) -> None:
    left = tmp_path / "w1" / "warm"
    (left / "a" / "tmp").mkdir(parents=True)
    (left / "b").symlink_to(tmp_path / "w1" / "attempts" / "run7.gone.1")
    kept = tmp_path / "w1" / "attempts" / "run8.lives.1"
    kept.mkdir(parents=True)
    (left / "c").symlink_to(kept)
    lock = AttemptFolder(kept).try_lock(procfs.ProcessId(os.getpid(), 1))
    assert lock is not None

    stage()

    assert [place.name for place in left.iterdir()] == ["c"]
    os.close(lock)


# Drivers that die.


def test_warm_driver_that_dies_while_it_waits_costs_nothing_but_a_cold_start(stage: Setting) -> None:
    there = stage()
    there.warmed()
    runner = there.warm.pairs[0].runner
    for pid in _session(runner):
        if pid != runner.pid:
            os.kill(pid, signal.SIGKILL)

    assert there.ran(there.launch()) == "a cold driver runs\n"


def test_waiting_runner_that_is_killed_costs_nothing_but_a_cold_start(stage: Setting) -> None:
    there = stage()
    there.warmed()
    runner = there.warm.pairs[0].runner
    os.kill(runner.pid, signal.SIGKILL)
    eventually(lambda: _session(runner) == [], "its driver dies with it")

    assert there.ran(there.launch()) == "a cold driver runs\n"
    eventually(lambda: there.places() == [], "nothing is left")


@pytest.mark.parametrize(
    "dies", ["os._exit(1)", "os.kill(os.getpid(), 9)", "os.kill(os.getppid(), 9); time.sleep(60)"]
)
def test_warm_driver_that_dies_while_it_is_handed_over_leaves_the_attempt_to_another(
    stage: Setting, dies: str
) -> None:
    there = stage(before_bound=dies)
    there.warmed()

    folder = there.launch()

    if "getppid" not in dies:
        assert there.ran(folder) == "a cold driver runs\n"
        assert "warm_driver_failed" in folder.runner_log.read_text()
        return
    # The runner itself had the lock, so its worker settles the attempt, which never ran.
    eventually(lambda: not folder.is_locked(), "the runner is dead")
    ending = dead_runner.ending_of_the_dead(folder, there.bench.board, WorkerId("w1"), datetime.now(UTC))
    assert ending is not None
    assert ending.outcome is Outcome.REFUSED
    assert not folder.log.exists() or "runs" not in folder.log.read_text()


def test_warm_driver_that_never_gets_ready_is_not_tried_again(stage: Setting) -> None:
    there = stage(before_ready="sys.exit('no such jar')")
    there.ran(there.launch("run0.first.1"))

    there.keep_ready_until("none: no such jar")

    there.warm.keep_ready([])
    assert there.warm.pairs == []
    eventually(lambda: there.places() == [], "nothing is left")


def test_driver_is_warmed_by_another_fork_server_when_the_first_one_has_died(stage: Setting) -> None:
    there = stage(ends=True)
    there.ran(there.launch("run0.first.1"))
    server = there.warm._forks.pid
    assert server is not None
    os.kill(server, signal.SIGKILL)

    there.warm.keep_ready([])
    assert there.warm.pairs == []
    there.keep_ready_until("1 ready")

    assert there.warm._forks.pid != server


# When drivers are warmed.


def test_driver_is_not_warmed_before_a_spark_task_was_there(stage: Setting) -> None:
    there = stage()
    there.ran(there.launch("run0.first.1", task_kind=TaskKind.PYTHON))

    there.warm.keep_ready([])

    assert there.warm.state == "none: no Spark task was here lately"


def test_worker_with_two_gib_free_warms_nothing(stage: Setting) -> None:
    there = stage()
    there.memory[0] = 2 << 30
    there.ran(there.launch("run0.first.1"))

    there.warm.keep_ready([])

    assert there.warm.state == "none: 2.0 GiB of memory are available, 3.4 GiB would be needed"


def test_waiting_driver_is_ended_when_memory_runs_out(stage: Setting) -> None:
    there = stage()
    there.warmed()
    runner = there.warm.pairs[0].runner

    there.memory[0] = 1 << 29
    there.warm.keep_ready([])

    eventually(lambda: _session(runner) == [], "it ends")
    assert there.warm.state.startswith("none: 0.5 GiB")


def test_no_driver_is_warmed_when_it_is_turned_off(stage: Setting) -> None:
    there = stage(limit=0)
    there.ran(there.launch("run0.first.1"))

    there.warm.keep_ready([])

    assert (there.warm.state, there.warm.pairs) == ("off", [])
