"""Other products, each in a process with the interpreter of `make bench-tasks-tools`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmark.blobsync.line_process import PROJECT, BenchFailedError, LineProcess
from tests.benchmark.tasks.shapes import Shape

_PYTHON = PROJECT / "build" / "bench-tasks-tools" / "bin" / "python"
LUIGI, LUIGI_PROCESSES, PREFECT = "luigi", "luigi-processes", "prefect"
_ROLES = {
    LUIGI: ("tests.benchmark.tasks.luigi_role", "1"),
    LUIGI_PROCESSES: ("tests.benchmark.tasks.luigi_role", "8"),
    PREFECT: ("tests.benchmark.tasks.prefect_role",),
}
PEERS = tuple(_ROLES)


class Peer:
    """See `whole_run.Product`."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process
        self.pid = process.pid

    def prepare(self, shape: Shape, marks: Path) -> None:
        """Nothing: its tasks are code that is there."""

    def run(self, shape: Shape, marks: Path, within_s: float) -> None:
        """Run a workload to its end."""
        done = self._process.ask(
            {
                "do": "run",
                "workload": shape.workload,
                "kind": shape.kind,
                "width": shape.width,
                "runs": shape.runs,
                "lines": shape.lines,
                "marks": str(marks),
            }
        )
        if not done["value"]:
            raise BenchFailedError(f"{shape.workload} has failed")


@contextmanager
def peer(name: str, place: Path) -> Iterator[Peer]:
    """A started one. BenchFailedError: it is not installed."""
    if not _PYTHON.exists():
        raise BenchFailedError("not installed: `make bench-tasks-tools`")
    home = place / name
    home.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "PREFECT_HOME": str(home),
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "DO_NOT_TRACK": "1",
    }
    process = LineProcess(name, [str(_PYTHON), "-m", *_ROLES[name]], home / "log", environment)
    try:
        yield Peer(process)
    finally:
        process.close()
