"""The engine on a real ZooKeeper, with a real election: takeover, fencing, outages, hand-over, bad records.

Effects and the worker are simulated, but use the real adapters.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from leader import (
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from nimbus import records
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import (
    TreeClusterReader,
    TreeCommandQueue,
    TreeRegistrations,
)
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation
from nimbus.bootstrap.resources import SystemClock
from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.supervision import Timings
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.commands import Abdicate, Command, CommandOutcome, PublishRelease, StartRun
from nimbus.domain.ids import (
    AttemptId,
    CommandId,
    HostId,
    PipelineName,
    ReleaseDigest,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.pipeline import ParameterSpec, PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.drafts import new_run
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine import leader_term, loop
from nimbus.engine.decision import ArchiveRun, BuildRun, Effect, PrepareRelease, ResignLeadership
from nimbus.engine.events import ReleasePrepared, RunArchived, RunBuilt
from nimbus.engine.loop import Engine
from nimbus.engine.policy import Policy
from nimbus.engine.state import Built
from nimbus.localstack.zookeeper import ZooKeeperServer
from nimbus.ports import StoreUnavailableError
from nimbus.telemetry.engine import EngineMetrics
from tests.nimbus.outcomes import await_outcome

Eventually = Callable[..., None]

LONG = timedelta(seconds=30)
NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAME = PipelineName("p")
DIGEST = ReleaseDigest("a" * 64)
SPEC = PipelineSpec(
    name=NAME,
    parameters={f"text{n}": ParameterSpec(type="string", default="") for n in range(70)},
    tasks=tuple(
        TaskSpec(name=TaskName(name), kind=TaskKind.PYTHON, script="x.py", needs=needs)
        for name, needs in (("a", ()), ("b", (TaskName("a"),)))
    ),
)
WORKER = WorkerInfo(
    id=WorkerId("w1"),
    host=HostId("h"),
    hostname="h",
    pid=1,
    slots=2,
    version="1",
    started_at=NOW,
    reported_at=NOW,
)


class CountingStore(TreeLeaderStore):
    """Counts requests without an answer."""

    unanswered = 0
    worker_reads = 0

    def read_workers(self) -> tuple[WorkerInfo, ...]:
        CountingStore.worker_reads += 1
        return super().read_workers()

    def _write(self, operations: Sequence[Operation]) -> None:
        try:
            super()._write(operations)
        except StoreUnavailableError:
            CountingStore.unanswered += 1
            raise


class Scheduler:
    """A session, an election and an engine. Effects are executed at once, or recorded."""

    def __init__(self, hosts: str, root: str, name: str) -> None:
        self.session = ZooKeeperSession(
            ZooKeeperConfig(
                hosts=hosts, session_timeout=timedelta(seconds=10), call_timeout=timedelta(seconds=2)
            )
        )
        self.session.start(LONG)
        self.root = root
        self.prepares = True
        self.asked: list[PrepareRelease] = []
        self.resigned: list[str] = []
        self.registry = CollectorRegistry()
        self.engine = Engine(
            store_for=self._store,
            still_leads=self._leads,
            start_effect=self._effect,
            policy=Policy(timings=Timings(beat_grace=timedelta(milliseconds=200))),
            clock=SystemClock(),
            metrics=EngineMetrics(self.registry),
            on_status=lambda: None,
        )
        self.election = LeaderLockQueue(
            session=self.session,
            config=ElectionConfig(
                root=root,
                requeue_backoff_min=timedelta(milliseconds=200),
                requeue_backoff_max=timedelta(seconds=1),
                step_down_margin=timedelta(milliseconds=400),
            ),
            participant=Participant(name, "127.0.0.1", 1, uuid.uuid4().hex),
            guard=lambda: Verdict(True),
            electable=self.engine,
        )
        self.engine.start()
        self.election.add_to_leader_lock_queue()

    def _store(self, leadership: Leadership) -> TreeLeaderStore:
        return CountingStore(calls_on(self.session), self.root, leadership.token)

    def _leads(self) -> bool:
        return self.election.is_leader()

    def _effect(self, effect: Effect) -> None:
        match effect:
            case PrepareRelease(release):
                self.asked.append(effect)
                if self.prepares:
                    self.engine.enqueue(ReleasePrepared(release, SPEC))
            case BuildRun(key, draft):
                self.engine.enqueue(RunBuilt(key, Built(draft, new_run(SPEC, draft))))
            case ArchiveRun(run_id):
                self.engine.enqueue(RunArchived(run_id))
            case ResignLeadership(reason):
                self.resigned.append(reason)
                self.election.abdicate(reason)

    @property
    def leads(self) -> bool:
        return self.engine.status.recovered_at is not None

    def fenced_writes(self) -> float:
        return self.registry.get_sample_value("nimbus_fenced_writes_total") or 0.0

    def stop(self) -> None:
        self.election.close(LONG)
        assert self.engine.stop(LONG), "the engine's thread hangs"
        self.session.close(LONG)


class Cluster:
    """All processes except the schedulers: an operator, and a worker that claims and ends its attempts."""

    def __init__(self, hosts: str, root: str) -> None:
        self.hosts, self.root, self.paths = hosts, root, Paths(root)
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=timedelta(seconds=20)))
        self.session.start(LONG)
        self.board = TreeAttemptBoard(calls_on(self.session), root)
        self.queue = TreeCommandQueue(calls_on(self.session), root)
        self.reader = TreeClusterReader(calls_on(self.session), root)
        self.registrations = TreeRegistrations(calls_on(self.session), root)
        self.registrations.publish_worker(WORKER)
        self.schedulers: list[Scheduler] = []
        self.executed: list[str] = []

    def scheduler(self, name: str) -> Scheduler:
        self.schedulers.append(Scheduler(self.hosts, self.root, name))
        return self.schedulers[-1]

    def submit(self, command: Command) -> CommandId:
        return self.queue.submit(command, submitted_by="test")

    def answer(self, command: Command) -> CommandOutcome:
        outcome = await_outcome(self.queue, self.submit(command), LONG)
        assert outcome is not None, f"no answer to {command}"
        return outcome

    def publish(self) -> None:
        assert self.answer(PublishRelease(pipeline=NAME, digest=DIGEST, activate=True)).accepted

    def create(self, path: str, data: bytes, *, sequence: bool = False) -> str:
        made: str = self.session.call(
            self.session.client.create_async, path, data, makepath=True, sequence=sequence
        )
        return made

    def claim(self, attempt: str) -> bool:
        """Claim an attempt. Returns False if it is already claimed."""
        claim = Claim(
            attempt=attempt, worker=WORKER.id, host=WORKER.host, pid=1, claimed_at=datetime.now(UTC)
        )
        if self.board.claim(claim) != claim:
            return False
        self.board.heartbeat(AttemptId.parse(attempt), {})
        self.executed.append(attempt)
        return True

    def finish(self, attempt: str, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        self.board.end(
            End(
                attempt=attempt,
                outcome=outcome,
                written_by="runner",
                ended_at=datetime.now(UTC),
                output=attempt,
            )
        )

    def work(self) -> None:
        """Execute all orders of the worker."""
        for order in self.board.assignments(WORKER.id):
            if self.claim(order.attempt):
                self.finish(order.attempt)

    def run(self, run_id: str) -> Run | None:
        return self.reader.run(RunId(run_id))

    def succeeds(self, run_id: str) -> bool:
        self.work()
        run = self.run(run_id)
        return run is not None and run.state is RunState.SUCCEEDED

    def stop(self) -> None:
        for scheduler in self.schedulers:
            scheduler.stop()
        self.session.close(LONG)


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[Cluster]:
    cluster = Cluster(zookeeper.hosts, zk_root)
    yield cluster
    cluster.stop()


def start(run_id: str = "p-1", **parameters: str) -> StartRun:
    return StartRun(pipeline=NAME, run_id=RunId(run_id), parameters=parameters)


def test_a_successor_goes_on_with_the_same_run(cluster: Cluster, eventually: Eventually) -> None:
    first = cluster.scheduler("s1")
    eventually(lambda: first.leads)
    second = cluster.scheduler("s2")
    cluster.publish()
    assert cluster.answer(start()).accepted
    eventually(lambda: cluster.board.assignments(WORKER.id), what="the first task is assigned")
    assert cluster.claim("p-1.a.1")
    cluster.schedulers.remove(first)
    first.stop()
    eventually(lambda: second.leads)
    cluster.finish("p-1.a.1")

    eventually(lambda: cluster.succeeds("p-1"))
    assert cluster.executed == ["p-1.a.1", "p-1.b.1"]
    run = cluster.run("p-1")
    assert run is not None
    epochs = [task.attempts[0].opened_by_epoch for task in run.tasks.values()]
    assert epochs[0] < epochs[1]


def test_a_deposed_leader_writes_nothing_and_counts_it(cluster: Cluster, eventually: Eventually) -> None:
    leader = cluster.scheduler("s1")
    eventually(lambda: leader.leads)
    cluster.publish()
    body = records.CommandBody(command=start(), submitted_at=NOW.isoformat(), submitted_by="test")
    epoch = leader.engine.status.epoch
    standing = cluster.session.call(cluster.session.client.get_async, f"{cluster.root}/epoch")[0]
    # One transaction, so that the engine sees the command only when its epoch is over.
    deposing = cluster.session.client.transaction()
    deposing.set_data(f"{cluster.root}/epoch", standing)
    deposing.create(cluster.paths.new_command, records.COMMAND.encode(body), sequence=True)
    results = cluster.session.call(deposing.commit_async)
    command = CommandId(str(results[1]).rpartition("/")[2])

    eventually(lambda: leader.fenced_writes() == 1)
    outcome = await_outcome(cluster.queue, command, LONG)
    assert outcome is not None
    assert epoch is not None
    assert outcome.epoch > epoch, "the next leader decides the command"
    assert cluster.run("p-1") is not None


def test_an_abdication_hands_over_to_the_other(cluster: Cluster, eventually: Eventually) -> None:
    first = cluster.scheduler("s1")
    eventually(lambda: first.leads)
    second = cluster.scheduler("s2")
    eventually(lambda: second.election.status().position == 1)

    assert cluster.answer(Abdicate(reason="upgrade")).accepted

    eventually(lambda: second.leads and not first.leads)
    assert first.resigned == ["upgrade"]
    cluster.publish()
    assert cluster.answer(start()).epoch == second.engine.status.epoch


def test_a_write_without_an_answer_is_looked_up_and_the_work_goes_on(
    own_zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    cluster = Cluster(own_zookeeper.hosts, "/nimbus")
    try:
        leader = cluster.scheduler("s1")
        eventually(lambda: leader.leads)
        leader.prepares = False
        asked = cluster.submit(PublishRelease(pipeline=NAME, digest=DIGEST, activate=True))
        eventually(lambda: leader.asked)
        unanswered = CountingStore.unanswered
        own_zookeeper.pause()
        leader.engine.enqueue(ReleasePrepared(leader.asked[0].release, SPEC))
        eventually(lambda: CountingStore.unanswered > unanswered, what="the commit gets no answer")
        leader.prepares = True  # a new term reads the disk again
        own_zookeeper.kill()
        own_zookeeper.start()

        outcome = await_outcome(cluster.queue, asked, timedelta(seconds=60))
        assert outcome is not None
        assert outcome.accepted
        assert cluster.answer(start()).accepted
        eventually(lambda: cluster.succeeds("p-1"))
        assert cluster.executed == ["p-1.a.1", "p-1.b.1"]
    finally:
        cluster.stop()


# One broken record does not affect others.


def leading(cluster: Cluster, eventually: Eventually) -> Scheduler:
    scheduler = cluster.scheduler("s1")
    eventually(lambda: scheduler.leads)
    cluster.publish()
    return scheduler


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{not json",
        b"[" * 100_000,
        b'{"schema":2,"command":{"type":"abdicate","reason":"x"}}',
        b'{"schema":1,"command":{"type":"unheard_of"},"submitted_at":"2026-03-01","submitted_by":""}',
        b'{"schema":1,"command":{"type":"abdicate","reason":"x"},"submitted_at":"noon","submitted_by":""}',
    ],
    ids=["empty", "no_json", "deep", "newer", "unknown_type", "bad_time"],
)
def test_a_command_that_cannot_be_read_is_refused_and_out_of_the_way(
    cluster: Cluster, eventually: Eventually, data: bytes
) -> None:
    leader = leading(cluster, eventually)
    broken = cluster.create(cluster.paths.new_command, data, sequence=True).rpartition("/")[2]

    outcome = await_outcome(cluster.queue, CommandId(broken), LONG)
    assert outcome is not None
    assert (outcome.accepted, outcome.code) == (False, "unreadable_command")
    assert cluster.answer(start()).accepted
    assert cluster.reader.commands() == ()
    assert leader.resigned == []


@pytest.mark.parametrize("run_id", ["", "a/b", "P.1", "..", "x" * 200])
def test_a_run_id_of_no_form_is_refused(cluster: Cluster, eventually: Eventually, run_id: str) -> None:
    leader = leading(cluster, eventually)

    outcome = cluster.answer(start(run_id))

    assert (outcome.accepted, outcome.code) == (False, "invalid_name")
    assert leader.resigned == []


def test_a_run_that_cannot_be_read_is_left_and_its_id_is_refused(
    cluster: Cluster, eventually: Eventually
) -> None:
    cluster.create(cluster.paths.run(RunId("p-1")), b"{broken")
    leader = leading(cluster, eventually)

    outcome = cluster.answer(start("p-1"))

    assert (outcome.accepted, outcome.code) == (False, "conflict")
    assert cluster.answer(start("p-2")).accepted
    eventually(lambda: cluster.succeeds("p-2"))
    assert leader.resigned == []


def test_a_pipeline_that_cannot_be_read_harms_only_itself(cluster: Cluster, eventually: Eventually) -> None:
    leader = leading(cluster, eventually)
    other = PipelineName("q")
    cluster.create(cluster.paths.pipeline(other), b"{broken")

    outcome = cluster.answer(PublishRelease(pipeline=other, digest=DIGEST))

    assert (outcome.accepted, outcome.code) == (False, "conflict")
    assert cluster.answer(start("p-2")).accepted
    assert leader.resigned == []


@pytest.mark.parametrize("slot", ["claim", "end", "beat"])
def test_a_slot_that_cannot_be_read_does_not_end_the_term(
    cluster: Cluster, eventually: Eventually, slot: str
) -> None:
    leader = leading(cluster, eventually)
    assert cluster.answer(start("p-1")).accepted
    eventually(lambda: cluster.board.assignments(WORKER.id))
    cluster.create(f"{cluster.paths.attempt(AttemptId.parse('p-1.a.1'))}/{slot}", b"{broken")

    assert cluster.answer(start("p-2")).accepted
    eventually(lambda: cluster.succeeds("p-2"))
    assert leader.resigned == []


def test_an_end_that_cannot_be_read_fails_the_attempt(cluster: Cluster, eventually: Eventually) -> None:
    leading(cluster, eventually)
    assert cluster.answer(start("p-1")).accepted
    eventually(lambda: cluster.board.assignments(WORKER.id))
    assert cluster.claim("p-1.a.1")
    cluster.create(cluster.paths.end(AttemptId.parse("p-1.a.1")), b"{broken")

    def failed() -> bool:
        run = cluster.run("p-1")
        return run is not None and run.state is RunState.FAILED

    eventually(failed)
    run = cluster.run("p-1")
    assert run is not None
    assert "cannot be read" in run.tasks[TaskName("a")].attempts[0].reason


def test_a_missing_order_holds_up_only_its_own_run(cluster: Cluster, eventually: Eventually) -> None:
    leader = leading(cluster, eventually)
    assert cluster.answer(start("p-1")).accepted
    eventually(lambda: cluster.board.assignments(WORKER.id))
    order = cluster.paths.order(WORKER.id, AttemptId.parse("p-1.a.1"))
    cluster.session.call(cluster.session.client.delete_async, order)
    assert cluster.claim("p-1.a.1")
    cluster.finish("p-1.a.1")

    assert cluster.answer(start("p-2")).accepted
    eventually(lambda: cluster.succeeds("p-2"))
    assert leader.resigned == []


def test_a_run_too_large_for_zookeeper_is_refused_and_nobody_loses_the_connection(
    cluster: Cluster, eventually: Eventually
) -> None:
    leader = leading(cluster, eventually)
    generation = leader.session.generation
    large = {f"text{n}": "x" * 13_000 for n in range(70)}

    outcome = cluster.answer(start("p-1", **large))

    assert (outcome.accepted, outcome.code) == (False, "record_too_large")
    assert cluster.answer(start("p-2")).accepted
    assert leader.session.generation == generation
    assert leader.resigned == []


def test_a_worker_that_drains_is_given_nothing_more(
    cluster: Cluster, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_term, "WORKERS_EVERY_S", 0.05)
    monkeypatch.setattr(loop, "LONGEST_WAIT_S", 0.05)
    leader = leading(cluster, eventually)
    cluster.registrations.publish_worker(replace(WORKER, draining=True))
    reads = CountingStore.worker_reads
    eventually(lambda: CountingStore.worker_reads > reads + 1, what="it looks without any event")

    assert cluster.answer(start("p-1")).accepted
    assert cluster.answer(start("p-2")).accepted
    assert cluster.board.assignments(WORKER.id) == ()
    cluster.registrations.publish_worker(WORKER)
    eventually(lambda: cluster.succeeds("p-1") and cluster.succeeds("p-2"))
    assert leader.resigned == []
