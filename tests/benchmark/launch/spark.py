"""Measures the time until a Spark task has its session: cold, and in a kept JVM, in turns.

`python -m tests.benchmark.launch.spark --rounds 5`. It measures wall time and processor time, from the order
until user code has a session. Processor time is more reliable if other processes use the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from nimbus.domain.pipelines.pipeline import SparkReuse, TaskKind
from nimbus.java import find_java
from nimbus.worker.host import procfs
from nimbus.worker.jvm.launcher import JvmLauncher
from nimbus.worker.launcher import ForkLauncher
from tests.nimbus.worker_bench import Bench, eventually

TASK = """
import os, sys, time
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
ready = time.time()
with open(sys.argv[1], "w") as file:
    file.write(str(ready))
while not os.path.exists(sys.argv[1] + "-read"):
    time.sleep(0.01)
"""
_PATIENCE_S = 600.0
_FIRST = 3
"""Attempts in the kept JVM that are not measured: its code is not compiled yet."""


class SparkBench:
    """One worker's folder, with a launcher that keeps JVMs."""

    def __init__(self, place: Path) -> None:
        self.jvms = JvmLauncher(ForkLauncher(), place / "w1", limit=1)
        self.bench = Bench(place, self.jvms)
        self.jvms.start()
        self._place, self._count = place, 0
        self._script = self.bench.script("task.py", TASK)

    def measured(self, way: str) -> tuple[float, float]:
        """Run a task. Returns wall time and processor time in seconds, from its order to its session."""
        self._count += 1
        attempt, told = f"run1.task{self._count}.1", self._place / f"told-{self._count}"
        order = self.bench.order(
            self._script,
            attempt=attempt,
            task_kind=TaskKind.PYSPARK,
            args=(str(told),),
            spark_reuse=SparkReuse.RELEASE if way == "kept" else SparkReuse.OFF,
        )
        before = sum(_cpu_s(jvm.id.pid) for jvm in self.jvms.jvms)
        folder = self.bench.folder(attempt)
        begun = time.time()
        folder.create(order)
        runner = self.jvms(folder, self.bench.startup())
        assert runner is not None
        eventually(told.exists, "the session", _PATIENCE_S)
        used = _cpu_s(runner.pid) + sum(_cpu_s(jvm.id.pid) for jvm in self.jvms.jvms) - before
        told.with_name(f"{told.name}-read").touch()
        self.bench.await_end(attempt, _PATIENCE_S)
        eventually(lambda: folder.is_delivered, "delivery")
        return float(told.read_text()) - begun, used

    def close(self) -> None:
        self.jvms.close()
        self.bench.close()


def _cpu_s(session: int) -> float:
    """Processor time of the running processes of a session, and of their reaped children."""
    used = 0.0
    for found in procfs.living():
        if found.session == session:
            fields = Path(f"/proc/{found.id.pid}/stat").read_text().rpartition(")")[2].split()
            used += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return used


def main(words: list[str] | None = None) -> int:
    """Run the benchmark. Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.launch.spark", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(words)
    os.environ["JAVA_HOME"] = str(find_java().java_home)
    place = Path(tempfile.mkdtemp(prefix="nimbus-bench-spark-"))
    found: dict[str, list[tuple[float, float]]] = {"cold": [], "kept": []}
    stage = SparkBench(place)
    try:
        for _ in range(_FIRST):
            stage.measured("kept")
        for number in range(options.rounds):
            for way, times in found.items():
                times.append(stage.measured(way))
                sys.stdout.write(f"round {number + 1}: {way:4} {times[-1][0]:7.2f} {times[-1][1]:7.2f}\n")
                sys.stdout.flush()
    finally:
        stage.close()
        shutil.rmtree(place, ignore_errors=True)
    _print(found)
    return 0


def _print(found: dict[str, list[tuple[float, float]]]) -> None:
    medians = {
        way: [statistics.median(one) for one in zip(*times, strict=True)] for way, times in found.items()
    }
    for number, what in enumerate(("order to session, wall time", "order to session, processor time")):
        stock = medians["cold"][number]
        for way, figures in medians.items():
            ratio = figures[number] / stock
            sys.stdout.write(f"{what:32}{way:4} p50 {figures[number]:7.2f} s   ratio {ratio:.3f}\n")


if __name__ == "__main__":
    sys.exit(main())
