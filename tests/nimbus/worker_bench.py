"""A test bench for runners and workers: folders, orders, and waiting.

Everything is below one folder, also the board, which is on SQLite. Logs of runners stay in their folders
until `keep_logs_in`.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.bootstrap.resources import SystemClock
from nimbus.domain.attempts.slots import End, Slots
from nimbus.domain.attempts.workers import Assignment, AssignmentKind, WorkerInfo
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import Isolation, TaskKind, TaskSpec
from nimbus.localstack.s3 import S3Server
from nimbus.ports import LogArchive
from nimbus.worker.attempt.connections import Connections, open_data, open_logs
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.folder_checks import MARK
from nimbus.worker.driver.environment import driver_environment
from nimbus.worker.executor import collect
from nimbus.worker.host import procfs
from nimbus.worker.host.remains import ATTEMPT_VARIABLE, RUNNER_VARIABLE, attempt_tag
from nimbus.worker.launcher import Launcher, launch
from nimbus.worker.settings import RunnerPlan, RunnerStartup, WorkerSettings
from nimbus.worker.worker import Worker
from tests.nimbus.bench_board import ROOT, BenchBoard

SPARK = tuple(map(int, version("pyspark").split(".")[:2]))
"""The worker's own."""
T = TypeVar("T")

RELEASE = ReleaseDigest("0" * 64)


def eventually(question: Callable[[], T], what: str, deadline_s: float = 120.0) -> T:
    """Call `question` until its result is true, and return the result.

    Raises:
        TimeoutError: it was not true before the deadline.
    """
    until = time.monotonic() + deadline_s
    while not (answer := question()):
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {deadline_s:.0f} s")
        time.sleep(0.02)
    return answer


class RecordingRegistrations:
    """See `nimbus.ports.Registrations`: remembers what was published."""

    def __init__(self) -> None:
        self.workers: list[WorkerInfo] = []
        self.schedulers: list[SchedulerInfo] = []
        self._mark = ""

    def publish_scheduler(self, info: SchedulerInfo) -> datetime | None:
        """See `nimbus.ports.Registrations`."""
        self.schedulers.append(info)
        return None

    def publish_worker(self, info: WorkerInfo) -> datetime | None:
        """See `nimbus.ports.Registrations`."""
        self.workers.append(info)
        return None

    def data_mark(self, mark: str) -> str:
        """See `nimbus.ports.Registrations`."""
        self._mark = self._mark or mark
        return self._mark

    def withdraw(self) -> None:
        """See `nimbus.ports.Registrations`."""
        self.workers.clear()
        self.schedulers.clear()


