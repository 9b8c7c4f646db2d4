"""Measures a SQL task with its own Spark, and in a session on a warm Connect server.

`python -m tests.benchmark.launch.connect [--warm N] [--rounds N]`: through a real worker, runner and driver,
with the board in a folder. Each round runs one task in `mode: classic`, then six in `mode: connect`, so that
other work on the machine disturbs both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from nimbus.domain.pipelines.pipeline import SparkMode, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.java import find_java
from nimbus.worker.connect.server import LocalServer, LocalServerSettings
from tests.nimbus.worker_bench import Bench

_CONNECT_A_ROUND = 6


class _Line:
    """One worker, which runs tasks one after the other."""

    def __init__(self, root: Path) -> None:
        java_home = find_java().java_home
        self._bench = Bench(root)
        self._bench.script("sum.sql", "SELECT sum(id) AS total FROM range(1000)")
        server = LocalServerSettings(
            folder=root / "w1" / "connect",
            master="local[2]",
            spark_conf={},
            env={},
            java_home=lambda: java_home,
        )
        # Without kept JVMs, or only the first classic task starts its own Spark.
        settings = {"connect": LocalServer(server), "java_home": lambda: java_home, "idle_jvms": 0}
        self._worker = self._bench.worker("w1", settings=settings)
        self._worker.start()
        self._count = 0

    def took_s(self, mode: SparkMode) -> float:
        """Run a task. Returns the seconds from its order to its END."""
        self._count += 1
        attempt = f"r{self._count}.sum.1"
        order = self._bench.order("sum.sql", attempt=attempt, task_kind=TaskKind.SQL, spark_mode=mode)
        began = time.perf_counter()
        self._bench.board.assign("w1", order)
        end = self._bench.await_end(attempt, 600)
        took_s = time.perf_counter() - began
        if end.outcome is not Outcome.SUCCEEDED:
            raise SystemExit(f"{attempt}: {end}")
        return took_s

    def close(self) -> None:
        """End worker and server."""
        self._worker.close(timedelta(seconds=10))
        self._bench.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warm", type=int, default=50, help="tasks before the first round")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        line = _Line(Path(root))
        try:
            first_s = line.took_s(SparkMode.CONNECT)
            for _ in range(asked.warm):
                line.took_s(SparkMode.CONNECT)
            classic, connect = [], []
            for _ in range(asked.rounds):
                classic.append(line.took_s(SparkMode.CLASSIC))
                connect += [line.took_s(SparkMode.CONNECT) for _ in range(_CONNECT_A_ROUND)]
        finally:
            line.close()
    cold_s, warm_s = statistics.median(classic), statistics.median(connect)
    sys.stdout.write(
        f"first task in mode connect, with the start of the server: {first_s:.2f} s\n"
        f"classic {cold_s:.2f} s, connect {warm_s:.3f} s, ratio 1/{cold_s / warm_s:.0f}; "
        f"load {os.getloadavg()[0]:.1f}\n"
    )


if __name__ == "__main__":
    main()
