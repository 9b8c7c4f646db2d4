"""Runners as real processes: their guarantees, with kills at different moments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.ids import HostId
from nimbus.domain.pipelines.pipeline import FailureClass, Limits, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host import procfs
from nimbus.worker.host.files import read_if_there, write_once
from nimbus.worker.launcher import ForkLauncher, launch
from tests.nimbus.worker_bench import Bench, eventually

ATTEMPT = "run1.task.1"
COUNTS = """
import os, sys, time
from pathlib import Path
with open(sys.argv[1], "a") as file:
    file.write("ran\\n")
"""
WAITS_FOR_FILE = (
    COUNTS
    + """
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""
)
HANGS = (
    COUNTS
    + """
import signal, subprocess
if len(sys.argv) > 2 and sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"], start_new_session=True)
with open(sys.argv[1], "a") as file:
    file.write("sleeps\\n")
time.sleep(600)
"""
)

LAUNCHES = """
import sys, time
from pathlib import Path
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.launcher import ForkLauncher
from nimbus.worker.launcher import launch
from nimbus.worker.settings import RunnerStartup, read_connections, read_plan
if sys.argv[3] == "forked":
    launch = ForkLauncher()
    launch.start()
with open(sys.argv[2], "rb") as file:
    startup = RunnerStartup(plan=read_plan(file), connections=read_connections(file))
launch(AttemptFolder(Path(sys.argv[1])), startup)
time.sleep(600)
"""
IMPORTS = """
import shared, packed, subprocess, sys
print(shared.WORD, packed.WORD)
subprocess.run([sys.executable, '-c', 'import shared, packed'], check=True)
"""
HANGS_AND_FAILS = """
import functools, sys, time
from nimbus.worker.host import forked
from nimbus.worker import runner

def fail(_):
    raise RuntimeError("a defect")

def hang(_):
    print("hangs", flush=True)
    time.sleep(600)

runner.Runner._measure = hang
runner.Runner._exited = fail
forked.run_program(functools.partial(runner.main, sys.argv[1:]))
"""


both_ways = pytest.mark.parametrize("how", ["forked", "started"])
"""For what depends on the start of a runner. Afterwards both run the same code."""


@pytest.fixture
def how() -> str:
    """How runners are started."""
    return "forked"


@pytest.fixture
def bench(tmp_path: Path, how: str, forks: ForkLauncher) -> Iterator[Bench]:
    made = Bench(tmp_path, forks if how == "forked" else launch)
    yield made
    made.close()


def _lines(place: Path) -> list[str]:
    return place.read_text().splitlines() if place.exists() else []


def _said(folder: AttemptFolder) -> str:
    return (read_if_there(folder.runner_log) or b"").decode()


def _start(bench: Bench, text: str, *args: str, known: bool = True, **order: Any) -> AttemptFolder:
    folder = bench.folder()
    made = bench.order(bench.script("task.py", text), known=known, args=args, **order)
    folder.create(made)
    bench.launch(folder, bench.startup(stop_grace_s=0.5))
    return folder


def _await_delivered(folder: AttemptFolder) -> End:
    eventually(lambda: folder.is_delivered, f"delivery of {folder.attempt}: {folder.runner_log}")
    record = folder.exit_record()
    assert record is not None
    return record


@both_ways
def test_runner_claims_runs_ends_and_stores_the_log_of_a_task(bench: Bench) -> None:
    folder = _start(
        bench,
        "import sys\nfrom nimbus.task import context\n"
        "print('hello', sys.argv[1:])\n(context().output / 'part').write_text(context().run_id)\n",
        "a",
        "b c",
    )

    record = _await_delivered(folder)

    slots = bench.slots()
    assert record.outcome is Outcome.SUCCEEDED, record.reason
    assert (record.exit_code, record.output, record.written_by) == (0, "bench/run1/task/1", "runner")
    assert slots.end == record
    assert slots.claim == folder.claim()
    assert (bench.data / "bench/run1/task/1/part").read_text() == "run1"
    assert folder.log.read_bytes() == b"hello ['a', 'b c']\n"
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert not folder.scratch.exists()


