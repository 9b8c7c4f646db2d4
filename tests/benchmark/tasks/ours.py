"""Our product: a local stack of one revision, used through its API."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from nimbus.localstack.folder import end_tagged
from tests.benchmark.blobsync.line_process import BenchFailedError, LineProcess
from tests.benchmark.engine.revision import Revision, interpreter
from tests.benchmark.tasks.marks import count_ends
from tests.benchmark.tasks.shapes import SLOTS, Shape, needs_of, task_document, write_pipeline

_ASK_S = 10.0
_POLL_S = 0.05
_FINAL = ("succeeded", "failed", "stopped")
_numbers = itertools.count(1)


def until(what: str, seconds: float, look: Callable[[], Any], every_s: float = _POLL_S) -> Any:
    """Call `look` repeatedly until its result is true, and return the result.

    Raises:
        BenchFailedError: it did not become true in time.
    """
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (found := look()):
        if time.monotonic() > end:
            raise BenchFailedError(f"{what}: not within {seconds:.0f} s")
        pause.wait(every_s)
    return found


@dataclass(frozen=True)
class Ask:
    """How our product is set up.

    Args:
        task: Added to each task of a pipeline.
        settings: Added to the schedulers' configuration.
        workers: Number of separate workers; 0: each scheduler has an embedded one.
    """

    task: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    slots: int = SLOTS
    schedulers: int = 1
    workers: int = 0


class OurStack:
    """A started stack. Main thread."""

    def __init__(self, revision: Revision, place: Path, ask: Ask) -> None:
        self.ask_for, self._place = ask, place
        place.mkdir()
        self.folder = place / "stack"
        python = interpreter(revision, place / "venv")
        command = [python, "-m", "tests.benchmark.tasks.stack_role", str(self.folder)]
        # The tools of the local stack (rclone) lie beside our own interpreter.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        environment = {**revision.environment(), "PATH": path}
        self._role = LineProcess(f"stack ({revision.label})", command, place / "stack.log", environment)
        self._http = httpx.Client(timeout=_ASK_S)
        self._urls: list[str] = []
        self._closed = False
        self.objects = Path()

    @property
    def pid(self) -> int:
        """Pid of the process that all others descend from."""
        return self._role.pid

    def ask(self, do: str, **question: Any) -> Any:
        """Call a method of `StackRole`."""
        return self._role.ask({"do": do, **question})["value"]

    def start(self) -> None:
        """Start everything."""
        asked = self.ask_for
        found = self.ask(
            "start",
            slots=asked.slots,
            schedulers=asked.schedulers,
            workers=asked.workers,
            settings=asked.settings,
        )
        self._urls, self.objects = found["urls"], Path(found["objects"])

    def publish(self, name: str, tasks: Mapping[str, Mapping[str, Any]]) -> None:
        """Publish a pipeline."""
        folder = self._place / "pipelines" / name
        write_pipeline(folder, name, {task: {**tasks[task], **self.ask_for.task} for task in tasks})
        self.ask("publish", pipeline=str(folder))

    def get(self, path: str) -> Any:
        """A document below /api/v1, from the first scheduler that returns it; None if no scheduler does."""
        for url in self._urls:
            with suppress(httpx.TransportError):
                answer = self._http.get(f"{url}/api/v1{path}")
                if answer.is_success:
                    return answer.json()
        return None

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer of the first scheduler that takes a request; waits until one does.

        Raises:
            BenchFailedError: it is refused, or no scheduler takes it.
        """

        def heard() -> Any:
            for url in self._urls:
                with suppress(httpx.TransportError):
                    answer = self._http.post(f"{url}/api/v1{path}", json=body)
                    if answer.is_client_error:
                        raise BenchFailedError(f"{path} {body} is refused: {answer.text}")
                    if answer.is_success:
                        return answer.json()
            return None

        return until(f"a scheduler that takes {path} {body}", 60, heard)

    def begin(self, pipeline: str, run: str) -> None:
        """Request a run. Waits until a scheduler has received the request, not until the run is accepted."""
        self.post("/runs", {"pipeline": pipeline, "run_id": run})

    def ended(self, run: str, within_s: float) -> dict[str, Any]:
        """Wait for a run's end, and return the run.

        Raises:
            BenchFailedError: it has not succeeded.
        """

        def look() -> Any:
            found = self.get(f"/runs/{run}")
            return found if found is not None and found["state"] in _FINAL else None

        found: dict[str, Any] = until(f"the end of run {run}", within_s, look)
        if found["state"] != "succeeded":
            ends = [task["attempts"][-1]["reason"] for task in found["tasks"] if task["state"] == "failed"]
            raise BenchFailedError(f"run {run} has {found['state']}: {found.get('reason')}; {ends[:1]}")
        return found

    def close(self, keep: Path | None = None) -> None:
        """Stop everything, and remove its files; safe to repeat.

        Args:
            keep: A folder to create, for all of its files except the objects in S3.
        """
        if self._closed:
            return
        self._closed = True
        self._http.close()
        with suppress(BenchFailedError):
            self.ask("close")
        self._role.close()
        end_tagged(self.folder)
        if keep is not None:
            ignored = shutil.ignore_patterns("objects", "venv")
            with suppress(shutil.Error):  # sockets are not copied
                shutil.copytree(self._place, keep, symlinks=True, ignore=ignored)
        shutil.rmtree(self._place, ignore_errors=True)


@contextmanager
def our_stack(revision: Revision, place: Path, ask: Ask) -> Iterator[OurStack]:
    """A stack that is not started yet. It is always closed at the end."""
    stack = OurStack(revision, place / f"ours-{next(_numbers)}", ask)
    try:
        yield stack
    finally:
        stack.close()


class OurProduct:
    """Runs a workload on a stack. See `whole_run.Product`."""

    def __init__(self, stack: OurStack) -> None:
        self._stack = stack
        self.pid = stack.pid

    def prepare(self, shape: Shape, marks: Path) -> None:
        """Publish its pipeline."""
        tasks = {
            name: task_document(marks, needs, lines=shape.lines) for name, needs in needs_of(shape).items()
        }
        self._stack.publish(shape.workload, tasks)

    def run(self, shape: Shape, marks: Path, within_s: float) -> None:
        """Run it; returns when all runs have succeeded."""
        runs = [f"{shape.workload}-run-{number}" for number in range(shape.runs)]
        for run in runs:
            self._stack.begin(shape.workload, run)
        until(f"{shape.tasks} ends", within_s, lambda: count_ends(marks) >= shape.tasks)
        for run in runs:
            self._stack.ended(run, within_s)

    def objects_of_logs(self, shape: Shape) -> int:
        """Objects in S3 below `logs/` of the runs of a workload."""
        runs = (self._stack.objects / "logs").glob(f"{shape.workload}-run-*")
        return sum(file.is_file() for run in runs for file in run.rglob("*"))
