"""Luigi, in its own interpreter: `luigi_role.py WORKERS`. Reads requests as JSON lines.

With one worker, the tasks run in this process; with more workers, each task has its own process. As usual
with Luigi, each task writes a file when it is done. Luigi's scheduler is in this process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import luigi

from tests.benchmark.engine.child import play
from tests.benchmark.tasks.marking import mark


class Marked(luigi.Task):  # type: ignore[misc]
    """One task. Its position in the run determines the tasks that it needs."""

    marks = luigi.Parameter()
    run_name = luigi.Parameter()
    kind = luigi.Parameter()
    width = luigi.IntParameter()
    place = luigi.IntParameter()
    lines = luigi.IntParameter()

    def requires(self) -> list[Any]:
        """In a chain, the previous task; for a join, all other tasks."""
        if self.kind == "chain":
            return [self.clone(place=self.place - 1)] if self.place else []
        return [self.clone(place=place) for place in range(self.width)] if self.place == self.width else []

    def output(self) -> Any:
        """The file that shows that the task is done."""
        return luigi.LocalTarget(f"{self.marks}.done/{self.run_name}-{self.place}")

    def run(self) -> None:
        """Run the task, then write its file."""
        mark(self.marks, self.run_name, f"t{self.place:05}", self.lines)
        with self.output().open("w"):
            pass


class LuigiRole:
    """See the module."""

    def __init__(self, workers: str) -> None:
        self._workers = int(workers)

    def prepare(self, **_shape: object) -> None:
        """Does nothing: the tasks are code in this file."""

    def run(self, workload: str, kind: str, width: int, runs: int, lines: int, marks: str) -> bool:
        """Run a workload to its end."""
        Path(f"{marks}.done").mkdir()
        last = width - 1 if kind == "chain" else width
        tasks = [
            Marked(
                marks=marks, run_name=f"{workload}-{number}", kind=kind, width=width, place=last, lines=lines
            )
            for number in range(runs)
        ]
        return bool(luigi.build(tasks, workers=self._workers, local_scheduler=True, log_level="ERROR"))

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


if __name__ == "__main__":
    sys.exit(play(LuigiRole(*sys.argv[1:])))
