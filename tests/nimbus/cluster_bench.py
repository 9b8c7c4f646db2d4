"""A cluster whose manager starts drivers as processes of this host, and a scheduler's gateway over HTTP.

The drivers are the real bootstrap. Only the manager is a fake, which can be set to fail.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI

from nimbus.api.problems import install
from nimbus.api.routes import attempts
from nimbus.bootstrap.resources import SystemClock
from nimbus.scheduler.gateway import ClusterGateway, DataGateway
from nimbus.worker.application import bootstrap, executor, submitted
from nimbus.worker.application.executor import ClusterTarget
from nimbus.worker.application.manager import (
    ClusterUnreachableError,
    DriverState,
    DriverStatus,
    Submission,
    SubmissionUnknownError,
)
from nimbus.worker.attempt.connections import open_data
from nimbus.worker.launcher import ForkLauncher
from nimbus.worker.targets import SparkTarget, TargetKind
from nimbus.worker.worker import Worker
from tests.nimbus.worker_bench import Bench, eventually

TARGET = "big"


class ProcessManager:
    """See `ClusterManager`. Each driver is a process with its own folder, named by the driver's id."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self.submissions = 0
        self.last: Submission | None = None
        self.unreachable = False
        """True: it answers no request."""
        self.loses_answer = False
        """True: it accepts a submission, but its answer is lost."""
        self.unreachable_after_submission = False
        self.full = False
        """True: drivers wait until `make_room` is called."""
        self.lies: DriverState | None = None
        """The state that it reports for every driver; None: the true one."""
        self.names: dict[str, str] = {}
        """Id of the driver of each submission, by the submission's name."""
        self.can_search = False
        self._waiting: list[tuple[str, Submission]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cluster")
        """Forks all drivers, because a driver dies with the thread that forked it."""

    def submit(self, submission: Submission) -> str:
        if self.unreachable:
            raise ClusterUnreachableError("the cluster is away")
        with self._lock:
            self.submissions += 1
            self.last = submission
            driver = f"driver-{self.submissions:04}"
            self.names[submission.name] = driver
        if self.full:
            self._waiting.append((driver, submission))
        else:
            self._start(driver, submission)
        self.unreachable = self.unreachable_after_submission
        if self.loses_answer:
            raise SubmissionUnknownError("the answer was lost")
        return driver

    def make_room(self) -> None:
        self.full = False
        for driver, submission in self._waiting:
            self._start(driver, submission)
        self._waiting.clear()

    def start_again(self, driver: str, submission: Submission) -> None:
        """Start a second driver of one submission, as `supervise` does."""
        self._start(f"{driver}-again", submission)

    def _start(self, driver: str, submission: Submission) -> None:
        folder = self._root / driver
        folder.mkdir(parents=True)
        (folder / "bootstrap.py").write_bytes(_downloaded(submission.bootstrap_url))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NIMBUS_C")}
        with (folder / "out").open("wb") as out:
            self._processes[driver] = self._thread.submit(
                subprocess.Popen,
                [sys.executable, "-I", "-u", "bootstrap.py"],
                cwd=folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**kept, **submission.environment, bootstrap.VARIABLE: submission.startup},
                start_new_session=True,
            ).result()

    def find(self, name: str) -> str | None:
        if self.unreachable:
            raise ClusterUnreachableError("the cluster is away")
        driver = self.names.get(name) if self.can_search else None
        return None if driver is None or self.probe(driver).state is DriverState.GONE else driver

    def probe(self, driver: str) -> DriverStatus:
        if self.unreachable:
            return DriverStatus(DriverState.UNKNOWN, "away")
        if self.lies is not None:
            return DriverStatus(self.lies, "ERROR")
        if any(driver == waiting for waiting, _ in self._waiting):
            return DriverStatus(DriverState.WAITING, "SUBMITTED")
        process = self._processes.get(driver)
        if process is None:
            return DriverStatus(DriverState.GONE, "not found")
        status = process.poll()
        if status is None:
            return DriverStatus(DriverState.RUNNING, "RUNNING")
        return DriverStatus(DriverState.GONE, "FINISHED" if status == 0 else "FAILED")

    def kill(self, driver: str) -> None:
        if self.unreachable:
            raise ClusterUnreachableError("the cluster is away")
        self._waiting = [one for one in self._waiting if one[0] != driver]
        if (process := self._processes.get(driver)) is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, 9)

    def exit_code(self, driver: str) -> int:
        """Wait for a driver's end."""
        return self._processes[driver].wait(60)

    def said(self, driver: str) -> str:
        """The output of a driver."""
        return (self._root / driver / "out").read_text()

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(60)
        self._thread.shutdown()


