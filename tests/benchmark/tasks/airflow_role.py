"""Airflow with LocalExecutor and its own Postgres: `airflow_role.py PROFILE`. Reads requests as JSON lines.

Runs in the interpreter of `make bench-airflow-tools`. All of Airflow's processes descend from this process,
whose own processor time does not count. Postgres refuses to run as root, so root starts it as `postgres`.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from tests.benchmark.engine.child import play
from tests.benchmark.tasks.airflow_postgres import Postgres
from tests.benchmark.tasks.shapes import FULL, SLOTS, Shape

_START_S, _STOP_S, _LOOK_S = 180.0, 10.0, 0.5
_DAEMONS = ("api-server", "dag-processor", "scheduler")
_TUNED = {
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
    "AIRFLOW__SCHEDULER__MAX_TIS_PER_QUERY": "512",
}
_DAG = """\
from tests.benchmark.tasks.airflow_dag import dag_of
from tests.benchmark.tasks.shapes import Shape

dag = dag_of({shape!r}, {marks!r})
"""


class AirflowRole:
    """See the module."""

    def __init__(self, profile: str) -> None:
        home = Path(os.environ["AIRFLOW_HOME"])
        self._dags = home / "dags"
        self._dags.mkdir()
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._hang_up = select.poll()
        self._hang_up.register(sys.stdin, 0)  # only POLLHUP: the requesting process has ended
        self._postgres = Postgres(home / "postgres", _free_port())
        port = _free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._environment = {
            **os.environ,
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._dags),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": str(SLOTS),
            "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "64",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self._url}/execution/",
            "AIRFLOW__API__BASE_URL": self._url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API_AUTH__JWT_SECRET": "only-on-loopback-and-only-for-a-benchmark",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self._postgres.url,
            **(_TUNED if profile == "tuned" else {}),
        }
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._postgres.start()
        self._command("db", "migrate")
        for name in _DAEMONS:
            self._daemons.append(
                subprocess.Popen(
                    self._airflow(name),
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    start_new_session=True,
                )
            )
        self._until("Airflow answers", _START_S, self._answers)
        token = httpx.get(f"{self._url}/auth/token").raise_for_status().json()["access_token"]
        self._api = httpx.Client(
            base_url=f"{self._url}/api/v2/dags", headers={"Authorization": f"Bearer {token}"}, timeout=60
        )

    def _answers(self) -> bool:
        try:
            health = httpx.get(f"{self._url}/api/v2/monitor/health", timeout=10).json()
        except httpx.HTTPError:
            return False
        return all(health[name]["status"] == "healthy" for name in ("scheduler", "dag_processor"))

    def prepare(self, workload: str, kind: str, width: int, runs: int, lines: int, marks: str) -> None:
        """Write the workload as a DAG, and wait until Airflow knows it."""
        shape = Shape(workload, kind, width, runs, lines)
        (self._dags / f"{workload}.py").write_text(_DAG.format(shape=shape, marks=marks))
        self._command("dags", "reserialize")
        self._until("the DAG is known", _START_S, lambda: self._api.get(f"/{workload}").status_code == 200)

    def run(self, workload: str, kind: str, width: int, runs: int, lines: int, marks: str) -> bool:
        """Run a workload to its end."""
        del kind, width, lines, marks
        for number in range(runs):
            asked = {"dag_run_id": f"{workload}-{number}", "logical_date": None}
            self._api.post(f"/{workload}/dagRuns", json=asked).raise_for_status()

        def ended() -> bool:
            return self._count(workload, "success") + self._count(workload, "failed") == runs

        self._until("the runs end", FULL.patience_s, ended)
        return self._count(workload, "failed") == 0

    def _count(self, workload: str, state: str) -> int:
        found = self._api.get(f"/{workload}/dagRuns", params={"state": state, "limit": 1})
        return int(found.raise_for_status().json()["total_entries"])

    def _command(self, *words: str) -> None:
        subprocess.run(
            self._airflow(*words), env=self._environment, stdin=subprocess.DEVNULL, stdout=2, check=True
        )

    def _airflow(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "airflow", *words]

    def _until(self, what: str, within_s: float, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            if any(daemon.poll() is not None for daemon in self._daemons):
                raise RuntimeError("a process of Airflow has ended")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {within_s:.0f} s: {what}")
            if self._hang_up.poll(_LOOK_S * 1000):
                raise EOFError("the requesting process has ended")

    def close(self) -> None:
        """Stop all processes."""
        for daemon in self._daemons:
            daemon.terminate()
        deadline = time.monotonic() + _STOP_S
        for daemon in self._daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(max(0, deadline - time.monotonic()))
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        self._postgres.stop()


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


if __name__ == "__main__":
    sys.exit(play(AirflowRole(*sys.argv[1:])))
