"""A local stack for the chaos tests: requests to any living scheduler, publish, runs, waits with a limit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx

from blobsync import publish
from nimbus.cli.options import object_store
from nimbus.cli.pipeline.sources import read_sources
from nimbus.config import load_settings
from nimbus.localstack.daemons import ROOT, StackTuning
from nimbus.localstack.stack import LocalStack
from nimbus.worker.host import procfs
from tests.nimbus.chaos.journal import Execution, read_journal
from tests.nimbus.chaos.laws import Ledger, audit, ends
from tests.nimbus.chaos.txnlog import Transaction, read_log

Found = TypeVar("Found")

PIPELINE = Path(__file__).parent / "pipeline"
NAME = "chaos"
SPARK_PIPELINE = Path(__file__).parent / "spark_pipeline"
SPARK_NAME = "chaos-spark"
READING_PIPELINE = Path(__file__).parent / "reading_pipeline"
READING_NAME = "chaos-reading"
SESSION = timedelta(seconds=3)
"""The shortest timeout that the configuration's checks allow with default margins."""
FINAL = ("succeeded", "failed", "stopped")

_POLL_S = 0.1
"""Not shorter: each look is a request, which takes 5 ms of processor time."""
_ASK_S = 3.0
"""Time limit of one request; a scheduler that does not answer is skipped."""
_COMMAND_S = 120.0


class NotInTimeError(AssertionError):
    """A promised event did not happen within its time limit."""


def until(what: str, seconds: float, look: Callable[[], Found | None]) -> Found:
    """Call `look` repeatedly until its result is true, and return the result.

    Raises:
        NotInTimeError: it did not become true in time.
    """
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not (found := look()):
        if time.monotonic() > end:
            raise NotInTimeError(f"{what}: not within {seconds:g} s")
        pause.wait(_POLL_S)
    return found


def moment(seconds: float) -> None:
    """Sleep: the only wait without a condition, because the delay itself is the fault."""
    threading.Event().wait(seconds)


