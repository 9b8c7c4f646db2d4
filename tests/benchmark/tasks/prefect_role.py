"""Prefect, in its own interpreter. Reads requests as JSON lines.

Flows run in this process, and Prefect's server in a child process.
"""

from __future__ import annotations

import sys

from prefect import flow, task
from prefect.task_runners import ThreadPoolTaskRunner

from tests.benchmark.engine.child import play
from tests.benchmark.tasks.marking import mark

_AT_ONCE = 8


@task
def marked(marks: str, run: str, name: str, lines: int) -> None:
    """One task."""
    mark(marks, run, name, lines)


@flow(task_runner=ThreadPoolTaskRunner(max_workers=_AT_ONCE))
def chain(marks: str, run: str, width: int, lines: int) -> None:
    """Run tasks one after the other."""
    for place in range(width):
        marked(marks, run, f"t{place:05}", lines)


@flow(task_runner=ThreadPoolTaskRunner(max_workers=_AT_ONCE))
def fanout(marks: str, run: str, width: int, lines: int) -> None:
    """Run tasks in parallel, then the join."""
    futures = [marked.submit(marks, run, f"t{place:05}", lines) for place in range(width)]
    marked.submit(marks, run, "join", lines, wait_for=futures).result()


class PrefectRole:
    """See the module."""

    def prepare(self, **_shape: object) -> None:
        """Does nothing: the tasks are code in this file."""

    def run(self, workload: str, kind: str, width: int, runs: int, lines: int, marks: str) -> bool:
        """Run a workload to its end."""
        what = chain if kind == "chain" else fanout
        for number in range(runs):  # in parallel, they wait for each other's writes to SQLite
            what(marks, f"{workload}-{number}", width, lines)
        return True

    def close(self) -> None:
        """Its server ends with this process."""


if __name__ == "__main__":
    sys.exit(play(PrefectRole()))