@both_ways
def test_runner_goes_on_when_the_process_that_launched_it_is_killed(
    bench: Bench, how: str, tmp_path: Path
) -> None:
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", WAITS_FOR_FILE), args=(str(ran), str(gate))))
    (tmp_path / "startup").write_bytes(bench.startup().encode())
    launcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            LAUNCHES,
            str(folder.path),
            str(tmp_path / "startup"),
            how,
        ],
        start_new_session=True,
    )
    eventually(lambda: _lines(ran) == ["ran"], "the task runs")

    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    assert bench.slots().end is None
    gate.touch()

    assert _await_delivered(folder).outcome is Outcome.SUCCEEDED


def test_failed_task_says_its_last_exception(bench: Bench) -> None:
    folder = _start(bench, "print('x')\nraise ValueError('no flights in month 13')\n")

    record = _await_delivered(folder)

    assert (record.outcome, record.exit_code, record.output) == (Outcome.FAILED, 1, None)
    assert "ValueError: no flights in month 13" in record.reason
    assert record.failure is FailureClass.ERROR


def test_exit_code_of_a_task_is_reported_and_zero_is_a_success(bench: Bench) -> None:
    folder = _start(bench, "import sys\nsys.exit(3)\n")
    assert (_await_delivered(folder).exit_code, bench.slots().end is not None) == (3, True)

    bench.script("zero.py", "import sys\nsys.exit(0)\n")
    other = bench.folder("run1.zero.1")
    other.create(bench.order("zero.py", attempt="run1.zero.1"))
    bench.launch(other, bench.startup())
    assert _await_delivered(other).outcome is Outcome.SUCCEEDED


def test_process_that_ends_with_zero_inside_the_code_is_no_success(bench: Bench) -> None:
    folder = _start(bench, "import os\nos._exit(0)\n")

    record = _await_delivered(folder)

    assert record.outcome is Outcome.FAILED
    assert "os._exit" in record.reason
    assert record.failure is FailureClass.ERROR


def test_success_whose_output_cannot_be_flushed_is_a_failure_that_says_why(bench: Bench) -> None:
    text = (
        "from nimbus.task import context\nplace = context().output.parent\nplace.rename(f'{place}-moved')\n"
    )
    folder = _start(bench, text)

    record = _await_delivered(folder)

    assert (record.outcome, record.output) == (Outcome.FAILED, None)
    assert "could not be flushed" in record.reason
    assert record.failure is FailureClass.ERROR
    assert str(bench.data / "bench/run1/task") in record.reason


@pytest.mark.parametrize(
    ("writes", "unseen", "outcome"),
    [
        ("(out / 't').mkdir(), (out / 't' / '_SUCCESS').touch()", "say what they see", Outcome.FAILED),
        ("(out / 'report.json').touch()", "say what they see", Outcome.SUCCEEDED),
        ("(out / '_SUCCESS').touch()", "", Outcome.SUCCEEDED),
    ],
)
def test_success_of_spark_that_executors_may_have_written_elsewhere_is_a_failure(
    bench: Bench, writes: str, unseen: str, outcome: Outcome
) -> None:
    folder = bench.folder()
    text = f"from nimbus.task import context\nout = context().output\n{writes}\n"
    folder.create(bench.order(bench.script("task.py", text)))
    bench.launch(folder, bench.startup(unseen_output=unseen))

    record = _await_delivered(folder)

    assert record.outcome is outcome, record.reason
    assert outcome is Outcome.SUCCEEDED or unseen in record.reason


