"""Attempts on a work disk that is full: by a task, or by something else for a while. Real processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from nimbus.domain.pipelines.pipeline import Isolation
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.host import procfs
from nimbus.worker.host.remains import EXECUTOR_VARIABLE
from nimbus.worker.worker import Worker
from tests.nimbus.worker_bench import Bench, eventually

FILLS_ITS_DISK = """
import os
print("x" * (200 << 10), flush=True)
with open(os.environ["TMPDIR"] + "/large", "wb", buffering=0) as file:
    for size in (1 << 20, 1 << 10, 1):
        try:
            while True:
                file.write(b"x" * size)
        except OSError as exc:
            error = exc
for n in range(1000):
    try:
        os.mkdir(f"{os.environ['TMPDIR']}/{n}")
    except OSError:
        break
raise error
"""
WAITS = """
import sys, time
from pathlib import Path
Path(sys.argv[1]).touch()
time.sleep(600)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The worker's folder."""
    folder = tmp_path / "w1"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=80m,nr_inodes=500", "none", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def bench(tmp_path: Path, small_disk: Path, shared_forks: None) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def worker(bench: Bench) -> Iterator[Worker]:
    made = bench.worker()
    made.start()
    yield made
    made.close(timedelta(seconds=10))


def _holder(bench: Bench) -> psutil.Process:
    """The runner or executor of the attempt."""
    found = bench.runner()
    if found is None:
        found = procfs.with_variable(EXECUTOR_VARIABLE, str(bench.root / "w1"))[0]
    return psutil.Process(found.pid)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_task_that_fills_its_disk_fails_and_leaves_its_worker_free(
    bench: Bench, worker: Worker, small_disk: Path, isolation: Isolation
) -> None:
    bench.board.assign("w1", bench.order(bench.script("task.py", FILLS_ITS_DISK), isolation=isolation))

    end = bench.await_end()

    assert end.outcome is Outcome.FAILED, end.reason
    assert "No space left on device" in end.reason
    eventually(lambda: not worker.unended(), "a free worker")
    # `walk` passes over folders that are being removed while it looks.
    eventually(lambda: not any("large" in files for _, _, files in os.walk(small_disk)), "room")


@pytest.mark.parametrize("isolation", list(Isolation))
def test_attempt_goes_on_when_its_disk_was_full_while_the_board_was_away(
    bench: Bench, worker: Worker, small_disk: Path, tmp_path: Path, isolation: Isolation
) -> None:
    script, runs = bench.script("task.py", WAITS), tmp_path / "runs"
    bench.board.assign("w1", bench.order(script, args=(str(runs),), isolation=isolation))
    eventually(runs.exists, "the task runs")
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        for size in (1 << 20, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
        file.write(b"x" * 4096)

    holder = _holder(bench)
    writes = holder.io_counters().write_count
    bench.board.cut_off(down=True)
    eventually(lambda: holder.io_counters().write_count > writes + 5, "it logs that the board is away")
    bench.board.cut_off(down=False)
    bench.board.request_stop("run1.task.1")

    assert bench.await_end().outcome is Outcome.STOPPED
    ballast.unlink()
    eventually(lambda: not worker.unended(), "a free worker")
