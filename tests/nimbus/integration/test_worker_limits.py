"""Attempts that exceed a limit, as real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.pipelines.pipeline import Limits
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.launcher import ForkLauncher
from tests.nimbus.worker_bench import Bench, eventually

MIB = 1 << 20
HOLDS_AND_WAITS = """
import signal, subprocess, sys, time
if sys.argv[1] == "child":
    code = "held = bytearray(b'x') * (150 << 20); import time; time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
else:
    held = bytearray(b"x") * (150 << 20)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""
OPENS_FILES = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"])
files = []
while True:
    files.append(open("/dev/null"))
"""
FILLS_DISK = """
import sys, time
from nimbus.task import context
place = context().output if sys.argv[1] == "output" else "."
with open(f"{place}/large", "wb") as file:
    file.write(b"x" * (30 << 20))
time.sleep(600)
"""
SAYS_MUCH = """
import subprocess, sys
print("this is the beginning", flush=True)
line = b"x" * 1023 + b"\\n"
for _ in range(int(sys.argv[1])):
    sys.stdout.buffer.write(line * 1024)
sys.stdout.flush()
subprocess.run(["echo", "this is the end"])
"""


@pytest.fixture
def bench(tmp_path: Path, forks: ForkLauncher, shared_forks: None) -> Iterator[Bench]:
    made = Bench(tmp_path, forks)
    yield made
    made.close()


def _run(bench: Bench, text: str, *args: str, **limits: int) -> tuple[End, AttemptFolder]:
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", text), args=args, limits=Limits(**limits)))
    bench.launch(folder, bench.startup())
    eventually(lambda: folder.is_delivered, "delivery", 120)
    end = folder.exit_record()
    assert end is not None
    return end, folder


@pytest.mark.parametrize("who", ["driver", "child"])
def test_attempt_that_holds_too_much_memory_is_ended_with_all_it_started(bench: Bench, who: str) -> None:
    end, _ = _run(bench, HOLDS_AND_WAITS, who, memory_bytes=100 * MIB)

    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 137)
    assert end.reason.startswith("ended: it used 1")
    assert end.reason.endswith("MiB of memory, and its limit is 100.0 MiB")
    assert bench.driver_tree() == []


def test_python_task_that_asks_for_far_too_much_memory_gets_an_error(bench: Bench) -> None:
    end, _ = _run(bench, "held = bytearray(2 << 30)\n", memory_bytes=100 * MIB)

    assert (end.outcome, end.exit_code, end.reason) == (Outcome.FAILED, 1, "MemoryError [exit code 1]")


def test_open_files_of_each_process_of_an_attempt_are_limited(bench: Bench) -> None:
    end, folder = _run(bench, OPENS_FILES, open_files=80)

    assert folder.log.read_text().startswith("(80, 80)\n")
    assert end.reason.startswith("OSError: [Errno 24] Too many open files")


@pytest.mark.parametrize("where", ["output", "scratch"])
def test_attempt_that_fills_the_disk_is_ended(bench: Bench, where: str) -> None:
    end, _ = _run(bench, FILLS_DISK, where, disk_bytes=10 * MIB)

    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 137)
    assert end.reason.startswith("ended: it used ")
    assert end.reason.endswith("MiB of disk, and its limit is 10.0 MiB")


@pytest.mark.usefixtures("stored_logs")
def test_log_of_a_task_that_says_too_much_keeps_its_beginning_and_its_end(bench: Bench) -> None:
    end, folder = _run(bench, SAYS_MUCH, "1024", log_bytes=MIB)

    stored = bench.logs.read(folder.attempt, 0, 1 << 30)
    assert end.outcome is Outcome.SUCCEEDED, end.reason
    assert stored.startswith(b"this is the beginning\nxxx")
    assert b"\n[nimbus: the log has reached its limit of 1.0 MiB: only its end is kept" in stored
    assert b"\n[nimbus: 1072693286 bytes are left out here]\nxxx" in stored
    assert stored.endswith(b"xxx\nthis is the end\n")
    assert MIB < len(stored) < MIB + 300
    assert folder.log.stat().st_size > 1 << 30
    assert folder.log.stat().st_blocks * 512 < 2 * MIB
