"""Starts other products, each in a process of the interpreter that `make` installed for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmark.blobsync.line_process import PROJECT, BenchFailedError, LineProcess
from tests.benchmark.tasks.airflow_postgres import postgres_bin
from tests.benchmark.tasks.shapes import Shape

_TOOLS = "bench-tasks-tools"
_AIRFLOW_TOOLS = "bench-airflow-tools"
LUIGI, LUIGI_PROCESSES, PREFECT = "luigi", "luigi-processes", "prefect"
AIRFLOW, AIRFLOW_TUNED = "airflow", "airflow-tuned"
_ROLES = {
    LUIGI: ("tests.benchmark.tasks.luigi_role", "1"),
    LUIGI_PROCESSES: ("tests.benchmark.tasks.luigi_role", "8"),
    PREFECT: ("tests.benchmark.tasks.prefect_role",),
    AIRFLOW: ("tests.benchmark.tasks.airflow_role", "default"),
    AIRFLOW_TUNED: ("tests.benchmark.tasks.airflow_role", "tuned"),
}
PEERS = tuple(_ROLES)


class NotInstalledError(Exception):
    """A product is not installed here."""


class Peer:
    """See `whole_run.Product`."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process
        self.pid = process.pid

    def prepare(self, shape: Shape, marks: Path) -> None:
        """Make the workload known."""
        self._ask("prepare", shape, marks)

    def run(self, shape: Shape, marks: Path, within_s: float) -> None:
        """Run a workload to its end."""
        if not self._ask("run", shape, marks):
            raise BenchFailedError(f"{shape.workload} has failed")

    def _ask(self, what: str, shape: Shape, marks: Path) -> Any:
        return self._process.ask({"do": what, **asdict(shape), "marks": str(marks)})["value"]


@contextmanager
def peer(name: str, place: Path) -> Iterator[Peer]:
    """A started product. Raises NotInstalledError."""
    tools = _AIRFLOW_TOOLS if name in (AIRFLOW, AIRFLOW_TUNED) else _TOOLS
    python = PROJECT / "build" / tools / "bin" / "python"
    if not python.exists():
        raise NotInstalledError(f"not installed: `make {tools}`")
    if tools == _AIRFLOW_TOOLS and postgres_bin() is None:
        raise NotInstalledError("Postgres is not installed: `apt-get install postgresql`")
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
        "AIRFLOW_HOME": str(home),
    }
    process = LineProcess(name, [str(python), "-m", *_ROLES[name]], home / "log", environment)
    try:
        yield Peer(process)
    finally:
        process.close()