@dataclass
class Cluster:
    """A started stack with the chaos pipeline's journal. Main thread only."""

    stack: LocalStack
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=_ASK_S))
    silent: set[int] = field(default_factory=set)
    """Numbers of schedulers that were killed or stopped, which get no requests."""

    @property
    def journal(self) -> Path:
        """The file that all executions write to."""
        return self.stack.folder / "journal.jsonl"

    def ask(self, path: str, *, within_s: float = 60.0) -> Any:
        """Read a JSON document below `/api/v1` from the first scheduler that answers."""
        return until(f"an answer to GET {path}", within_s, lambda: self._asked(path))

    def _asked(self, path: str) -> Any:
        for url in self._urls():
            try:
                answer = self.http.get(f"{url}/api/v1{path}")
            except httpx.TransportError:
                continue
            if answer.is_success:
                return answer.json()
        return None

    def command(self, path: str, body: Mapping[str, Any]) -> Any:
        """Submit a command that is safe to repeat, and wait for its acceptance."""

        def submit() -> Any:
            for url in self._urls():
                try:
                    answer = self.http.post(
                        f"{url}/api/v1{path}", params={"wait": 20}, json=body, timeout=_COMMAND_S
                    )
                except httpx.TransportError:
                    continue
                if answer.is_success and answer.json()["status"] == "accepted":
                    return answer.json()
                if answer.status_code < 500 and not answer.is_success:
                    raise AssertionError(f"POST {path} was refused: {answer.text}")
            return None

        return until(f"acceptance of POST {path}", _COMMAND_S, submit)

    def _urls(self) -> list[str]:
        urls = self.stack.addresses.schedulers
        return [url for number, url in enumerate(urls, 1) if number not in self.silent]

    def participants(self) -> list[dict[str, Any]]:
        """Every scheduler, as reported by a living one."""
        found: list[dict[str, Any]] = self.ask("/participants")["participants"]
        return found

    def participant(self, number: int) -> dict[str, Any]:
        """One scheduler, as reported by a living one; empty if it is unknown."""
        return next((each for each in self.participants() if each["id"] == f"scheduler-{number}"), {})

    def leader(self, *, above: int = 0, within_s: float = 180.0) -> dict[str, Any]:
        """The participant that leads and has recovered, with an epoch above `above`."""

        def look() -> dict[str, Any] | None:
            for each in self.participants():
                if each["is_leader"] and each["recovered_at"] and (each["epoch"] or 0) > above:
                    return each
            return None

        return until(f"a leader with an epoch above {above}", within_s, look)

    def whole(self, within_s: float = 180.0, *, unready: int = 0) -> None:
        """Wait until all schedulers are up and queued, one leads, and all workers are registered.

        Args:
            within_s: The bound.
            unready: How many schedulers may lack files.
        """
        count, workers = len(self.stack.schedulers), len(self.stack.workers)

        def look() -> bool:
            status = self.ask("/status")
            enough = status["schedulers"] == status["schedulers_ready"] + unready == count
            queued = [each for each in self.participants() if each["queue_position"] is not None]
            return bool(enough and len(queued) == count and status["leader"] and status["workers"] >= workers)

        self.stack.wait_ready(timedelta(seconds=120))
        until("the cluster to be whole", within_s, look)

    def publish(self, folder: Path = PIPELINE) -> str:
        """Publish a pipeline, make it active, and return its release's digest."""
        store = object_store(load_settings(self.stack.config_file(1), os.environ).storage)
        spec, files = read_sources(folder)
        digest = publish(store, name=spec.name, files=files).digest
        self.command(f"/pipelines/{spec.name}/releases", {"digest": digest, "activate": True})
        return digest

    def start_run(
        self, run_id: str, *, pipeline: str = NAME, scale: float = 1.0, gates: Path | None = None
    ) -> str:
        """Start a run with a given id, so that a repeated request starts only one.

        Args:
            run_id: Its id.
            pipeline: The pipeline.
            scale: Duration factor of the tasks in the middle.
            gates: A folder. Each task in the middle runs until the folder has a file with its name.
        """
        self.command("/runs", self._wish(run_id, scale, gates, pipeline))
        return run_id

    def restart_run(self, run_id: str, *, scale: float = 1.0) -> None:
        """Request an existing run again: a command that changes nothing. Does not wait for the decision."""
        wish = self._wish(run_id, scale)

        def queued() -> bool:
            for url in self._urls():
                try:
                    if self.http.post(f"{url}/api/v1/runs", json=wish).is_success:
                        return True
                except httpx.TransportError:
                    continue
            return False

        until(f"run {run_id} to be asked for again", _COMMAND_S, queued)

    def _wish(
        self, run_id: str, scale: float, gates: Path | None = None, pipeline: str = NAME
    ) -> dict[str, Any]:
        parameters: dict[str, Any] = {"journal": str(self.journal), "scale": scale}
        if gates is not None:
            parameters["gates"] = str(gates)
        return {"pipeline": pipeline, "run_id": run_id, "parameters": parameters}

    def run(self, run_id: str) -> dict[str, Any]:
        """A run in full."""
        found: dict[str, Any] = self.ask(f"/runs/{run_id}")
        return found

    def finished(self, run_id: str, within_s: float) -> dict[str, Any]:
        """Wait for a run's end."""

        def look() -> dict[str, Any] | None:
            run = self.run(run_id)
            return run if run["state"] in FINAL else None

        return until(f"the end of run {run_id}", within_s, look)

    def computing(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Claimed attempts of a run: id and API data."""
        return [
            (f"{run_id}.{task['name']}.{task['attempts'][-1]['number']}", task["attempts"][-1])
            for task in self.run(run_id)["tasks"]
            if task["attempts"] and not task["attempts"][-1]["outcome"] and task["attempts"][-1]["host"]
        ]

    def executions(self) -> list[Execution]:
        """The journal, without a line that is being written."""
        text = self.journal.read_text() if self.journal.exists() else ""
        return read_journal(text[: text.rfind("\n") + 1].splitlines())

    @property
    def log_folder(self) -> Path:
        """ZooKeeper's transaction log."""
        return self.stack.zookeeper.data_dir / "data" / "version-2"

    def log(self) -> tuple[Transaction, ...]:
        """Everything that was ever written."""
        return read_log(self.log_folder)

    def ledger(self) -> Ledger:
        """The ledger of leadership from the log."""
        return audit(self.log(), ROOT)

    def ends(self) -> Mapping[str, Mapping[str, Any]]:
        """The END of each attempt, from the log."""
        return ends(self.log(), ROOT)

    def logged(self, event: str) -> int:
        """Number of lines of an event in the logs of schedulers and workers."""
        daemons = (*self.stack.schedulers, *self.stack.workers)
        return sum(daemon.log.read_bytes().count(f" {event} ".encode()) for daemon in daemons)

    def work_dirs(self) -> dict[str, Path]:
        """The folder of each standalone worker, by name."""
        return {worker.name: self.stack.folder / worker.name / "worker" for worker in self.stack.workers}

    def left_behind(self, run_id: str) -> list[str]:
        """Processes of attempts of a run, found by their arguments or their environment."""
        return [
            str(found)
            for found in self.stack.leftovers()
            if f"{run_id}." in found.command
            or f"/{run_id}.".encode() in (procfs.environment_of(found.pid) or b"")
        ]

    def stop_daemons(self) -> None:
        """Stop workers and schedulers by SIGTERM; ZooKeeper and S3 keep running."""
        daemons = (*self.stack.workers, *self.stack.schedulers)
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.stop(timedelta(seconds=20))

    def kill_scheduler(self, number: int) -> float:
        """Send SIGKILL; return the time."""
        self.silent.add(number)
        at = time.time()
        self.stack.scheduler(number).kill()
        return at

    def stop_scheduler(self, number: int) -> None:
        """Send SIGTERM."""
        self.silent.add(number)
        self.stack.scheduler(number).stop(timedelta(seconds=20))

    def start_scheduler(self, number: int, *, wait: bool = True) -> None:
        """Start it again."""
        self.stack.scheduler(number).spawn()
        if wait:
            self.stack.scheduler(number).wait_ready(timedelta(seconds=120))
        self.silent.discard(number)


def number_of(participant: Mapping[str, Any]) -> int:
    """The number of a scheduler, from its id `scheduler-<n>`."""
    return int(participant["id"].rpartition("-")[2])


def seconds_after(at: float, shown: str) -> float:
    """Seconds from our time `at` to a time in the API."""
    return datetime.fromisoformat(shown).timestamp() - at


@contextmanager
def cluster(
    folder: Path, *, schedulers: int = 3, workers: int = 0, session: timedelta = SESSION
) -> Iterator[Cluster]:
    """A started cluster with the chaos pipeline active; always stopped afterwards.

    Args:
        folder: The stack's folder.
        schedulers: Number of schedulers.
        workers: Number of standalone workers.
        session: Session timeout; longer if a busy machine must not depose a leader.
    """
    tuning = StackTuning(slots=3, session_timeout=session, attempt_patience=timedelta(seconds=2))
    with LocalStack(folder, schedulers, workers=workers, tuning=tuning) as stack:
        made = Cluster(stack)
        with made.http:
            stack.wait_ready(timedelta(seconds=120))
            made.publish()
            made.whole()
            yield made