def test_driver_gets_more_memory_when_its_order_says_so(bench: Bench) -> None:
    folder = bench.folder()
    order = bench.order(bench.script("task.py", ""), spark_conf={"spark.a": "1"}, memory_scale=2.0)
    folder.create(order)
    bench.launch(folder, bench.startup(spark_conf={"spark.driver.memory": "2g"}))

    assert _await_delivered(folder).outcome is Outcome.SUCCEEDED
    told = json.loads(folder.driver_file.read_text())["task_conf"]
    assert told == {"spark.a": "1", "spark.driver.memory": "4096m"}


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 64 MiB. Only with version 1 can a process of any cgroup move into it."""
    place = Path("/sys/fs/cgroup/memory") / f"nimbus-test-{os.getpid()}"
    try:
        place.mkdir()
        (place / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError:
        pytest.skip("no memory cgroup can be made here")
    yield place
    eventually(lambda: not (place / "cgroup.procs").read_text(), "the cgroup is empty")
    place.rmdir()


def test_driver_that_the_kernel_kills_for_memory_is_out_of_memory(bench: Bench, small_cgroup: Path) -> None:
    folder = _start(
        bench,
        f"import os\nopen('{small_cgroup}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        "bytearray(200 << 20)\n",
    )

    record = _await_delivered(folder)

    assert (record.outcome, record.exit_code) == (Outcome.FAILED, 137)
    assert record.failure is FailureClass.OUT_OF_MEMORY, record.reason


def test_killed_driver_is_a_failure_that_names_the_signal(bench: Bench, tmp_path: Path) -> None:
    folder = _start(bench, HANGS, str(tmp_path / "ran"))
    eventually(lambda: len(_lines(tmp_path / "ran")) == 2, "the task runs")
    claim = bench.slots().claim
    assert claim is not None
    assert claim.pid is not None

    os.kill(claim.pid, signal.SIGKILL)

    record = _await_delivered(folder)
    assert (record.outcome, record.exit_code) == (Outcome.FAILED, 137)
    assert "SIGKILL" in record.reason
    assert bench.driver_tree() == []


def test_defect_ends_the_runner_with_its_error_though_another_of_its_threads_hangs(
    bench: Bench,
) -> None:
    folder = bench.folder()
    limits = Limits(memory_bytes=1 << 40)  # so that it is measured
    folder.create(bench.order(bench.script("task.py", "import time\ntime.sleep(1)\n"), limits=limits))

    done = subprocess.run(
        [sys.executable, "-c", HANGS_AND_FAILS, str(folder.path)],
        input=bench.startup().encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )

    assert b"hangs" in done.stdout
    assert done.returncode == 1
    assert done.stderr.strip().endswith(b"RuntimeError: a defect")
    assert not folder.lock.is_held()
    assert bench.driver_tree() == []


@both_ways
def test_second_launch_of_an_attempt_runs_nothing_while_the_first_lives(bench: Bench, tmp_path: Path) -> None:
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    folder = _start(bench, WAITS_FOR_FILE, str(ran), str(gate))
    eventually(lambda: _lines(ran) == ["ran"], "the task runs")
    first = folder.lock.last_holder()

    second = bench.launch(folder, bench.startup())

    if second is not None:  # None: it has already ended
        eventually(lambda: not procfs.is_alive(second), "the second runner's end")
    assert folder.lock.last_holder() == first
    gate.touch()
    assert _await_delivered(folder).outcome is Outcome.SUCCEEDED
    assert _lines(ran) == ["ran"]


def test_launches_in_two_folders_at_once_run_the_code_once(bench: Bench, tmp_path: Path) -> None:
    order = bench.order(bench.script("task.py", COUNTS), args=(str(tmp_path / "ran"),))
    folders = [bench.folder(worker=f"w{n}") for n in range(4)]
    for n, folder in enumerate(folders):
        folder.create(order)
        bench.launch(folder, bench.startup(worker=f"w{n}"))

    for folder in folders:
        eventually(lambda folder=folder: folder.is_delivered, "delivery")  # type: ignore[misc]

    assert _lines(tmp_path / "ran") == ["ran"]
    assert [folder.exit_record() is not None for folder in folders].count(True) == 1


def test_runner_whose_claim_is_fenced_ends_with_75_without_user_code(bench: Bench, tmp_path: Path) -> None:
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", COUNTS), args=(str(tmp_path / "ran"),)))
    bench.board.claim(Claim(attempt=ATTEMPT, fenced_by_epoch=4, claimed_at=datetime.now(UTC)))

    done = subprocess.run(
        [sys.executable, "-I", "-m", "nimbus.worker.runner", str(folder.path)],
        input=bench.startup().encode(),
        timeout=60,
        check=False,
    )

    assert done.returncode == 75
    assert _lines(tmp_path / "ran") == []
    assert folder.exit_record() is None
    assert folder.is_delivered


def test_runner_of_a_withdrawn_attempt_ends_with_75_without_user_code(bench: Bench, tmp_path: Path) -> None:
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", COUNTS), args=(str(tmp_path / "ran"),), known=False))

    done = subprocess.run(
        [sys.executable, "-I", "-m", "nimbus.worker.runner", str(folder.path)],
        input=bench.startup().encode(),
        timeout=60,
        check=False,
    )

    assert done.returncode == 75
    assert _lines(tmp_path / "ran") == []


def test_runner_killed_between_claim_and_go_leaves_no_user_code_behind(bench: Bench, tmp_path: Path) -> None:
    # The board does not answer claims, so the driver waits; then the test claims in its name.
    bench.board.cut_off(down=True)
    folder = _start(bench, COUNTS, str(tmp_path / "ran"))
    driver = eventually(bench.driver_tree, "the driver is there")[0]
    used = [-1.0]

    def rests() -> bool:
        """Whether it has used no processor time in the last ten samples."""
        used.append(sum(psutil.Process(driver.pid).cpu_times()[:2]))
        return used[-1] == used[-10:][0]

    eventually(rests, "the driver waits")
    runner = bench.runner()
    assert runner is not None

    os.kill(runner.pid, signal.SIGKILL)

    eventually(lambda: not procfs.is_alive(driver), "the driver's end")
    assert _lines(tmp_path / "ran") == []
    eventually(lambda: not folder.lock.is_held(), "the lock is free")


@both_ways
def test_driver_dies_with_its_runner_in_the_middle_of_the_code(bench: Bench, tmp_path: Path) -> None:
    folder = _start(bench, HANGS, str(tmp_path / "ran"))
    eventually(lambda: len(_lines(tmp_path / "ran")) == 2, "the task runs")
    claim = folder.claim()
    runner = bench.runner()
    assert runner is not None
    assert claim is not None
    assert claim.pid is not None
    assert claim.start_ticks is not None

    os.kill(runner.pid, signal.SIGKILL)

    driver = procfs.ProcessId(claim.pid, claim.start_ticks)
    eventually(lambda: not procfs.is_alive(driver), "the driver's end")


def test_driver_is_not_let_go_while_the_board_is_away_and_runs_when_it_is_back(
    bench: Bench, tmp_path: Path
) -> None:
    bench.board.cut_off(down=True)
    folder = _start(bench, COUNTS, str(tmp_path / "ran"))
    eventually(lambda: "board_unreachable" in _said(folder), "the runner says why it waits")
    assert _lines(tmp_path / "ran") == []

    bench.board.cut_off(down=False)

    assert _await_delivered(folder).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("manner", ["", "stubborn"])
def test_task_beyond_its_timeout_is_ended_with_all_it_started(
    bench: Bench, tmp_path: Path, manner: str
) -> None:
    # Long enough for the task to reach its sleep, even if Python takes seconds to start; and long enough for
    # a task that handles SIGTERM to end.
    made = bench.order(
        bench.script("task.py", HANGS), args=(str(tmp_path / "ran"), manner), timeout=timedelta(seconds=5)
    )
    folder = bench.folder()
    folder.create(made)
    bench.launch(folder, bench.startup(stop_grace_s=0.5 if manner else 10))

    record = _await_delivered(folder)

    assert (record.outcome, record.exit_code) == (Outcome.TIMED_OUT, 137 if manner else 143)
    assert _lines(tmp_path / "ran") == ["ran", "sleeps"]
    assert bench.driver_tree() == []


def test_task_is_stopped_on_request(bench: Bench, tmp_path: Path) -> None:
    folder = _start(bench, HANGS, str(tmp_path / "ran"))
    eventually(lambda: len(_lines(tmp_path / "ran")) == 2, "the task runs")

    bench.board.request_stop(ATTEMPT)

    record = _await_delivered(folder)
    assert record.outcome is Outcome.STOPPED
    assert bench.slots().end == record


def test_driver_of_an_attempt_that_a_leader_has_closed_is_ended(bench: Bench, tmp_path: Path) -> None:
    folder = _start(bench, HANGS, str(tmp_path / "ran"))
    eventually(lambda: len(_lines(tmp_path / "ran")) == 2, "the task runs")
    fenced = End(attempt=ATTEMPT, outcome=Outcome.LOST, written_by="leader", ended_at=datetime.now(UTC))

    bench.board.end(fenced)

    assert _await_delivered(folder).outcome is Outcome.STOPPED
    assert bench.slots().end == fenced
    assert bench.driver_tree() == []


def test_running_task_survives_a_board_that_is_away_and_its_end_arrives_later(
    bench: Bench, tmp_path: Path
) -> None:
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    folder = _start(bench, WAITS_FOR_FILE, str(ran), str(gate))
    eventually(lambda: bench.slots().has_heartbeat and _lines(ran), "the task runs and beats")
    bench.board.cut_off(down=True)
    gate.touch()
    eventually(lambda: folder.exit_record() is not None, "the record is on disk")
    eventually(lambda: '"PutEnd"' in folder.runner_log.read_text(), "the runner cannot deliver it")
    assert not folder.is_delivered

    bench.board.cut_off(down=False)

    assert _await_delivered(folder).outcome is Outcome.SUCCEEDED
    end = bench.slots().end
    assert end is not None
    assert end.outcome is Outcome.SUCCEEDED
    assert _lines(ran) == ["ran"]


def test_driver_of_a_kept_task_is_killed_before_another_may_start_when_its_board_is_away(
    bench: Bench, tmp_path: Path
) -> None:
    """The bench's session timeout is 10 s, so the lease is 6 s, and the leader would wait for 11 s."""
    ran, lost_after = tmp_path / "ran", timedelta(seconds=1)
    folder = _start(bench, HANGS, str(ran), "stubborn", host_lost_after=lost_after)
    eventually(lambda: bench.slots().has_heartbeat and len(_lines(ran)) == 2, "the task runs and beats")
    asked_at = datetime.now(UTC)
    eventually(bench.driver_tree, "its processes")
    eventually(lambda: datetime.now(UTC) > asked_at + timedelta(seconds=7), "a lease passes")
    assert bench.driver_tree() != [], "a board that answers renews the lease"

    bench.board.cut_off(down=True)
    silent_at = datetime.now(UTC)
    eventually(lambda: folder.exit_record() is not None, "the record is on disk")

    record = folder.exit_record()
    assert record is not None
    assert record.outcome is Outcome.LOST
    assert record.ended_at < silent_at + timedelta(seconds=10) + lost_after
    assert bench.driver_tree() == []
    bench.board.cut_off(down=False)
    assert _await_delivered(folder).reason.startswith("ZooKeeper did not answer")


