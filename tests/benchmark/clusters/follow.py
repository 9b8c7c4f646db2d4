"""One worker process that follows many claimed drivers: real ZooKeeper, real HTTP, no drivers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import yaml

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.zookeeper.calls import ZooKeeperCalls
from nimbus.domain.attempts.slots import Claim, ClusterDriver, Holder
from nimbus.domain.ids import AttemptId, HostId, WorkerId
from nimbus.localstack.daemons import ROOT, StackTuning, write_settings
from nimbus.localstack.stack import LocalStack
from nimbus.worker.application.submitted import SubmissionRecord, SubmissionRecords
from tests.nimbus.chaos.cluster import moment, until

TARGET = "big"
_WARM_UP_S = 15.0


@dataclass(frozen=True, slots=True)
class Followed:
    """A worker's resource use."""

    drivers: int
    core: float
    threads: int
    looks_a_second: float


class _Gateway:
    """A gateway that reports every driver as running."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                driver = self.path.rpartition("/")[2]
                asked[driver] = asked.get(driver, 0) + 1
                said = {"success": True, "submissionId": driver, "driverState": "RUNNING"}
                data = json.dumps(said).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="gateway")
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


def followed(root: Path, drivers: int, seconds: float) -> Followed:
    """Measure a worker that follows a number of drivers for some time."""
    with ExitStack() as last_first:
        gateway = _Gateway()
        last_first.callback(gateway.close)
        stack = LocalStack(root, 1, workers=1, tuning=StackTuning(keeps_jvms=False))
        last_first.enter_context(stack)
        stack.wait_ready(timedelta(seconds=120))
        (worker,) = stack.workers
        worker.kill()
        stack.scheduler(1).stop()  # it would act on these attempts, which belong to no run
        config = stack.folder / f"{worker.name}.yaml"
        document = yaml.safe_load(config.read_text())
        target = {
            "kind": "standalone",
            "master": "spark://127.0.0.1:7077",
            "rest": [gateway.url],
            "slots": 999,
        }
        write_settings(config, {**document, "spark": {"targets": {TARGET: target}}})
        _claim(stack.zookeeper.hosts, stack.folder / worker.name / "worker", drivers)
        worker.spawn()
        worker.wait_ready(timedelta(seconds=60))
        until("requests about all drivers", 120, lambda: len(gateway.asked) == drivers)
        moment(_WARM_UP_S)
        process, before = psutil.Process(worker.pid), sum(gateway.asked.values())
        used = _cpu_s(process)
        moment(seconds)
        looks = sum(gateway.asked.values()) - before
        core = (_cpu_s(process) - used) / seconds
        return Followed(drivers, core, process.num_threads(), looks / seconds)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _claim(hosts: str, work_dir: Path, drivers: int) -> None:
    """Create submitted and claimed attempts, as an earlier worker leaves them."""
    records = SubmissionRecords(work_dir)
    with _session(hosts) as session:
        board, calls, paths = TreeAttemptBoard(calls_on(session), ROOT), ZooKeeperCalls(session), Paths(ROOT)
        for number in range(drivers):
            attempt = AttemptId.parse(f"run-{number}.task.1")
            driver = ClusterDriver(target=TARGET, id=f"driver-{number:06}")
            calls.ensure(paths.attempt(attempt))
            board.note_submitted(attempt, driver)
            board.claim(
                Claim(
                    attempt=str(attempt),
                    worker=WorkerId("worker-1"),
                    host=HostId("host"),
                    holder=Holder.APPLICATION,
                    claimed_at=datetime.now(UTC),
                    nonce=f"{number:016x}",
                    driver=driver,
                )
            )
            records.note(SubmissionRecord(attempt=str(attempt), target=TARGET, driver=driver.id))


@contextmanager
def _session(hosts: str) -> Iterator[ZooKeeperSession]:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=timedelta(seconds=10)))
    session.start(timedelta(seconds=30))
    try:
        yield session
    finally:
        session.close(timedelta(seconds=10))
