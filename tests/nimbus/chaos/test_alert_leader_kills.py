"""Alerts while leaders are killed: none is missing, and a repeated one says that it may be a repetition.

The leaders are processes with the real engine, election, store and webhook on a real ZooKeeper, killed with
SIGKILL at random moments. The receiver is an HTTP server, the worker is simulated.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeCommandQueue
from nimbus.domain.commands import Command, CreateBackfill, PublishRelease
from nimbus.domain.ids import BackfillId
from nimbus.domain.pipelines.backfill import BackfillRequest
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.benchmark.blobsync.line_process import LineProcess
from tests.benchmark.engine.simulated_workers import SimulatedWorkers
from tests.nimbus.alert_receivers import HttpReceiver, webhook_server
from tests.nimbus.chaos.alert_leader import SPEC, TARGET
from tests.nimbus.chaos.backfill_leader import RELEASE
from tests.nimbus.outcomes import await_outcome
from tests.thorough import thorough

ROOT = "/nimbus"
FIRST = datetime(2020, 1, 1, tzinfo=UTC)
LONG = timedelta(seconds=60)


@pytest.mark.parametrize(("dates", "kills"), [(20, 1), pytest.param(1000, 20, marks=thorough)])
@pytest.mark.timeout(900)
def test_no_alert_is_missing_though_leaders_are_killed(tmp_path: Path, dates: int, kills: int) -> None:
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    session = ZooKeeperSession(ZooKeeperConfig(hosts=server.hosts, session_timeout=LONG))
    session.start(LONG)
    leaders: list[LineProcess] = []
    workers = None
    draw = random.Random(dates)
    try:
        with webhook_server() as receiver:
            leaders.append(_leader(server.hosts, receiver, tmp_path, 0))
            queue = TreeCommandQueue(calls_on(session), ROOT)
            _ask(queue, PublishRelease(pipeline=SPEC.name, digest=RELEASE.digest, activate=True))
            hours = timedelta(hours=dates - 1)
            request = BackfillRequest(first=FIRST, last=FIRST + hours, max_parallel=8, total=dates)
            _ask(queue, CreateBackfill(pipeline=SPEC.name, backfill=BackfillId("b"), request=request))
            workers = SimulatedWorkers(session, ROOT)
            workers.register("w", 1, 50, holding=False)
            for number in range(kills):
                _await(receiver, (number + 1) * dates // (kills + 1))
                time.sleep(draw.uniform(0, 0.05))  # not a wait: the kill must come at a random moment
                os.kill(leaders[-1].pid, signal.SIGKILL)
                leaders.append(_leader(server.hosts, receiver, tmp_path, number + 1))
            _await(receiver, dates)
            got = [json.loads(body) for _, body in receiver.got]
    finally:
        for leader in leaders:
            leader.close()
        if workers is not None:
            workers.close()
        session.close(LONG)
        server.stop()
    seen: set[str] = set()
    for message in got:
        assert message["id"] not in seen or message["may_repeat"], message
        seen.add(message["id"])
    assert {message["event"] for message in got} == {"succeeded"}
    assert len(got) - len(seen) <= _ended_terms(tmp_path)


def _ended_terms(logs: Path) -> int:
    """Number of ended leaders: killed ones, and those that lost their session on a busy machine."""
    told = "".join(log.read_text() for log in logs.glob("leader-*.log"))
    return max(int(epoch) for epoch in re.findall(r"epoch=(\d+)", told)) - 1


def _leader(hosts: str, receiver: HttpReceiver, folder: Path, number: int) -> LineProcess:
    name = f"leader-{number}"
    command = [sys.executable, "-m", "tests.nimbus.chaos.alert_leader", hosts, ROOT, name, receiver.url]
    return LineProcess(name, command, folder / f"{name}.log")


def _await(receiver: HttpReceiver, count: int) -> None:
    """Wait until `count` different alerts have arrived."""
    until = time.monotonic() + 300 + count / 5  # busy machines depose leaders; only failures take so long
    while len({headers["Idempotency-Key"] for headers, _ in receiver.got[:]}) < count:
        assert time.monotonic() < until, f"{len(receiver.got)} messages for {TARGET}, not {count}"
        time.sleep(0.02)


def _ask(queue: TreeCommandQueue, command: Command) -> None:
    outcome = await_outcome(queue, queue.submit(command, submitted_by="test"), LONG)
    assert outcome is not None
    assert outcome.accepted, outcome.message
