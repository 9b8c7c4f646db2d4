"""A cluster is upgraded to a newer schema, one scheduler at a time, and back, while runs are live.

Real ZooKeeper, elections and engines, each in a separate process. Until there is a release to upgrade from,
the newer build is this code with a higher number for its newest schema.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession, read_epoch
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeClusterReader, TreeCommandQueue
from nimbus.domain.cluster.schema import NEWEST_SCHEMA as OLD
from nimbus.domain.commands import Command, PublishRelease, StartRun, StopRun
from nimbus.domain.ids import PipelineName, RunId
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.benchmark.blobsync.line_process import LineProcess
from tests.benchmark.engine.revision import this_checkout
from tests.nimbus.integration.upgrade_roles import digest_of, failures_of
from tests.nimbus.outcomes import await_outcome
from tests.thorough import thorough

Eventually = Callable[..., None]

NEW = OLD + 1
ROLE = (
    "import runpy, nimbus.domain.cluster.schema as schema; schema.NEWEST_SCHEMA = {}; "
    "runpy.run_module('tests.nimbus.integration.upgrade_roles', run_name='__main__', alter_sys=True)"
)
"""Program of a member: sets the newest schema before any other module has read it."""
LONG = timedelta(seconds=30)
STEP = timedelta(minutes=30)
"""Step of the wall clocks of all schedulers between two leaders: three fire times."""
EVERY = timedelta(minutes=10)
CHAIN = {"name": "chain", "tasks": {"a-f0": [], "b-f2": ["a-f0"], "c-f1": ["b-f2"], "d-f0": ["a-f0", "c-f1"]}}
ENDS = {"name": "ends", "tasks": {"a-f0": [], "bad": [], "c-f0": ["a-f0"], "d-f0": ["c-f0"]}}
TICKS = {"name": "ticks", "tasks": {"a-f0": [], "b-f0": ["a-f0"]}, "cron": "*/10 * * * *"}
PIPELINES = [CHAIN, ENDS, TICKS]
EXPECTED = {"chain": "succeeded", "ends": "failed", "ticks": "succeeded", "stops": "stopped"}


class Member:
    """A scheduler or a worker in its own process."""

    def __init__(self, cluster: Cluster, kind: str, name: str, schema: int) -> None:
        command = [sys.executable, "-c", ROLE.format(schema), kind, cluster.hosts, cluster.root]
        log = cluster.folder / f"{name}.log"
        self.name = name
        self._process = LineProcess(name, [*command, name], log, this_checkout().environment())

    def ask(self, do: str, **more: Any) -> Any:
        return self._process.ask({"do": do, **more})["value"]

    def close(self) -> None:
        self._process.close()


class Cluster:
    """All processes, and an operator. `clock` is the wall clock of all schedulers, which a test steps."""

    def __init__(self, hosts: str, root: str, folder: Path) -> None:
        self.hosts, self.root, self.folder = hosts, root, folder
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
        self.session.start(LONG)
        self.reader = TreeClusterReader(calls_on(self.session), root)
        self._commands = TreeCommandQueue(calls_on(self.session), root)
        self.schedulers: list[Member] = []
        self.workers: list[Member] = []
        self.started: list[str] = []
        self.ended: dict[str, str] = {}
        self.executed: list[str] = []
        now = datetime.now(UTC)
        self.clock = now.replace(minute=now.minute // 10 * 10 + 1)  # so that no fire time passes by itself

    def scheduler(self, name: str, schema: int) -> Member:
        """Start a scheduler, which queues behind the others."""
        made = Member(self, "scheduler", name, schema)
        self.schedulers.append(made)
        made.ask("define", pipelines=PIPELINES)
        made.ask("step_clock", until=self.clock.timestamp())
        made.ask("queue")
        return made

    def worker(self, name: str, schema: int) -> Member:
        made = Member(self, "worker", name, schema)
        self.workers.append(made)
        return made

    def step(self) -> None:
        """Let some fire times pass."""
        self.clock += STEP
        for scheduler in self.schedulers:
            scheduler.ask("step_clock", until=self.clock.timestamp())

    def leave(self, member: Member) -> None:
        """Stop a scheduler, after reading the runs that it stored in history."""
        if member in self.schedulers:
            self.schedulers.remove(member)
            self._note_ended(member)
        else:
            self.workers.remove(member)
            self.executed += member.ask("executed")
        member.close()

    def _note_ended(self, scheduler: Member) -> None:
        for run, state in scheduler.ask("ended").items():
            assert self.ended.setdefault(run, state) == state, run

    def hold(self, holding: bool) -> None:
        for worker in self.workers:
            worker.ask("hold", holding=holding)

    def held(self) -> set[str]:
        return {attempt for worker in self.workers for attempt in worker.ask("held")}

    def do(self, command: Command) -> None:
        asked = self._commands.submit(command, submitted_by="test")
        outcome = await_outcome(self._commands, asked, LONG)
        assert outcome is not None, command
        assert outcome.accepted, outcome

    def start(self, *runs: str) -> None:
        """`chain-1` is a run of the pipeline `chain`; `stops-1`, too, is one of `chain`."""
        self.started += runs
        for run in runs:
            kind = run.partition("-")[0]
            pipeline = PipelineName("chain" if kind == "stops" else kind)
            self.do(StartRun(pipeline=pipeline, run_id=RunId(run)))

    def schema(self) -> int:
        found = read_epoch(self.session, self.root)
        assert found is not None
        return found.schema

    def all_final(self) -> bool:
        return all(run.state.is_final for run in self.reader.run_list().values())

    def finish(self) -> None:
        """Stop all processes, after reading all results."""
        for member in (*self.workers, *self.schedulers):
            self.leave(member)

    def close(self) -> None:
        for member in (*self.workers, *self.schedulers):
            member.close()
        self.session.close(LONG)


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, zk_root: str, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(zookeeper.hosts, zk_root, tmp_path)
    yield cluster
    cluster.close()


def hand_over(cluster: Cluster, successor: Member, number: int, eventually: Eventually) -> None:
    """Hand over from the leader to the next one, with live runs, while fire times pass."""
    leader = cluster.schedulers[0]
    cluster.hold(True)
    cluster.start(f"chain-{number}", f"ends-{number}", f"stops-{number}")
    first = {
        f"chain-{number}.b-f2.2",
        f"ends-{number}.a-f0.1",
        f"ends-{number}.bad.1",
        f"stops-{number}.a-f0.1",
    }
    eventually(lambda: first <= cluster.held(), what="runs are live")
    assert set(cluster.started[-3:]) <= cluster.reader.run_list().keys()
    cluster.step()
    eventually(lambda: len(cluster.held()) == 7, what="the schedule has fired")
    cluster.leave(leader)
    eventually(lambda: successor.ask("leads"), what=f"{successor.name} leads")
    cluster.do(StopRun(run_id=RunId(f"stops-{number}"), reason="test"))
    cluster.hold(False)
    eventually(cluster.all_final, what="all runs end")


def check_laws(cluster: Cluster, activated_at: datetime) -> None:
    """Check that every run has ended correctly, each attempt ran once, no fire time is repeated or lost."""
    assert set(cluster.started) <= cluster.ended.keys()
    assert {run: EXPECTED[run.partition("-")[0]] for run in cluster.ended} == cluster.ended
    assert max(Counter(cluster.executed).values()) == 1
    tried = Counter(one.rpartition(".")[0] for one in cluster.executed)
    for run, state in cluster.ended.items():
        tasks: dict[str, Any] = {"ticks": TICKS, "ends": ENDS}.get(run.partition("-")[0], CHAIN)["tasks"]
        if state == "succeeded":
            assert {name: tried[f"{run}.{name}"] for name in tasks} == {
                name: 1 + failures_of(name) for name in tasks
            }, run
    assert fires_of(cluster) == list(fires_due(activated_at, cluster.clock))


def fires_due(after: datetime, until: datetime) -> Iterator[datetime]:
    fire = after.replace(minute=after.minute // 10 * 10, second=0, microsecond=0) + EVERY
    while fire <= until:
        yield fire
        fire += EVERY


def fires_of(cluster: Cluster) -> list[datetime]:
    return sorted(
        datetime.strptime(run, "ticks-%Y%m%dt%H%M%Sz").replace(tzinfo=UTC)
        for run in cluster.ended
        if run.startswith("ticks-")
    )


@pytest.mark.parametrize("returns", [1, pytest.param(3, marks=thorough)])
def test_cluster_is_upgraded_one_scheduler_at_a_time_and_back_and_the_older_release_is_locked_out(
    cluster: Cluster, eventually: Eventually, returns: int
) -> None:
    cluster.worker("w-old", OLD)
    cluster.worker("w-new", NEW)
    first = cluster.scheduler("old-1", OLD)
    eventually(lambda: first.ask("leads"))
    for what in PIPELINES:
        name = PipelineName(str(what["name"]))
        cluster.do(PublishRelease(pipeline=name, digest=digest_of(what), activate=True))
    position = cluster.reader.pipeline(PipelineName("ticks"))
    assert position is not None
    assert position.schedule_position is not None

    for number, schema in enumerate([*(NEW, OLD) * returns, NEW]):
        successor = cluster.scheduler(f"next-{number}", schema)
        hand_over(cluster, successor, number, eventually)
        assert cluster.schema() == OLD

    older, worker = cluster.workers
    older.ask("drain")
    worker.ask("hold", holding=True)
    cluster.start("chain-8")
    eventually(lambda: worker.ask("held") == ["chain-8.b-f2.2"])
    upgraded = [*cluster.schedulers, cluster.scheduler("new-4", NEW)]
    cluster.leave(older)
    eventually(lambda: cluster.schema() == NEW, what="the schema is raised")
    eventually(lambda: any(one.ask("leads") for one in upgraded), what="an upgraded scheduler leads under it")
    cluster.start("chain-9")
    eventually(lambda: {"chain-8.b-f2.2", "chain-9.b-f2.2"} == cluster.held())

    late = cluster.scheduler("old-4", OLD)
    cluster.step()
    for scheduler in upgraded:
        cluster.leave(scheduler)
    eventually(lambda: f"has schema {NEW}, and this process knows {OLD}" in late.ask("abdication"))
    assert not late.ask("leads")
    last = cluster.scheduler("new-5", NEW)
    eventually(lambda: last.ask("leads"))
    cluster.hold(False)
    eventually(cluster.all_final)
    assert not late.ask("leads")

    eventually(lambda: not set(cluster.reader.run_list()) - set(last.ask("ended")))
    cluster.finish()
    check_laws(cluster, position.schedule_position)