def _make_again(bench: Bench) -> None:
    """Archive the run, and use its id again."""
    bench.board.remove_attempt(ATTEMPT)
    bench.board.add_attempt(ATTEMPT)


def test_runner_that_was_cut_off_does_not_end_the_attempt_of_a_later_run(
    bench: Bench, tmp_path: Path
) -> None:
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    folder = _start(bench, WAITS_FOR_FILE, str(ran), str(gate))
    eventually(lambda: _lines(ran), "the task runs")
    bench.board.cut_off(down=True)
    gate.touch()
    eventually(lambda: folder.exit_record() is not None, "the record is on disk")
    _make_again(bench)

    bench.board.cut_off(down=False)

    assert _await_delivered(folder).outcome is Outcome.SUCCEEDED

    assert bench.slots().end is None


def test_driver_is_ended_when_the_attempt_is_that_of_a_later_run(bench: Bench, tmp_path: Path) -> None:
    folder = _start(bench, HANGS, str(tmp_path / "ran"))
    eventually(lambda: len(_lines(tmp_path / "ran")) == 2, "the task runs")
    other = Claim(attempt=ATTEMPT, host=HostId("far"), pid=1, claimed_at=datetime.now(UTC), nonce="other")

    _make_again(bench)
    bench.board.claim(other)

    assert _await_delivered(folder).outcome is Outcome.STOPPED

    eventually(lambda: not bench.slots().has_heartbeat, "the beat of the session that closes is gone")
    slots = bench.slots()
    assert (slots.claim, slots.end) == (other, None)
    assert bench.driver_tree() == []


