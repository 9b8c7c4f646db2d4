"""A leader that is stopped for longer than its session, then woken: the classic two-leaders fault."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from leader import (
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    fenced_transaction,
)
from nimbus.localstack.zookeeper import ZooKeeperServer

SESSION_S = 2.0
LONG = timedelta(seconds=10)

ZOMBIE = """
import json, sys, threading
from datetime import timedelta

import structlog
from leader import *

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

hosts, root, session_s = sys.argv[1], sys.argv[2], float(sys.argv[3])


class Quiet:
    def elected(self, leadership):
        pass

    def revoked(self, leadership, reason):
        pass


def say(**words):
    print(json.dumps(words), flush=True)


session = ZooKeeperSession(ZooKeeperConfig(
    hosts=hosts, session_timeout=timedelta(seconds=session_s), connect_timeout=timedelta(seconds=1)))
session.start(timedelta(seconds=10))
queue = LeaderLockQueue(
    session=session,
    config=ElectionConfig(root=root, step_down_margin=timedelta(seconds=0.2)),
    participant=Participant("zombie", "127.0.0.1", 1, "boot"),
    guard=lambda: Verdict(True),
    electable=Quiet(),
)
queue.start()
pause = threading.Event()
while (leadership := queue.leadership()) is None:
    pause.wait(0.01)
fenced_transaction(session, leadership.token, lambda t: t.create(root + "/state", b"zombie, alive"))
say(leading=leadership.epoch)

last = boottime()
while True:
    now, leads = boottime(), queue.is_leader()
    if now - last > timedelta(seconds=session_s):
        say(first_answer_after_waking=leads)
        break
    last = now
    pause.wait(0.01)

while True:
    try:
        fenced_transaction(session, leadership.token, lambda t: t.set_data(root + "/state", b"zombie, dead"))
        say(write="accepted")
        break
    except ZooKeeperUnavailableError:
        pause.wait(0.05)
    except FencedOutError:
        say(write="fenced_out")
        break
while queue.status().phase is not Phase.QUEUED:
    pause.wait(0.01)
say(phase="queued")
queue.close(timedelta(seconds=5))
session.close(timedelta(seconds=5))
"""


class Quiet:
    def elected(self, leadership: Leadership) -> None: ...

    def revoked(self, leadership: Leadership, reason: str) -> None: ...


@pytest.fixture
def zombie(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[subprocess.Popen[str]]:
    repository = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", ZOMBIE, zookeeper.hosts, zk_root, str(SESSION_S)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=repository,
        env=os.environ | {"PYTHONPATH": str(repository)},
    )
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait(10)
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def heir(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[LeaderLockQueue]:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    session.start(LONG)
    queue = LeaderLockQueue(
        session=session,
        config=ElectionConfig(root=zk_root),
        participant=Participant("heir", "127.0.0.1", 2, uuid.uuid4().hex),
        guard=lambda: Verdict(True),
        electable=Quiet(),
    )
    yield queue
    queue.close(LONG)
    session.close(LONG)


def test_a_leader_woken_after_its_session_does_not_lead_for_a_moment_and_writes_nothing(
    zombie: subprocess.Popen[str],
    heir: LeaderLockQueue,
    eventually: Callable[..., None],
    zookeeper: ZooKeeperServer,
    zk_root: str,
) -> None:
    def heard() -> dict[str, object]:
        assert zombie.stdout is not None
        words: dict[str, object] = json.loads(zombie.stdout.readline())
        return words

    assert heard() == {"leading": 1}
    heir.start()
    eventually(lambda: heir.status().position == 1, what="the heir queues behind it")

    zombie.send_signal(signal.SIGSTOP)
    eventually(heir.is_leader, within_s=20, what="the heir leads when the session has run out")
    leadership = heir.leadership()
    assert leadership is not None
    zombie.send_signal(signal.SIGCONT)

    assert heard() == {"first_answer_after_waking": False}
    assert heard() == {"write": "fenced_out"}
    assert heard() == {"phase": "queued"}
    assert heir.is_leader()
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    try:
        session.start(LONG)
        assert session.call(session.client.get_async, f"{zk_root}/state")[0] == b"zombie, alive"
        fenced_transaction(session, leadership.token, lambda t: t.set_data(f"{zk_root}/state", b"heir"))
    finally:
        session.close(LONG)
