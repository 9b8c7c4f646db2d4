"""CommandQueue, ClusterReader and Catalog: one suite on the shipped fake and on a real ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from leader import FencingToken, ZooKeeperConfig, ZooKeeperSession
from nimbus import pipeline_record
from nimbus.adapters.memory import MemoryCluster
from nimbus.adapters.zookeeper.board import ZooKeeperAttemptBoard
from nimbus.adapters.zookeeper.catalog import ZooKeeperCatalog
from nimbus.adapters.zookeeper.cluster import (
    ZooKeeperClusterReader,
    ZooKeeperCommandQueue,
    ZooKeeperRegistrations,
)
from nimbus.adapters.zookeeper.leader_store import ZooKeeperLeaderStore
from nimbus.domain import writes as w
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.commands import (
    Abdicate,
    ActivatePipeline,
    Command,
    CommandOutcome,
    PausePipeline,
    PublishRelease,
    RemovePipeline,
    StartRun,
    StopRun,
)
from nimbus.domain.errors import RecordTooLargeError
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
from nimbus.domain.pipeline import (
    CatchUp,
    FailureStrategy,
    ParameterSpec,
    PipelineSpec,
    Priority,
    RetryPolicy,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.run import Run, RunCause, RunState, TaskRun
from nimbus.domain.schedulers import MissingFile, Role, SchedulerInfo
from nimbus.domain.slots import Claim, Slots
from nimbus.domain.tasks import Tasks
from nimbus.domain.workers import WorkerInfo
from nimbus.ports import Catalog, ClusterReader, CommandQueue
from tests.definitions import active
from tests.leader_writes import commit
from tests.loading import loaded
from tests.outcomes import await_outcome

Eventually = Callable[..., None]
NOW = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
LONG = timedelta(seconds=30)
ATTEMPT = AttemptId(RunId("r"), TaskName("t"), 1)
DIGEST = ReleaseDigest("0" * 64)
TASK = TaskSpec(
    name=TaskName("t"),
    kind=TaskKind.PYSPARK,
    script="t.py",
    args=("--month", "ü {1}"),
    retries=RetryPolicy(limit=2, delay=timedelta(milliseconds=1500)),
    timeout=timedelta(minutes=3),
    spark_conf={"spark.x": "y"},
)
SPEC = PipelineSpec(
    name=PipelineName("p"),
    schedule=Schedule(cron="0 * * * *", timezone="Europe/Berlin", catchup=CatchUp.ALL),
    parameters={"month": ParameterSpec(type="integer", default=1, minimum=1, choices=(1, 2))},
    timeout=timedelta(hours=1),
    tasks=(TASK,),
)
RECORD = active(SPEC, schedule_position=NOW, updated_at=NOW)
RUN = Run(
    id=RunId("r"),
    pipeline=SPEC.name,
    release=DIGEST,
    parameters={"month": 1, "rate": 0.1, "on": True, "nothing": None},
    logical_date=NOW,
    created_at=NOW,
    cause=RunCause.SCHEDULE,
    priority=Priority.HIGHEST,
    failure_strategy=FailureStrategy.CONTINUE,
    deadline=NOW + timedelta(hours=1),
    tasks=Tasks([TaskRun(spec=TASK, retry_at=NOW)]),
)
WORKER = WorkerInfo(
    id=WorkerId("w1"), host=HostId("h"), hostname="h", pid=1, slots=1, version="1", started_at=NOW
)
SCHEDULER = SchedulerInfo(
    id="s1",
    boot_id="b",
    host=HostId("h"),
    hostname="h",
    address="http://h:1",
    pid=1,
    version="1",
    started_at=NOW,
    reported_at=NOW,
    role=Role.LEADER,
    epoch=3,
    missing=(MissingFile(pipeline="p", path="a", role="code", size_bytes=1, sha256="0"),),
    quarantined={"p": "why"},
)
COMMANDS: tuple[Command, ...] = (
    PublishRelease(pipeline=SPEC.name, digest=DIGEST, activate=True),
    ActivatePipeline(pipeline=SPEC.name),
    PausePipeline(pipeline=SPEC.name),
    RemovePipeline(pipeline=SPEC.name),
    StartRun(
        pipeline=SPEC.name, run_id=RUN.id, parameters={"a": [1, "ü"]}, logical_date=NOW, priority=Priority.LOW
    ),
    StopRun(run_id=RUN.id, reason="because"),
    Abdicate(reason="upgrade"),
)


@dataclass
class Bench:
    reader: ClusterReader
    queue: CommandQueue
    put: Callable[[PipelineRecord | Run | SchedulerInfo | WorkerInfo], None]
    claim: Callable[[Claim], None]
    answer: Callable[[CommandOutcome], None]


def memory_bench() -> Bench:
    cluster = MemoryCluster()

    def claim(claim: Claim) -> None:
        cluster.put_slots(AttemptId.parse(claim.attempt), Slots(claim=claim))

    return Bench(reader=cluster, queue=cluster, put=cluster.put, claim=claim, answer=cluster.answer)


def zookeeper_bench(session: ZooKeeperSession, root: str) -> Bench:
    session.call(session.client.create_async, f"{root}/epoch", b"1", makepath=True)
    store = ZooKeeperLeaderStore(session, root, FencingToken(path=f"{root}/epoch", version=0, epoch=1))
    loaded(store)
    reader = ZooKeeperClusterReader(session, root)
    registrations = ZooKeeperRegistrations(session, root)

    def put(record: PipelineRecord | Run | SchedulerInfo | WorkerInfo) -> None:
        match record:
            case PipelineRecord():
                was = reader.pipeline(record.name)
                commit(store, [w.CreatePipeline(record) if was is None else w.PutPipeline(record, was)])
            case Run():
                before = reader.run(record.id)
                commit(store, [w.CreateRun(record) if before is None else w.PutRun(record, before)])
            case SchedulerInfo():
                registrations.publish_scheduler(record)
            case WorkerInfo():
                registrations.publish_worker(record)

    def claim(claim: Claim) -> None:
        commit(store, [w.CreateAttempt(AttemptId.parse(claim.attempt))])
        ZooKeeperAttemptBoard(session, root).claim(claim)

    return Bench(
        reader=reader,
        queue=ZooKeeperCommandQueue(session, root),
        put=put,
        claim=claim,
        answer=lambda outcome: commit(store, [w.ConsumeCommand(outcome)]),
    )


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[ZooKeeperSession]:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=request.getfixturevalue("zookeeper").hosts))
    session.start(timedelta(seconds=30))
    yield session
    session.close(LONG)


@pytest.fixture(params=["memory", "zookeeper"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "memory":
        return memory_bench()
    return zookeeper_bench(request.getfixturevalue("session"), request.getfixturevalue("zk_root"))


def outcome(command: CommandId, *, code: str = "ok") -> CommandOutcome:
    return CommandOutcome(
        command=command, accepted=code == "ok", code=code, message="done", decided_at=NOW, epoch=1
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.type)
def test_a_command_waits_as_it_was_submitted(bench: Bench, command: Command) -> None:
    key = bench.queue.submit(command, submitted_by="me")

    (queued,) = bench.reader.commands()
    assert (queued.id, queued.command, queued.submitted_by) == (key, command, "me")
    assert queued.submitted_at.utcoffset() == timedelta(0)
    assert bench.queue.outcome(key) is None


def test_commands_wait_in_the_order_of_their_submission(bench: Bench) -> None:
    keys = [bench.queue.submit(command, submitted_by="") for command in COMMANDS]

    assert [queued.id for queued in bench.reader.commands()] == keys
    assert len(set(keys)) == len(keys)


def test_an_outcome_takes_the_command_out_of_the_queue(bench: Bench) -> None:
    first, second = (bench.queue.submit(COMMANDS[-1], submitted_by="") for _ in range(2))
    bench.answer(outcome(first, code="unknown_run"))

    assert [queued.id for queued in bench.reader.commands()] == [second]
    assert bench.queue.outcome(first) == outcome(first, code="unknown_run")
    assert await_outcome(bench.queue, first, LONG) == outcome(first, code="unknown_run")


def test_who_asked_for_an_outcome_in_vain_is_told_when_it_comes(bench: Bench) -> None:
    key = bench.queue.submit(COMMANDS[0], submitted_by="")
    told = [threading.Event() for _ in range(2)]
    for event in told:
        assert bench.queue.outcome(key, event.set) is None
    bench.answer(outcome(key))

    assert all(event.wait(LONG.total_seconds()) for event in told)
    assert bench.queue.outcome(key) == outcome(key)


def test_newest_refusal_of_a_start_is_found_by_its_run(bench: Bench) -> None:
    assert bench.queue.refused_start(RUN.id) is None
    keys = [bench.queue.submit(COMMANDS[4], submitted_by="") for _ in range(5)]
    first, second, other, accepted, _ = keys
    bench.answer(replace(outcome(first, code="busy"), run_id=RUN.id))
    bench.answer(replace(outcome(second, code="busy"), run_id=RUN.id))
    bench.answer(replace(outcome(other, code="busy"), run_id=RunId("other")))
    bench.answer(replace(outcome(accepted), run_id=RUN.id))

    found = bench.queue.refused_start(RUN.id)
    assert found is not None
    assert (found.command, found.code) == (second, "busy")
    assert bench.queue.refused_start(RunId("unknown")) is None


def test_nothing_is_there_at_first(bench: Bench) -> None:
    reader = bench.reader
    assert (reader.pipelines(), reader.runs(), reader.commands()) == ((), (), ())
    assert (reader.schedulers(), reader.workers()) == ((), ())
    assert reader.pipeline(SPEC.name) is None
    assert reader.run(RUN.id) is None
    assert reader.slots([ATTEMPT]) == {ATTEMPT: Slots()}


def test_records_are_read_as_they_were_written(bench: Bench) -> None:
    for record in (RECORD, RUN, SCHEDULER, WORKER):
        bench.put(record)

    reader = bench.reader
    assert (reader.pipelines(), reader.pipeline(SPEC.name)) == ((RECORD,), RECORD)
    assert (reader.runs(), reader.run(RUN.id)) == ((RUN,), RUN)
    assert (reader.schedulers(), reader.workers()) == ((SCHEDULER,), (WORKER,))


def test_runs_are_newest_first_and_the_rest_by_name(bench: Bench) -> None:
    for n in (2, 1, 3):
        bench.put(replace(RUN, id=RunId(f"r{n}"), created_at=NOW + timedelta(seconds=n)))
        bench.put(replace(RECORD, name=PipelineName(f"p{n}")))
        bench.put(replace(WORKER, id=WorkerId(f"w{n}")))
    bench.put(replace(RUN, id=RunId("r4"), created_at=NOW + timedelta(seconds=3)))

    assert [run.id for run in bench.reader.runs()] == ["r4", "r3", "r2", "r1"]
    assert [record.name for record in bench.reader.pipelines()] == ["p1", "p2", "p3"]
    assert [worker.id for worker in bench.reader.workers()] == ["w1", "w2", "w3"]


def test_a_change_is_seen(bench: Bench) -> None:
    bench.put(RUN)
    bench.put(replace(RUN, state=RunState.FAILED, reason="x"))
    claim = Claim(attempt=str(ATTEMPT), worker=WORKER.id, host=HostId("h"), pid=3, claimed_at=NOW)
    bench.claim(claim)

    assert bench.reader.run(RUN.id) == replace(RUN, state=RunState.FAILED, reason="x")
    assert bench.reader.slots([ATTEMPT])[ATTEMPT].claim == claim


# The catalog's watch, and what only ZooKeeper can refuse.


def test_the_catalog_tells_of_each_kind_of_change(
    session: ZooKeeperSession, zk_root: str, eventually: Eventually
) -> None:
    bench = zookeeper_bench(session, zk_root)
    catalog: Catalog = ZooKeeperCatalog(session, zk_root)
    told: list[str] = []

    def came() -> None:
        told.append("came")

    assert catalog.read(came) == ()
    assert catalog.read(came) == (), "reading twice is told once"
    bench.put(RECORD)
    eventually(lambda: told == ["came"])

    paused = replace(RECORD, state=PipelineState.PAUSED, schedule_position=None)
    assert catalog.read(lambda: told.append("changed")) == (replace(RECORD, schedule_position=None),)
    bench.put(paused)
    eventually(lambda: told == ["came", "changed"], what="a change of a record is told")
    assert catalog.read(lambda: told.append("another")) == (paused,)
    bench.put(replace(RECORD, name=PipelineName("q")))
    eventually(lambda: "another" in told, what="a new record is told")
    assert [record.name for record in catalog.read()] == ["p", "q"]


def test_a_fire_is_no_change_of_the_catalog(session: ZooKeeperSession, zk_root: str) -> None:
    bench = zookeeper_bench(session, zk_root)
    bench.put(RECORD)
    catalog, told = ZooKeeperCatalog(session, zk_root), threading.Event()
    catalog.read(told.set)

    fired = replace(RECORD, schedule_position=NOW + timedelta(hours=1))
    bench.put(fired)

    assert bench.reader.pipeline(RECORD.name) == fired
    session.call(session.client.sync_async, zk_root)  # events come before the answer
    assert not told.is_set()


def test_a_look_at_the_catalog_reads_what_has_changed_since_the_last_one(
    session: ZooKeeperSession, zk_root: str, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, read = zookeeper_bench(session, zk_root), list[str]()
    for name in "abc":
        bench.put(replace(RECORD, name=PipelineName(name)))
    original = pipeline_record.decode
    monkeypatch.setattr(
        pipeline_record, "decode", lambda data, place: (read.append(place[-1]), original(data, place))[1]
    )
    catalog, told = ZooKeeperCatalog(session, zk_root), threading.Event()
    catalog.read()
    assert read == ["a", "b", "c"]

    catalog.read(told.set)
    assert read == ["a", "b", "c"]
    bench.put(replace(RECORD, name=PipelineName("b"), state=PipelineState.PAUSED))
    read.clear()
    eventually(lambda: catalog.read()[1].state is PipelineState.PAUSED)
    assert read == ["b"]


def test_a_record_that_cannot_be_read_hides_no_other(session: ZooKeeperSession, zk_root: str) -> None:
    bench = zookeeper_bench(session, zk_root)
    for record in (RECORD, RUN, SCHEDULER, WORKER):
        bench.put(record)
    for parent in ("pipelines", "runs", "schedulers", "workers"):
        session.call(session.client.create_async, f"{zk_root}/{parent}/broken", b"{broken")

    reader = bench.reader
    assert (reader.pipelines(), reader.runs()) == ((RECORD,), (RUN,))
    assert (reader.schedulers(), reader.workers()) == ((SCHEDULER,), (WORKER,))


def test_a_command_that_is_too_large_is_refused_and_costs_no_connection(
    session: ZooKeeperSession, zk_root: str
) -> None:
    bench = zookeeper_bench(session, zk_root)
    generation = session.generation
    with pytest.raises(RecordTooLargeError, match="bytes"):
        bench.queue.submit(Abdicate(reason="x" * 1_100_000), submitted_by="")

    assert bench.queue.submit(Abdicate(reason="short"), submitted_by="")
    assert session.generation == generation
