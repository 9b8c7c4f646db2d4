"""What processes used, from /proc and from the kernel's own count; what Spark did, from its status store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nimbus.attempt.model import Story
from nimbus.domain.attempts.cost import Cost
from nimbus.domain.attempts.slots import Holder
from nimbus.domain.pipelines.pipeline import Limits, TaskKind
from nimbus.worker.attempt.held_attempt import HeldAttempt
from nimbus.worker.attempt.limits import LimitWatch
from nimbus.worker.driver import spark_figures
from nimbus.worker.driver.spark_figures import CostBook
from nimbus.worker.host import usage
from nimbus.worker.host.usage import Usage
from tests.nimbus.worker_bench import Bench

MIB = 1 << 20
HELD = """
import sys, time
held = bytearray(b"x") * (100 << 20)
while time.process_time() < 0.5: pass
del held
print(flush=True)
sys.stdin.read()
"""


def test_living_process_is_told_with_its_time_and_the_peak_since_it_was_forgotten() -> None:
    command = [sys.executable, "-c", HELD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        before = usage.of_living([process.pid])
        usage.forget_peaks([process.pid, 0])
        after = usage.of_living([process.pid])
        process.communicate()

    assert 450 <= before.cpu_ms < 5000
    assert before.peak_memory_bytes > 100 * MIB > after.peak_memory_bytes > 0
    assert usage.of_living([process.pid]) == Usage(), "it has ended"


def test_process_that_has_ended_is_told_by_the_kernel_to_its_parent() -> None:
    if (pid := os.fork()) == 0:
        held = bytearray(b"x") * (100 * MIB)
        os._exit(len(held) == 0)
    _, _, used = os.wait4(pid, 0)

    assert usage.of_ended(used).peak_memory_bytes > 100 * MIB
    assert usage.of_children().peak_memory_bytes > 100 * MIB


@pytest.mark.parametrize(("measured", "peak"), [(None, 20), (10, 20), (30, 30)])
def test_end_has_the_larger_peak_and_no_figures_of_processes_that_the_task_wrote(
    tmp_path: Path, measured: int | None, peak: int
) -> None:
    bench = Bench(tmp_path)
    held = HeldAttempt(
        order=bench.order("task.py", task_kind=TaskKind.PYSPARK),
        plan=bench.startup().plan,
        folder=bench.folder(),
    )
    held.folder.create(held.order)
    held.folder.cost_file.write_text('{"task_ms": 7, "cpu_ms": 9, "peak_memory_bytes": 99}')
    held.claim, held.used = held.new_claim(Holder.PROCESS), Usage(5, 20)
    if measured is not None:
        held.measured = LimitWatch(Limits(), processes=list, folders=[])
        held.measured.peak_bytes = measured

    assert held.ended(Story(0), "runner").cost == Cost(cpu_ms=5, peak_memory_bytes=peak, task_ms=7)
    bench.close()


def test_usage_of_several_is_their_time_together_and_the_peak_of_the_largest() -> None:
    assert Usage(1, 20).plus(Usage(2, 10)).plus(Usage()) == Usage(3, 20)


class _List:
    """A sequence of Scala."""

    def __init__(self, *entries: Any) -> None:
        self._entries = entries

    def size(self) -> int:
        return len(self._entries)

    def apply(self, number: int) -> Any:
        return self._entries[number]


def _answers(**values: Any) -> Any:
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


def _executor(name: str, *, ms: int, peak: dict[str, int] | None = None) -> Any:
    found = _answers(isDefined=peak is not None, get=_Metrics(peak or {}))
    return _answers(
        id=name, totalDuration=ms, totalShuffleRead=3, totalShuffleWrite=4, peakMemoryMetrics=found
    )


class _Metrics:
    def __init__(self, values: dict[str, int]) -> None:
        self._values = values

    def getMetricValue(self, name: str) -> int:  # noqa: N802 - of Spark
        return self._values.get(name, 0)


def _context(executors: _List, stages: Any) -> Any:
    store = SimpleNamespace(executorList=lambda _: executors, stageList=lambda *_: stages)
    spark = _answers(statusStore=store, listenerBus=SimpleNamespace())  # which raises: its events are late
    jvm = SimpleNamespace(double=None, java=SimpleNamespace(util=_answers(ArrayList=None)))
    gateway = SimpleNamespace(jvm=jvm, new_array=lambda *_: None)
    return SimpleNamespace(_jsc=_answers(sc=spark), _gateway=gateway)


HEAP = {"JVMHeapMemory": 100, "JVMOffHeapMemory": 20}
TREE = {"ProcessTreeJVMRSSMemory": 300, "ProcessTreePythonRSSMemory": 50, **HEAP}


def test_contexts_of_a_driver_are_added_up_and_the_largest_executor_counts(tmp_path: Path) -> None:
    place = tmp_path / "cost.json"
    book = CostBook(place)
    driver = _executor("driver", ms=5, peak={"JVMHeapMemory": 9000})
    stages = _List(_answers(diskBytesSpilled=7), _answers(diskBytesSpilled=1))

    book.add(_context(_List(driver, _executor("0", ms=10, peak=TREE), _executor("1", ms=1)), stages))
    book.add(_context(_List(driver, _executor("0", ms=10, peak=HEAP)), _List()))
    book.add(SimpleNamespace(_jsc=None))

    assert json.loads(place.read_bytes()) == {
        "task_ms": 31,
        "shuffle_read_bytes": 15,
        "shuffle_write_bytes": 20,
        "executor_peak_bytes": 350,
        "spill_bytes": 8,
    }


def test_figures_that_cannot_be_read_are_left_out_and_cost_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "cost.json"
    book = CostBook(place)
    book.add(_context(_List(_executor("driver", ms=5)), None))
    assert json.loads(place.read_bytes()) == {
        "task_ms": 5, "shuffle_read_bytes": 3, "shuffle_write_bytes": 4,
    }  # fmt: skip

    monkeypatch.setattr(spark_figures, "_DEADLINE_S", -1.0)
    late = CostBook(place)
    late.add(_context(_List(_executor("driver", ms=5)), _List()))
    assert json.loads(place.read_bytes()) == {}
    CostBook(tmp_path / "none" / "cost.json").add(_context(_List(), _List()))