def _downloaded(url: str) -> bytes:
    """The bootstrap that a cluster downloads. A driver without one ends at once."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bytes(answer.read())
    except OSError:
        return b"raise SystemExit(1)"


def data_gateway(bench: Bench) -> DataGateway | None:
    """The data place of a scheduler whose outputs are in the bench's bucket."""
    return None if bench.data_uri is None else DataGateway(bench.data_uri, open_data(bench.connections.data))


SECRETS = {"warehouse": "swordfish-1\nand more"}
"""What schedulers have."""


@contextmanager
def gateway(bench: Bench, schedulers: Sequence[str] = ()) -> Iterator[str]:
    """Serve a scheduler's gateway, which reports `schedulers` as live. Returns its base URL."""
    app = FastAPI()
    install(app)
    opened = ClusterGateway(
        board=bench.board,
        logs=bench.logs,
        releases=bench,
        clock=SystemClock(),
        schedulers=lambda: schedulers,
        data=data_gateway(bench),
        secrets=lambda names: {variable: SECRETS[name] for variable, name in names.items()},
    )
    app.include_router(attempts.router(opened))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="gateway")
        thread.start()
        eventually(lambda: server.started, "the gateway is open")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)


class ClusterBench:
    """A bench whose workers have a target with a `ProcessManager`."""

    def __init__(self, root: Path, bench: Bench) -> None:
        self.bench = bench
        self.endpoints: list[str] = []
        """URLs of the schedulers that workers know."""
        self.schedulers: list[str] = []
        """URLs of the schedulers that gateways report to drivers."""
        self._gateways: dict[str, ExitStack] = {}
        self.manager = ProcessManager(root / "cluster")
        self.queue_timeout_s = 3600.0
        self.workers: list[Worker] = []

    def open_gateway(self) -> str:
        """Start a scheduler's gateway. Returns its base URL."""
        opened = ExitStack()
        url = opened.enter_context(gateway(self.bench, self.schedulers))
        self._gateways[url] = opened
        return url

    def close_gateway(self, url: str) -> None:
        """End a gateway. No server answers at its address afterwards."""
        self._gateways.pop(url).close()

    @property
    def place(self) -> SparkTarget:
        """The target in the form of the worker's configuration."""
        return SparkTarget(name=TARGET, kind=TargetKind.STANDALONE, master="spark://nowhere:7077")

    def worker(self, name: str = "w1") -> Worker:
        """Start a worker."""
        # A driver learns of a stop from the answer to its next heartbeat, up to 3 s later.
        settings = {"stop_grace": timedelta(seconds=5), "targets": {TARGET: self.place}}
        worker = self.bench.worker(name, clusters=self.targets, settings=settings)
        worker.start()
        self.workers.append(worker)
        return worker

    @property
    def targets(self) -> dict[str, ClusterTarget]:
        """The only target, by its name."""
        target = ClusterTarget(
            name=TARGET,
            manager=self.manager,
            endpoints=lambda: self.endpoints,
            queue_timeout_s=self.queue_timeout_s,
        )
        return {TARGET: target}

    def stop_workers(self) -> None:
        for worker in self.workers:
            worker.close(timedelta(seconds=10))
            assert worker.failure is None
        self.workers.clear()

    def close(self) -> None:
        self.stop_workers()
        self.manager.close()
        for url in list(self._gateways):
            self.close_gateway(url)


@contextmanager
def looking_often() -> Iterator[None]:
    """Make workers look at drivers more often, and give them up sooner, than a real cluster allows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "_TICK_S", 0.5)
        patch.setattr(submitted, "HEARD_S", 6.0)  # a bootstrap sends a heartbeat every 3 s
        patch.setattr(submitted, "GONE_S", 2.0)
        yield


@contextmanager
def cluster_bench(
    root: Path, prepare: Callable[[Bench], object] = lambda _: None, *, forks: bool = False
) -> Iterator[ClusterBench]:
    """A bench with an open gateway.

    Args:
        root: Its folder.
        prepare: Called with the bench before the gateway opens.
        forks: Whether its workers have fork servers. Attempts in a cluster need none.
    """
    bench = Bench(root)
    prepare(bench)
    made = ClusterBench(root, bench)
    with looking_often(), pytest.MonkeyPatch.context() as patch:
        if not forks:
            patch.setattr(ForkLauncher, "start", lambda _: None)
        try:
            made.endpoints.append(made.open_gateway())
            yield made
        finally:
            made.close()
            bench.close()
