"""A runner that uses a real ZooKeeper and a real S3 server, configured on its standard input."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.paths import Paths
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.task_run import Outcome
from nimbus.localstack.s3 import S3Server
from nimbus.localstack.zookeeper import ZooKeeperServer
from nimbus.ports import StoreUnavailableError
from nimbus.worker.attempt.connections import Connections, open_logs
from nimbus.worker.launcher import launch
from tests.nimbus.worker_bench import Bench, eventually

ATTEMPT = AttemptId.parse("run1.task.1")
TEXT = """
import sys, time
from pathlib import Path
print("said")
while not Path(sys.argv[1]).exists():
    time.sleep(0.02)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def session(own_zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=own_zookeeper.hosts))
    session.start(timedelta(seconds=30))
    yield session
    session.close(timedelta(seconds=30))


def _connections(zookeeper: ZooKeeperServer, s3: S3Server, bucket: str) -> Connections:
    return Connections(
        board={
            "kind": "zookeeper",
            "root": "/nimbus",
            "hosts": zookeeper.hosts,
            "session_timeout_s": 4,
            "call_timeout_s": 2,
            "connect_timeout_s": 1,
        },
        logs={
            "kind": "s3",
            "endpoint_url": s3.endpoint_url,
            "bucket": bucket,
            "access_key_id": s3.access_key,
            "secret_access_key": s3.secret_key,
            "read_timeout_s": 5,
        },
    )


def _seen(board: TreeAttemptBoard, attempt: AttemptId) -> Slots:
    """The answer of the board; None while our own connection is lost."""
    try:
        return board.read(attempt)
    except StoreUnavailableError:
        return Slots()


def test_task_outlives_a_zookeeper_that_is_killed_and_comes_back(
    bench: Bench,
    session: ZooKeeperSession,
    own_zookeeper: ZooKeeperServer,
    s3_server: S3Server,
    s3_bucket: str,
    tmp_path: Path,
) -> None:
    connections = _connections(own_zookeeper, s3_server, s3_bucket)
    board = TreeAttemptBoard(calls_on(session), "/nimbus")
    session.call(session.client.ensure_path_async, Paths("/nimbus").attempt(ATTEMPT))
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", TEXT), known=False, args=(str(tmp_path / "gate"),)))
    launch(folder, replace(bench.startup(), connections=connections))
    eventually(lambda: _seen(board, ATTEMPT).has_heartbeat, "the runner beats")
    claim = board.read(ATTEMPT).claim
    eventually(lambda: folder.claim() == claim, "the folder has the claim")
    own_zookeeper.kill()
    (tmp_path / "gate").touch()
    eventually(lambda: folder.exit_record() is not None, "the task ends without ZooKeeper")
    assert bench.runner() is not None

    own_zookeeper.start()

    eventually(lambda: folder.is_delivered, "delivery", 60)
    end = eventually(lambda: _seen(board, ATTEMPT).end, "END", 60)
    assert end is not None
    assert end.outcome is Outcome.SUCCEEDED
    logs = open_logs(connections)
    assert logs is not None
    assert logs.read(ATTEMPT) == b"said\n"


def test_stop_request_and_killed_runner_are_seen_through_zookeeper(
    bench: Bench,
    session: ZooKeeperSession,
    own_zookeeper: ZooKeeperServer,
    s3_server: S3Server,
    s3_bucket: str,
) -> None:
    board = TreeAttemptBoard(calls_on(session), "/nimbus")
    other = AttemptId.parse("run1.other.1")
    for attempt in (ATTEMPT, other):
        session.call(session.client.ensure_path_async, Paths("/nimbus").attempt(attempt))
        folder = bench.folder(str(attempt))
        order = bench.order(
            bench.script("task.py", TEXT), attempt=str(attempt), known=False, args=("/absent",)
        )
        folder.create(order)
        connections = _connections(own_zookeeper, s3_server, s3_bucket)
        launch(folder, replace(bench.startup(), connections=connections))
        eventually(lambda attempt=attempt: _seen(board, attempt).has_heartbeat, "the runner beats")  # type: ignore[misc]

    session.call(session.client.create_async, Paths("/nimbus").stop(ATTEMPT), b"{}")
    runner = bench.runner(str(other))
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)

    end = eventually(lambda: _seen(board, ATTEMPT).end, "END of the stopped one")
    assert end is not None
    assert end.outcome is Outcome.STOPPED
    eventually(lambda: not board.read(other).has_heartbeat, "the killed one is silent after its session")
    assert board.read(other).end is None