def test_progress_of_a_task_reaches_the_board_and_its_application_the_end(
    bench: Bench, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    folder = _start(bench, WAITS_FOR_FILE, str(tmp_path / "ran"), str(gate))
    eventually(lambda: bench.slots().has_heartbeat, "the first heartbeat")

    folder.progress_file.write_text('{"tasks_done": 7, "application": "app-1"}')

    eventually(lambda: bench.slots().progress == {"tasks_done": 7, "application": "app-1"}, "progress")
    gate.touch()
    _await_delivered(folder)
    assert bench.await_end().application == "app-1"


@pytest.mark.usefixtures("stored_logs")
def test_log_is_stored_while_the_task_runs(bench: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    folder = _start(bench, "print('early')\n" + WAITS_FOR_FILE, str(tmp_path / "ran"), str(gate))

    eventually(lambda: bench.logs.read(folder.attempt) == b"early\n", "the first line is stored")

    assert bench.slots().end is None
    gate.touch()
    _await_delivered(folder)


@both_ways
def test_secrets_reach_neither_the_drivers_environment_nor_the_disk(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush-1")
    monkeypatch.setenv("NIMBUS_ZOOKEEPER_PASSWORD", "hush-hush-2")
    monkeypatch.setenv("SPARK_AUTH_SECRET", "hush-hush-3")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    text = "import os\nprint(sorted(os.environ.items()))\n" + WAITS_FOR_FILE
    order = bench.order(bench.script("task.py", text), args=(str(tmp_path / "ran"), str(tmp_path / "gate")))
    folder = bench.folder()
    folder.create(order)
    startup = bench.startup(extra={"OF_CONFIGURATION": "yes"})
    secret = {"kind": "nowhere", "secret": "hush-hush-4"}
    bench.launch(folder, replace(startup, connections=replace(startup.connections, logs=secret)))
    eventually(lambda: _lines(tmp_path / "ran"), "the task runs")
    runner = bench.runner()
    assert runner is not None

    said = folder.log.read_text()
    arguments = Path(f"/proc/{runner.pid}/cmdline").read_bytes()
    environment = procfs.environment_of(runner.pid)
    assert environment is not None
    on_disk = b"".join(path.read_bytes() for path in folder.path.rglob("*") if path.is_file())
    assert "'OF_CONFIGURATION', 'yes'" in said
    assert "'LC_ALL', 'C.UTF-8'" in said
    assert ("hush-hush" in said, b"hush-hush" in arguments + environment, b"hush-hush" in on_disk) == (
        False, False, False,
    )  # fmt: skip
    (tmp_path / "gate").touch()
    bench.await_end()


@both_ways
def test_release_cannot_run_code_before_go_by_naming_a_module_like_one_of_pythons(
    bench: Bench, tmp_path: Path
) -> None:
    trap = f"open({str(tmp_path / 'trap')!r}, 'a').write('sprung')\n"
    for name in ("sitecustomize.py", "usercustomize.py", "lib/json.py", "lib/runpy.py"):
        bench.script(name, trap)
    bench.board.cut_off(down=True)
    folder = _start(bench, COUNTS, str(tmp_path / "ran"), python_path=("lib", ""))
    eventually(lambda: "board_unreachable" in _said(folder), "the driver waits")
    runner = bench.runner()
    assert runner is not None

    os.kill(runner.pid, signal.SIGKILL)
    eventually(lambda: not bench.processes(), "nothing is left")

    assert not (tmp_path / "trap").exists()


@both_ways
@pytest.mark.parametrize("kind", [TaskKind.PYTHON, TaskKind.SHELL])
def test_argument_can_name_a_file_of_the_release(bench: Bench, kind: TaskKind) -> None:
    bench.script("notes/one.txt", "of the release\n")
    reads = bench.script("reads.py", "import sys\nprint(open(sys.argv[1]).read(), end='')\n")
    folder = bench.folder()
    given = ("{{ release_root }}/notes/one.txt",)
    folder.create(bench.order("cat" if kind is TaskKind.SHELL else reads, args=given, task_kind=kind))
    bench.launch(folder, bench.startup())

    assert _await_delivered(folder).reason == ""
    assert folder.log.read_text() == "of the release\n"


@both_ways
def test_task_imports_from_python_path_and_wheels_of_its_release(bench: Bench, tmp_path: Path) -> None:
    bench.script("lib/shared.py", "WORD = 'shared'\n")
    wheel = tmp_path / "wheel"
    wheel.mkdir()
    (wheel / "packed.py").write_text("WORD = 'packed'\n")
    folder = bench.folder()
    folder.create(bench.order(bench.script("jobs/task.py", IMPORTS), python_path=("lib",)))
    bench.launch(folder, bench.startup(wheels=(wheel,)))

    assert _await_delivered(folder).reason == ""
    assert folder.log.read_text() == "shared packed\n"


def test_attempt_whose_driver_cannot_begin_is_not_claimed(bench: Bench) -> None:
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", "print(1)\n")))
    folder.scratch.rmdir()
    folder.scratch.touch()

    bench.launch(folder, bench.startup())

    eventually(lambda: "the driver cannot begin" in _said(folder), "the runner says why it ends")
    eventually(lambda: not bench.processes(), "the runner's end")
    assert bench.slots().claim is None
    assert str(folder.scratch) in _said(folder)


def test_output_folder_that_cannot_be_made_refuses_the_attempt_before_user_code(
    bench: Bench, tmp_path: Path
) -> None:
    (bench.data / "bench").write_text("a file where the folder should be")
    folder = _start(bench, COUNTS, str(tmp_path / "ran"))

    record = _await_delivered(folder)

    assert record.outcome is Outcome.REFUSED
    assert "worker.data" in record.reason
    assert _lines(tmp_path / "ran") == []


def _race(writer: int, slot: Path, start: threading.Barrier, won: list[int]) -> None:
    start.wait()
    if write_once(slot, f"record of {writer}".encode()):
        won.append(writer)


def test_of_three_writers_of_a_slot_exactly_one_wins_in_200_races(tmp_path: Path) -> None:
    for n in range(200):
        slot = tmp_path / f"slot-{n}"
        start = threading.Barrier(3)
        won: list[int] = []

        writers = [threading.Thread(target=_race, args=(n, slot, start, won)) for n in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert len(won) == 1
        assert slot.read_text() == f"record of {won[0]}"
    assert len(list(tmp_path.iterdir())) == 200  # no partial file is left


def test_record_of_another_writer_stays_when_the_runner_comes_later(bench: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    folder = _start(bench, WAITS_FOR_FILE, str(tmp_path / "ran"), str(gate))
    eventually(lambda: _lines(tmp_path / "ran"), "the task runs")
    theirs = End(attempt=ATTEMPT, outcome=Outcome.LOST, written_by="worker", ended_at=datetime.now(UTC))
    folder.record_exit(theirs)
    gate.touch()

    _await_delivered(folder)

    assert bench.slots().end == theirs


def test_claim_of_another_boot_of_the_same_pid_is_not_ours(bench: Bench, tmp_path: Path) -> None:
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", COUNTS), args=(str(tmp_path / "ran"),)))
    foreign = Claim(attempt=ATTEMPT, host=HostId("other"), pid=1, start_ticks=1, claimed_at=datetime.now(UTC))
    bench.board.claim(foreign)
    bench.launch(folder, bench.startup())

    eventually(lambda: folder.is_delivered, "the runner gives up")

    assert _lines(tmp_path / "ran") == []
    assert bench.slots().claim == foreign
