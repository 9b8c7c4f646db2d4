"""A backfill while leaders are killed: each date once, and never more runs at a time than the limit.

The leaders are processes with the real engine, election and store on a real ZooKeeper, killed with SIGKILL at
random moments. The worker is simulated: it answers each order at once. The test reads the server's own
transaction log.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeClusterReader, TreeCommandQueue
from nimbus.definition.backfill_dates import count_dates
from nimbus.domain.commands import Command, CreateBackfill, PublishRelease
from nimbus.domain.ids import BackfillId
from nimbus.domain.pipelines.backfill import Backfill, BackfillRequest, BackfillState
from nimbus.domain.runs.run import RunState
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.benchmark.blobsync.line_process import LineProcess
from tests.benchmark.engine.simulated_workers import SimulatedWorkers
from tests.nimbus.chaos.backfill_leader import LIMIT, RELEASE, SPEC
from tests.nimbus.chaos.txnlog import read_log
from tests.nimbus.outcomes import await_outcome
from tests.thorough import thorough

ROOT = "/nimbus"
ID = BackfillId("b")
FIRST = datetime(2020, 1, 1, tzinfo=UTC)
LONG = timedelta(seconds=60)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(("dates", "kills"), [(100, 1), pytest.param(10_000, 20, marks=thorough)])
@pytest.mark.timeout(1500)
def test_each_date_is_run_once_and_few_at_once_though_leaders_are_killed(
    tmp_path: Path, dates: int, kills: int
) -> None:
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    session = ZooKeeperSession(ZooKeeperConfig(hosts=server.hosts, session_timeout=LONG))
    session.start(LONG)
    leaders = _Leaders(server.hosts, tmp_path)
    workers = None
    try:
        leaders.start()
        request = BackfillRequest(first=FIRST, last=FIRST + (dates - 1) * HOUR, max_parallel=20, total=dates)
        assert count_dates(SPEC.schedule, request, 2 * dates) == dates
        queue, reader = TreeCommandQueue(calls_on(session), ROOT), TreeClusterReader(calls_on(session), ROOT)
        _ask(queue, PublishRelease(pipeline=SPEC.name, digest=RELEASE.digest, activate=True))
        _ask(queue, CreateBackfill(pipeline=SPEC.name, backfill=ID, request=request))
        workers = SimulatedWorkers(session, ROOT)
        workers.register("w", 1, 50, holding=True)
        workers.wait_for(lambda: len(workers.held) >= LIMIT, LONG.total_seconds())  # type: ignore[union-attr]
        workers.release_held()  # from now on, orders are answered at once, so that few runs are live
        draw = random.Random(dates)
        for number in range(kills):
            until = (number + 1) * dates // (kills + 1)
            workers.wait_for(lambda until=until: workers.tally.ended >= until, LONG.total_seconds())  # type: ignore[misc]
            time.sleep(draw.uniform(0, 0.1))  # not a wait: the kill must come at a random moment
            leaders.replace()
        done = _await_end(reader, dates)
        assert (done.started, done.succeeded, done.skipped) == (dates, dates, 0)
        assert workers.tally.refused == 0
        executed = Counter(attempt.run for attempt in workers.tally.end_ns)
        assert (len(executed), set(executed.values())) == (dates, {1})
    finally:
        leaders.stop()
        if workers is not None:
            workers.close()
        session.close(LONG)
        server.stop()
    _check_log(tmp_path / "zookeeper", dates, kills)


def _check_log(folder: Path, dates: int, kills: int) -> None:
    """Check that each date's run is created once, and that live runs never exceed the limit."""
    created: list[str] = []
    under_way: set[str] = set()
    most = 0
    sessions = set()
    for transaction in read_log(folder / "data" / "version-2"):
        for operation in transaction.operations:
            parts = operation.path.split("/")
            if parts[:3] != ["", "nimbus", "runs"] or len(parts) != 4:
                continue
            name = parts[3]
            if operation.kind == "create":
                created.append(name)
                sessions.add(transaction.session)
            state = None if operation.kind == "delete" else RunState(json.loads(operation.data)["state"])
            if state in (RunState.RUNNING, RunState.STOPPING):
                under_way.add(name)
            else:
                under_way.discard(name)
        most = max(most, len(under_way))
    assert (len(created), len(set(created))) == (dates, dates)
    assert most == LIMIT
    assert len(sessions) == kills + 1


class _Leaders:
    """Starts leaders, one after the other."""

    def __init__(self, hosts: str, folder: Path) -> None:
        self._hosts, self._folder = hosts, folder
        self._made: list[LineProcess] = []

    def start(self) -> None:
        name = f"leader-{len(self._made)}"
        command = [sys.executable, "-m", "tests.nimbus.chaos.backfill_leader", self._hosts, ROOT, name]
        self._made.append(LineProcess(name, command, self._folder / f"{name}.log"))

    def replace(self) -> None:
        """Kill the leader. The next one leads when its session has ended."""
        os.kill(self._made[-1].pid, signal.SIGKILL)
        self.start()

    def stop(self) -> None:
        for process in self._made:
            process.close()


def _ask(queue: TreeCommandQueue, command: Command) -> None:
    outcome = await_outcome(queue, queue.submit(command, submitted_by="test"), LONG)
    assert outcome is not None
    assert outcome.accepted, outcome.message


def _await_end(reader: TreeClusterReader, dates: int) -> Backfill:
    """Wait for the end of the backfill, and return it."""
    until = time.monotonic() + 60 + dates / 10
    for backfill in _looks(reader):
        if backfill.state is BackfillState.FINISHED:
            return backfill
        assert time.monotonic() < until, backfill
    raise AssertionError


def _looks(reader: TreeClusterReader) -> Iterator[Backfill]:
    while True:
        found = reader.backfill(ID)
        assert found is not None
        yield found
        time.sleep(0.1)
