"""Checkpoints, with real processes: the next attempt continues after a killed one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.pipelines.pipeline import Isolation, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.host import procfs
from nimbus.worker.host.remains import EXECUTOR_VARIABLE
from nimbus.worker.worker import Worker
from tests.nimbus.worker_bench import Bench, eventually

FIRST, SECOND = "run1.task.1", "run1.task.2"
COUNTS = """
import sys, time
from pathlib import Path
from nimbus.task import context
ctx = context()
row = ctx.last_checkpoint["row"] if ctx.last_checkpoint else 0
with open(sys.argv[1], "a") as file:
    file.write(f"from {row}\\n")
while not Path(sys.argv[2]).exists():
    row += 1
    ctx.checkpoint({"row": row})
    Path(sys.argv[1] + ".row").write_text(str(row))
    time.sleep(0.01)
"""
SHELL = 'echo "from ${NIMBUS_LAST_CHECKPOINT:-0}" >> "$1"; echo 7 > "$NIMBUS_CHECKPOINT"; [ -e "$2" ]'


@pytest.fixture
def bench(tmp_path: Path, shared_forks: None) -> Iterator[Bench]:
    made = Bench(tmp_path)
    worker = made.worker("w1")
    worker.start()
    yield made
    _close(worker)
    procfs.kill_all(lambda: procfs.with_variable(EXECUTOR_VARIABLE, str(made.root / "w1")), deadline_s=60.0)
    made.close()


def _close(worker: Worker) -> None:
    worker.close(timedelta(seconds=10))
    assert worker.failure is None


def _order(bench: Bench, attempt: str, isolation: Isolation) -> None:
    args = (str(bench.root / "said"), str(bench.root / "gate"))
    script = bench.script("count.py", COUNTS)
    bench.board.assign("w1", bench.order(script, attempt=attempt, args=args, isolation=isolation))


def _rows(bench: Bench) -> int:
    place = bench.root / "said.row"
    text = place.read_text() if place.exists() else ""
    return int(text or 0)


def _said(bench: Bench) -> list[str]:
    place = bench.root / "said"
    return place.read_text().splitlines() if place.exists() else []


def _goes_on(bench: Bench, isolation: Isolation) -> int:
    """Run the second attempt. Returns the row at which it begins."""
    _order(bench, SECOND, isolation)
    eventually(lambda: len(_said(bench)) == 2, "the second attempt runs")
    (bench.root / "gate").touch()
    assert bench.await_end(SECOND).outcome is Outcome.SUCCEEDED
    return int(_said(bench)[1].split()[1])


@pytest.mark.parametrize("isolation", [Isolation.ISOLATED, Isolation.POOLED])
def test_task_goes_on_at_its_last_checkpoint_when_its_process_is_killed(
    bench: Bench, isolation: Isolation
) -> None:
    _order(bench, FIRST, isolation)
    seen = eventually(lambda: _rows(bench) > 10 and _rows(bench), "the task makes checkpoints")

    os.kill(bench.driver_tree(FIRST)[0].pid, signal.SIGKILL)

    end = bench.await_end(FIRST)
    assert end.outcome is not Outcome.SUCCEEDED
    assert seen <= _row_of(end.checkpoint) == _goes_on(bench, isolation)


@pytest.mark.parametrize("isolation", [Isolation.ISOLATED, Isolation.POOLED])
def test_task_goes_on_at_its_last_checkpoint_when_what_holds_it_is_killed_too(
    bench: Bench, isolation: Isolation
) -> None:
    _order(bench, FIRST, isolation)
    seen = eventually(lambda: _rows(bench) > 10 and _rows(bench), "the task makes checkpoints")

    holder = bench.runner(FIRST) or procfs.with_variable(EXECUTOR_VARIABLE, str(bench.root / "w1"))[0]
    os.kill(holder.pid, signal.SIGKILL)

    end = bench.await_end(FIRST)
    assert end.outcome is Outcome.LOST
    assert seen <= _row_of(end.checkpoint) == _goes_on(bench, isolation)


@pytest.mark.parametrize("isolation", [Isolation.ISOLATED, Isolation.POOLED])
def test_task_goes_on_where_it_was_on_a_host_that_is_lost(bench: Bench, isolation: Isolation) -> None:
    _order(bench, FIRST, isolation)
    eventually(lambda: bench.slots(FIRST).checkpoint, "the board has a checkpoint")

    lost = End(attempt=FIRST, outcome=Outcome.LOST, written_by="leader", ended_at=datetime.now(UTC))
    bench.board.end(lost)
    eventually(lambda: not bench.processes(FIRST), "the task is ended")

    kept = bench.slots(FIRST).checkpoint
    assert kept is not None
    assert _row_of(kept) == _goes_on(bench, isolation), "and nothing that it did after that"


def test_program_finds_the_last_checkpoint_in_its_environment(bench: Bench) -> None:
    for attempt in (FIRST, SECOND):
        args = ("-ec", SHELL, "sh", str(bench.root / "said"), str(bench.root / "gate"))
        order = bench.order("sh", attempt=attempt, args=args, task_kind=TaskKind.SHELL)
        bench.board.assign("w1", order)
        assert bench.await_end(attempt).checkpoint == "7"

    assert _said(bench) == ["from 0", "from 7"]


def test_task_that_succeeded_leaves_no_checkpoint_in_its_end(bench: Bench) -> None:
    (bench.root / "gate").touch()
    _order(bench, FIRST, Isolation.POOLED)

    assert bench.await_end(FIRST).checkpoint is None


def _row_of(checkpoint: str | None) -> int:
    assert checkpoint is not None
    return int(json.loads(checkpoint)["row"])
