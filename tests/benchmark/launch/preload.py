"""Measures a pooled task that imports a module: with `worker.preload`, and without.

`python -m tests.benchmark.launch.preload [--module pandas] [--tasks 20]`. A zygote forks one driver after the
other, without a board. The figures are the processor time of a driver, as its END has it, and the elapsed
time from the order to start until its end is known.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from nimbus.domain.pipelines.pipeline import Limits
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.driver.environment import passed_on
from nimbus.worker.driver.main import DriverPlan
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.loop import Loop
from nimbus.worker.host.remains import ATTEMPT_VARIABLE
from nimbus.worker.pool.drivers import DriverEnd, Drivers
from tests.benchmark.leader.figures import summary

_WITHIN_S = 60.0


class _Bench:
    """Starts drivers one after the other. Main thread."""

    def __init__(self, folder: Path, tasks: int, preload: tuple[str, ...]) -> None:
        self._folder, self._left = folder, tasks
        self._loop, self._began_s = Loop(), 0.0
        self.cpu_ms: list[float] = []
        self.elapsed_ms: list[float] = []
        self._drivers = Drivers(self._loop, self, preload=preload)

    def run(self) -> None:
        self._loop.run()
        self._drivers.kill_zygote()

    def drivers_are_ready(self) -> None:
        self._left -= 1
        attempt = AttemptFolder(self._folder / f"run.task.{self._left + 1}")
        for place in (attempt.path, attempt.work, attempt.scratch):
            place.mkdir()
        environment = {**passed_on(os.environ), ATTEMPT_VARIABLE: f"bench/{attempt.path.name}"}
        self._began_s = time.monotonic()
        self._drivers.start(
            attempt,
            environment,
            None,
            plan=_plan(self._folder),
            execute=False,
            until_s=boottime_s() + _WITHIN_S,
        )

    def driver_ended(self, end: DriverEnd) -> None:
        if end.status != 0 or end.used is None:
            raise RuntimeError((self._folder / end.attempt / "log").read_text() or str(end))
        self.elapsed_ms.append((time.monotonic() - self._began_s) * 1000)
        self.cpu_ms.append(end.used.cpu_ms)
        self._loop.post(self.drivers_are_ready if self._left else self._loop.stop)

    def not_preloaded(self, reasons: Mapping[str, str]) -> None:
        raise RuntimeError(str(reasons))

    def zygote_ended(self) -> None:
        raise RuntimeError("the zygote has ended")


def _plan(release: Path) -> DriverPlan:
    return DriverPlan(
        kind="python",
        script="task.py",
        main_class="",
        args=(),
        release_root=str(release),
        python_path=(),
        wheels=(),
        master="",
        worker_conf={},
        task_conf={},
        limits=asdict(Limits()),
    )


@contextmanager
def _release(text: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="nimbus-bench-preload-"))
    try:
        (folder / "task.py").write_text(text)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(words: list[str] | None = None) -> int:
    """Run the benchmark, and print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.launch.preload", description=__doc__)
    parser.add_argument("--module", default="pandas")
    parser.add_argument("--tasks", type=int, default=20)
    options = parser.parse_args(words)
    cases: dict[str, Callable[[Path], _Bench]] = {
        "imported by each task": partial(_Bench, tasks=options.tasks, preload=()),
        "preloaded": partial(_Bench, tasks=options.tasks, preload=(options.module,)),
    }
    for case, make in cases.items():
        with _release(f"import {options.module}\n") as folder:
            bench = make(folder)
            bench.run()
        cpu, elapsed = summary(bench.cpu_ms), summary(bench.elapsed_ms)
        sys.stdout.write(
            f"{options.module}, {case}: CPU p50 {cpu['p50']:.0f} ms, max {cpu['max']:.0f} ms; "
            f"elapsed p50 {elapsed['p50']:.1f} ms, max {elapsed['max']:.1f} ms\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