class Bench:
    """One machine with a release folder, a data folder, a board, and any number of workers."""

    def __init__(self, root: Path, launcher: Launcher = launch) -> None:
        self.root = root
        self.launch = launcher
        self.release = root / "release"
        self.data = root / "data"
        self.board = BenchBoard(root / "board.db")
        self._cluster = self.board.cluster()
        self.logs: LogArchive = S3LogArchive(MemoryObjectStore())
        self.attempts: list[str] = []
        self.trouble: Exception | None = None
        self.asked = 0
        self.data_uri: str | None = None
        self.missing: dict[ReleaseDigest, threading.Event] = {}
        """Releases that are not on the disk; each arrives when its event is set."""
        self.release.mkdir(parents=True)
        self.data.mkdir()
        (self.data / MARK).write_text("bench")
        self.connections = Connections(board={"kind": "sqlite", "root": ROOT, "file": str(root / "board.db")})

    def keep_outputs_in(self, uri: str, **server: str) -> None:
        """Store outputs in a bucket from now on.

        Args:
            uri: `s3://bucket/prefix`.
            server: `endpoint_url`, `access_key_id`, `secret_access_key`.
        """
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        where = {"kind": "s3", "bucket": bucket, "prefix": prefix, **server}
        self.data_uri, self.connections = uri, replace(self.connections, data=where)

    def keep_logs_in(self, server: S3Server, bucket: str) -> None:
        """Store logs in a bucket from now on."""
        where = {
            "kind": "s3",
            "endpoint_url": server.endpoint_url,
            "bucket": bucket,
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
        }
        self.connections = replace(self.connections, logs=where)
        opened = open_logs(self.connections)
        assert opened is not None
        self.logs = opened

    @contextmanager
    def pinned(self, pipeline: PipelineName, digest: ReleaseDigest, timeout: timedelta) -> Iterator[Path]:
        """See `nimbus.worker.preparation.ReleaseProvider`: returns the release, or raises `trouble`."""
        del pipeline
        self.asked += 1
        if digest in self.missing:
            self.missing[digest].wait(timeout.total_seconds())
        if self.trouble is not None:
            raise self.trouble
        yield self.release

    def is_here(self, pipeline: PipelineName, digest: ReleaseDigest) -> bool:
        """See `nimbus.worker.preparation.ReleaseProvider`."""
        del pipeline
        return self.trouble is None and digest not in self.missing

    def script(self, name: str, text: str) -> str:
        """Put a file into the release."""
        path = self.release / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    def wheel(self, name: str, **modules: str) -> str:
        """Put a wheel with modules into the release."""
        path = self.release / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("any-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
            for module, text in modules.items():
                archive.writestr(f"{module}.py", text)
        return name

    def order(
        self, script: str, *, attempt: str = "run1.task.1", known: bool = True, **more: Any
    ) -> Assignment:
        """Write an order for an attempt, and create its slots on the board unless `known` is false."""
        parsed = AttemptId.parse(attempt)
        said = (
            "args",
            "spark_conf",
            "spark_mode",
            "spark_reuse",
            "spark_place",
            "limits",
            "main_class",
            "jars",
            "dependencies",
            "environment",
        )
        task: dict[str, Any] = {name: more.pop(name) for name in said if name in more}
        task["isolation"] = more.pop("isolation", Isolation.ISOLATED)
        self.attempts.append(attempt)
        if known:
            self.board.add_attempt(attempt)
        fields: dict[str, Any] = {
            "attempt": attempt,
            "kind": AssignmentKind.RUN,
            "epoch": 1,
            "pipeline": PipelineName("bench"),
            "release": RELEASE,
            "run": RunId(parsed.run),
            "task": TaskSpec(
                name=TaskName(parsed.task), kind=more.pop("task_kind", TaskKind.PYTHON), script=script, **task
            ),
            "logical_date": datetime(2013, 1, 31, tzinfo=UTC),
            "output": f"bench/{parsed.run}/{parsed.task}/{parsed.number}",
        }
        return Assignment(**(fields | more))

    def startup(self, *, worker: str = "w1", stop_grace_s: float = 10.0, **plan: Any) -> RunnerStartup:
        """The startup that a worker would send to a runner."""
        environment: Mapping[str, str] = driver_environment(
            os.environ, java_home=_java_home(), extra=plan.pop("extra", {})
        )
        return RunnerStartup(
            plan=RunnerPlan(
                cluster=self._cluster,
                worker=WorkerId(worker),
                data_dir=self.data if self.data_uri is None else self.root / worker / "inputs",
                data_uri=self.data_uri,
                release_root=self.release,
                environment=environment,
                stop_grace_s=stop_grace_s,
                **plan,
            ),
            connections=self.connections,
        )

    def folder(self, attempt: str = "run1.task.1", worker: str = "w1") -> AttemptFolder:
        """An attempt's folder at a worker."""
        return AttemptFolder.of(self.root / worker, AttemptId.parse(attempt))

    def worker(self, name: str = "w1", **more: Any) -> Worker:
        """A worker, not started."""
        place: dict[str, Any] = {"data_dir": self.data}
        if self.data_uri is not None:
            place = {"data_dir": self.root / name / "inputs", "data": self.place(name)}
        settings = WorkerSettings(
            id=WorkerId(name),
            work_dir=self.root / name,
            **place,
            **{"heartbeat": timedelta(seconds=0.5), **more.pop("settings", {})},
        )
        parts: dict[str, Any] = {
            "board": self.board,
            "registrations": RecordingRegistrations(),
            "releases": self,
            "connections": self.connections,
            "clock": SystemClock(),
            "logs": self.logs,
        }
        return Worker(settings=settings, **(parts | more))

    def place(self, host: str) -> BucketPlace:
        """The bucket of outputs with a host's own folder of copies, after `keep_outputs_in`."""
        assert self.data_uri is not None
        open_store = partial(open_data, self.connections.data)
        return BucketPlace(self.data_uri, self.root / host / "inputs", open_store)

    def files_with(self, text: str) -> list[str]:
        """Files below its folder that contain a text.

        Another process reads them: when this one closes a file of SQLite, SQLite's locks on it are gone.
        """
        found = subprocess.run(["grep", "-rlF", "--", text, self.root], capture_output=True, check=False)
        assert found.returncode in (0, 1), found.stderr
        return found.stdout.decode().splitlines()

    def collect(self, order: Assignment) -> bool:
        """Execute a REAP order like a worker that has launched nothing."""
        return collect(self.board, order, self.worker().executors)

    def slots(self, attempt: str = "run1.task.1") -> Slots:
        """An attempt's slots on the board."""
        return self.board.read(AttemptId.parse(attempt))

    def await_end(self, attempt: str = "run1.task.1", deadline_s: float = 120.0) -> End:
        """Wait until END is filled."""
        end = eventually(lambda: self.slots(attempt).end, f"END of {attempt}", deadline_s)
        assert end is not None
        return end

    def processes(self, attempt: str = "run1.task.1") -> list[procfs.ProcessId]:
        """Living processes of an attempt, including its runner."""
        return self.driver_tree(attempt) + procfs.with_variable(RUNNER_VARIABLE, self._tag(attempt))

    def driver_tree(self, attempt: str = "run1.task.1") -> list[procfs.ProcessId]:
        """The living driver of an attempt and its descendants, oldest first."""
        found = procfs.with_variable(ATTEMPT_VARIABLE, self._tag(attempt))
        return sorted(found, key=lambda process: (process.start_ticks, process.pid))

    def runner(self, attempt: str = "run1.task.1") -> procfs.ProcessId | None:
        """The living runner of an attempt."""
        found = procfs.with_variable(RUNNER_VARIABLE, self._tag(attempt))
        return found[0] if found else None

    def _tag(self, attempt: str) -> str:
        return attempt_tag(self._cluster, attempt)

    def close(self) -> None:
        """End everything, and the board's session."""
        for attempt in self.attempts:
            procfs.kill_all(lambda attempt=attempt: self.processes(attempt), deadline_s=60.0)  # type: ignore[misc]
        self.board.close()


def _java_home() -> Path | None:
    place = os.environ.get("JAVA_HOME")
    return Path(place) if place else None
