"""CommandQueue, ClusterReader and Catalog: one suite in a dict, in SQLite and in a real ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol.states import Callback

from leader import FencingToken, ZooKeeperConfig, ZooKeeperSession
from nimbus import pipeline_record
from nimbus.adapters.sqlite.calls import begin_term
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import Calls, calls_on
from nimbus.adapters.store.catalog import TreeCatalog
from nimbus.adapters.store.cluster import (
    TreeClusterReader,
    TreeCommandQueue,
    TreeRegistrations,
)
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.adapters.zookeeper.calls import ZooKeeperCalls
from nimbus.domain import writes as w
from nimbus.domain.attempts.orders import order_for
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.attempts.workers import AssignmentKind, WorkerInfo
from nimbus.domain.cluster.schedulers import ElectionRole, MissingFile, SchedulerInfo
from nimbus.domain.cluster.settings import ClusterSettings, Hold, HoldOf
from nimbus.domain.cluster.terms import Leader, Term, begun
from nimbus.domain.commands import (
    Abdicate,
    ActivatePipeline,
    Command,
    CommandKey,
    CommandOutcome,
    CordonWorker,
    KeyedCommand,
    KeyUsedError,
    MarkTask,
    PausePipeline,
    PauseRun,
    PublishRelease,
    PurgeRuns,
    RemovePipeline,
    RemovePool,
    RemoveVariable,
    ResumeRun,
    RewindSchedule,
    SetHold,
    SetPool,
    SetShare,
    SetVariable,
    StartRun,
    StopRun,
    UncordonWorker,
)
from nimbus.domain.errors import RecordTooLargeError
from nimbus.domain.ids import (
    AttemptId,
    BackfillId,
    CommandId,
    HostId,
    PipelineName,
    ReleaseDigest,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    FailureStrategy,
    ParameterSpec,
    PipelineSpec,
    Priority,
    Retries,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.children import Parent
from nimbus.domain.runs.run import ListedRun, Paused, Run, RunCause, RunPart, RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.places import run_rank
from nimbus.ports import CatalogFeed, ClusterReader, CommandQueue, Enqueue
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import DictCluster
from tests.nimbus.leader_writes import commit
from tests.nimbus.loading import loaded
from tests.nimbus.outcomes import await_outcome

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
    retries=Retries(limit=2, delay=timedelta(milliseconds=1500)),
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
    id=WorkerId("w1"),
    host=HostId("h"),
    hostname="h",
    pid=1,
    slots=1,
    version="1",
    started_at=NOW,
    reported_at=NOW,
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
    role=ElectionRole.LEADER,
    epoch=3,
    missing=(MissingFile(pipeline="p", path="a", role="code", size_bytes=1, sha256="0"),),
    quarantined={"p": "why"},
)
COMMANDS: tuple[Command, ...] = (
    PublishRelease(pipeline=SPEC.name, digest=DIGEST, activate=True),
    ActivatePipeline(pipeline=SPEC.name),
    PausePipeline(pipeline=SPEC.name),
    RewindSchedule(pipeline=SPEC.name, reason="clock"),
    RemovePipeline(pipeline=SPEC.name),
    StartRun(
        pipeline=SPEC.name, run_id=RUN.id, parameters={"a": [1, "ü"]}, logical_date=NOW, priority=Priority.LOW
    ),
    StopRun(run_id=RUN.id, reason="because"),
    StartRun(
        pipeline=RUN.pipeline,
        run_id=RunId("again"),
        release=RUN.release,
        selection=Selection(
            scope=Scope.FROM,
            tasks=(TaskName("a"),),
            reuse=RUN.id,
            is_rerun=True,
            marks={TaskName("b"): TaskState.SKIPPED},
            reason="because",
        ),
    ),
    MarkTask(run_id=RUN.id, task=TaskName("a"), state="skipped", reason="because"),
    PauseRun(run_id=RUN.id),
    ResumeRun(run_id=RUN.id),
    SetPool(pool="db", size=3),
    RemovePool(pool="db"),
    SetHold(
        name="freeze",
        hold=Hold(of=HoldOf.TAG, name="daily", reason="incident", until=NOW, held_at=NOW),
    ),
    SetHold(name="freeze", hold=None),
    SetShare(team="finance", weight=2, reason="month end"),
    SetVariable(name="dwh", value="jdbc:x"),
    RemoveVariable(name="dwh"),
    CordonWorker(worker=WorkerId("w1"), reason="new disk"),
    UncordonWorker(worker=WorkerId("w1")),
    PurgeRuns(parts=(RunPart.LOGS,), reason="space", pipeline=RUN.pipeline, before=RUN.created_at),
    Abdicate(reason="upgrade"),
)


@dataclass
class Bench:
    reader: ClusterReader
    queue: CommandQueue
    put: Callable[[PipelineRecord | Run | SchedulerInfo | WorkerInfo | ClusterSettings | Term], None]
    claim: Callable[[Claim], None]
    answer: Callable[[CommandOutcome], None]
    drop_run: Callable[[RunId], None]


def listed(run: Run) -> ListedRun:
    return run.listed()


def orders(run: Run | None) -> dict[AttemptId, WorkerId]:
    """The worker that has the order for each open attempt of a run."""
    open_ones = ((name, task.open_attempt) for name, task in ({} if run is None else run.tasks).items())
    return {
        AttemptId(run.id, name, attempt.number): attempt.reaper or attempt.worker
        for name, attempt in open_ones
        if run is not None and attempt is not None
    }


def put_run(store: TreeLeaderStore, before: Run | None, run: Run) -> None:
    """Write a run and its orders, as the leader's rules do."""
    old, new = orders(before), orders(run)
    kind = AssignmentKind.RUN
    commit(store, [w.CreateRun(run) if before is None else w.PutRun(run, before)])
    commit(store, [w.Unassign(worker, a) for a, worker in old.items() if new.get(a) != worker])
    commit(
        store,
        [
            w.Assign(worker, order_for(run, a, epoch=1, kind=kind))
            for a, worker in new.items()
            if old.get(a) != worker
        ],
    )


def dict_bench(cluster: DictCluster) -> Bench:
    return _bench(cluster.calls(), "/nimbus", cluster.token(1))


def zookeeper_bench(session: ZooKeeperSession, root: str) -> Bench:
    session.call(session.client.create_async, f"{root}/epoch", b"1", makepath=True)
    return _bench(calls_on(session), root, FencingToken(path=f"{root}/epoch", version=0, epoch=1))


def _bench(calls: Calls, root: str, token: FencingToken) -> Bench:
    store = TreeLeaderStore(calls, root, token)
    loaded(store)
    reader = TreeClusterReader(calls, root)
    registrations = TreeRegistrations(calls, root)

    def put(record: PipelineRecord | Run | SchedulerInfo | WorkerInfo | ClusterSettings | Term) -> None:
        match record:
            case PipelineRecord():
                was = reader.pipeline(record.name)
                commit(store, [w.CreatePipeline(record) if was is None else w.PutPipeline(record, was)])
            case Run():
                put_run(store, reader.run(record.id), record)
            case SchedulerInfo():
                registrations.publish_scheduler(record)
            case WorkerInfo():
                registrations.publish_worker(record)
            case ClusterSettings():
                commit(store, [w.PutSettings(record)])
            case Term():
                commit(store, [w.CreateTerm(record)])

    def claim(claim: Claim) -> None:
        commit(store, [w.CreateAttempt(AttemptId.parse(claim.attempt))])
        TreeAttemptBoard(calls, root).claim(claim)

    return Bench(
        reader=reader,
        queue=TreeCommandQueue(calls, root),
        put=put,
        claim=claim,
        answer=lambda outcome: commit(store, [w.ConsumeCommand(outcome)]),
        drop_run=lambda run: commit(store, [w.RemoveRun(run)]),
    )


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[ZooKeeperSession]:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=request.getfixturevalue("zookeeper").hosts))
    session.start(timedelta(seconds=30))
    yield session
    session.close(LONG)


@pytest.fixture
def sqlite_session(tmp_path: Path) -> Iterator[SqliteSession]:
    session = SqliteSession(tmp_path / "state.db")
    session.start()
    yield session
    session.close(LONG)


@pytest.fixture(params=["dict", "sqlite", "zookeeper"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "dict":
        return dict_bench(DictCluster())
    if request.param == "sqlite":
        session: SqliteSession = request.getfixturevalue("sqlite_session")
        token = FencingToken(path="/nimbus/epoch", version=0, epoch=1)
        return _bench(calls_on(session), "/nimbus", begin_term(session, token))
    return zookeeper_bench(request.getfixturevalue("session"), request.getfixturevalue("zk_root"))


def outcome(command: CommandId, *, code: str = "ok") -> CommandOutcome:
    return CommandOutcome(
        command=command,
        accepted=code == "ok",
        code=code,
        message="done",
        decided_at=NOW,
        epoch=1,
        kind="start_run",
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.type)
def test_a_command_waits_as_it_was_submitted(bench: Bench, command: Command) -> None:
    key = bench.queue.submit(command, submitted_by="me")

    (queued,) = bench.reader.commands()
    assert (queued.id, queued.command, queued.submitted_by) == (key, command, "me")
    assert queued.submitted_at.utcoffset() == timedelta(0)
    assert bench.queue.outcome(key) is None


def test_a_command_waits_with_its_condition(bench: Bench) -> None:
    bench.queue.submit(COMMANDS[0], submitted_by="me")
    bench.queue.submit(COMMANDS[0], submitted_by="me", if_match=("a1", "b2"))

    assert [queued.if_match for queued in bench.reader.commands()] == [(), ("a1", "b2")]


def test_settings_are_read_as_they_were_written_last(bench: Bench) -> None:
    assert bench.reader.settings() == ClusterSettings()
    settings = ClusterSettings(pools={"db": 3}, cordoned={WorkerId("w1"): "new disk"})

    bench.put(settings)

    assert bench.reader.settings() == settings


def test_a_command_with_a_key_is_queued_once_and_its_outcome_is_kept_by_the_key(bench: Bench) -> None:
    key = CommandKey(hash="ab" * 16, request="cd" * 32)
    assert bench.queue.keyed(key.hash) is None

    made = bench.queue.submit(COMMANDS[0], submitted_by="me", key=key)
    with pytest.raises(KeyUsedError):
        bench.queue.submit(COMMANDS[0], submitted_by="me", key=key)

    (queued,) = bench.reader.commands()
    assert (queued.id, queued.key) == (made, key)
    assert bench.queue.keyed(key.hash) == KeyedCommand(request=key.request)

    decided = replace(outcome(made), key=key)
    bench.answer(decided)

    assert bench.queue.keyed(key.hash) == KeyedCommand(request=key.request, outcome=decided)


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
    assert {one.command for one in bench.queue.outcomes()} == {first, second, other, accepted}


def test_nothing_is_there_at_first(bench: Bench) -> None:
    reader = bench.reader
    assert (reader.pipelines(), tuple(reader.run_list().values()), reader.commands()) == ((), (), ())
    assert (reader.runs([RUN.id]), dict(reader.orders([WORKER.id]))) == ({}, {WORKER.id: ()})
    assert (reader.schedulers(), reader.workers()) == ((), ())
    assert reader.pipeline(SPEC.name) is None
    assert reader.run(RUN.id) is None
    assert reader.slots([ATTEMPT]) == {ATTEMPT: Slots()}


def test_records_are_read_as_they_were_written(bench: Bench) -> None:
    for record in (RECORD, RUN, SCHEDULER, WORKER):
        bench.put(record)

    reader = bench.reader
    assert (reader.pipelines(), reader.pipeline(SPEC.name)) == ((RECORD,), RECORD)
    assert (reader.runs([RUN.id]), reader.run(RUN.id)) == ({RUN.id: RUN}, RUN)
    assert tuple(reader.run_list().values()) == (listed(RUN),)
    assert (reader.schedulers(), reader.workers()) == ((SCHEDULER,), (WORKER,))


def test_the_catalog_shows_each_change_of_a_pipeline(bench: Bench) -> None:
    without = replace(RECORD, schedule_position=None)
    first = replace(RECORD, schedule_position=datetime(2026, 1, 1, tzinfo=UTC))
    fired = replace(first, schedule_position=datetime(2026, 1, 2, tzinfo=UTC))
    for record in (without, first, fired, replace(fired, state=PipelineState.PAUSED)):
        bench.put(record)

        assert bench.reader.pipelines() == (record,)


def test_the_newest_terms_are_read_newest_first(bench: Bench) -> None:
    leader = Leader(id="s1", host="h", boot_id="b", version="1")
    terms = [begun(leader, epoch, None, NOW) for epoch in (9, 10, 11)]
    assert bench.reader.terms(5) == ()
    for term in terms:
        bench.put(term)

    assert bench.reader.terms(5) == tuple(terms[::-1])
    assert bench.reader.terms(2) == (terms[2], terms[1])


def test_pipelines_and_workers_are_in_the_order_of_their_names(bench: Bench) -> None:
    for n in (2, 1, 3):
        bench.put(replace(RECORD, name=PipelineName(f"p{n}")))
        bench.put(replace(WORKER, id=WorkerId(f"w{n}")))

    assert [record.name for record in bench.reader.pipelines()] == ["p1", "p2", "p3"]
    assert [worker.id for worker in bench.reader.workers()] == ["w1", "w2", "w3"]


def test_a_change_is_seen(bench: Bench) -> None:
    bench.put(RUN)
    bench.put(replace(RUN, reason="x"))
    claim = Claim(attempt=str(ATTEMPT), worker=WORKER.id, host=HostId("h"), pid=3, claimed_at=NOW)
    bench.claim(claim)

    assert bench.reader.run(RUN.id) == replace(RUN, reason="x")
    assert bench.reader.slots([ATTEMPT])[ATTEMPT].claim == claim


def test_the_list_follows_each_run(bench: Bench) -> None:
    def listed_now() -> set[ListedRun]:
        return set(bench.reader.run_list().values())

    run = RUN
    other = replace(run, id=RunId("other"))
    bench.put(run)
    assert listed_now() == {listed(run)}
    bench.put(other)
    bench.put(replace(run, state=RunState.STOPPING, verdict=RunState.STOPPED))
    assert listed_now() == {
        listed(other),
        replace(listed(run), state=RunState.STOPPING),
    }
    bench.drop_run(run.id)
    assert listed_now() == {listed(other)}
    bench.put(replace(run, state=RunState.FAILED))
    assert listed_now() == {
        listed(other),
        replace(listed(run), state=RunState.FAILED),
    }


def test_the_list_holds_what_the_order_of_queued_runs_rests_on(bench: Bench) -> None:
    run = replace(
        RUN,
        state=RunState.QUEUED,
        cause=RunCause.BACKFILL,
        priority=Priority.LOWEST,
        parent=Parent(run=RunId("p"), top=RunId("p"), task=TaskName("fan"), attempt=1, index=0, depth=1),
        paused=Paused(by="ann", at=NOW),
        backfill=BackfillId("b1"),
    )
    bench.put(run)

    (found,) = bench.reader.run_list().values()

    assert found == run.listed()
    assert run_rank(found) == run_rank(run)
    assert (found.parent, found.paused, found.backfill) == (run.parent, run.paused, run.backfill)


def test_the_newest_registration_of_a_worker_is_read(bench: Bench) -> None:
    for draining in (False, True, False):
        bench.put(replace(WORKER, draining=draining))
        assert bench.reader.workers() == (replace(WORKER, draining=draining),)


def test_orders_of_a_worker_are_its_open_attempts_and_those_that_it_reaps(bench: Bench) -> None:
    names = [WORKER.id, WorkerId("reaper"), WorkerId("gone")]

    def orders() -> list[list[str]]:
        found = bench.reader.orders(names)
        return [list(found[name]) for name in names]

    for name in names[:2]:
        bench.put(replace(WORKER, id=name))
    assert orders() == [[], [], []]
    run = replace(RUN, tasks=Tasks([TaskRun(spec=TASK)]))
    bench.put(run)
    opened = lifecycle.open_attempt(run, TASK.name, worker=WORKER.id, epoch=1, now=NOW)
    bench.put(opened)
    assert orders() == [[str(ATTEMPT)], [], []]
    reaped = lifecycle.ask_to_reap(opened, ATTEMPT, names[1])
    bench.put(reaped)
    assert orders() == [[], [str(ATTEMPT)], []]
    end = End(attempt=str(ATTEMPT), outcome=Outcome.LOST, written_by="worker", ended_at=NOW)
    bench.put(lifecycle.close_attempt(reaped, ATTEMPT, end, max_infrastructure_failures=9, now=NOW))
    assert orders() == [[], [], []]


# The catalog's watch, and refusals that only ZooKeeper has.


def test_the_catalog_tells_of_each_kind_of_change(
    session: ZooKeeperSession, zk_root: str, eventually: Eventually
) -> None:
    bench = zookeeper_bench(session, zk_root)
    catalog: CatalogFeed = TreeCatalog(calls_on(session), zk_root)
    told: list[str] = []

    def came() -> None:
        told.append("came")

    assert catalog.read(came) == ()
    assert catalog.read(came) == (), "a record that was read twice is reported once"
    bench.put(RECORD)
    eventually(lambda: told == ["came"])

    paused = replace(RECORD, state=PipelineState.PAUSED, schedule_position=None)
    assert catalog.read(lambda: told.append("changed")) == (replace(RECORD, schedule_position=None),)
    bench.put(paused)
    eventually(lambda: told == ["came", "changed"], what="a change of a record is reported")
    assert catalog.read(lambda: told.append("another")) == (paused,)
    bench.put(replace(RECORD, name=PipelineName("q")))
    eventually(lambda: "another" in told, what="a new record is reported")
    assert [record.name for record in catalog.read()] == ["p", "q"]


def test_a_fire_is_no_change_of_the_catalog(session: ZooKeeperSession, zk_root: str) -> None:
    bench = zookeeper_bench(session, zk_root)
    bench.put(RECORD)
    catalog, told = TreeCatalog(calls_on(session), zk_root), threading.Event()
    catalog.read(told.set)

    fired = replace(RECORD, schedule_position=NOW + timedelta(hours=1))
    bench.put(fired)

    assert bench.reader.pipeline(RECORD.name) == fired
    session.call(session.client.sync_async, zk_root)  # the events arrive before the answer
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
    catalog, told = TreeCatalog(calls_on(session), zk_root), threading.Event()
    catalog.read()
    assert read == ["a", "b", "c"]

    catalog.read(told.set)
    assert read == ["a", "b", "c"]
    bench.put(replace(RECORD, name=PipelineName("b"), state=PipelineState.PAUSED))
    read.clear()
    eventually(lambda: catalog.read()[1].state is PipelineState.PAUSED)
    assert read == ["b"]


def test_a_list_holds_what_was_written_before_though_its_watch_is_called_late(
    session: ZooKeeperSession, zk_root: str
) -> None:
    bench = zookeeper_bench(session, zk_root)
    bench.put(RUN)
    bench.reader.run_list()
    late = Callback("watch", threading.Event().wait, (0.5,))
    session.client.handler.dispatch_callback(late)
    bench.put(replace(RUN, state=RunState.FAILED))

    assert [run.state for run in bench.reader.run_list().values()] == [RunState.FAILED]


def test_a_list_reads_no_run_again_that_has_not_changed(
    session: ZooKeeperSession, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = zookeeper_bench(session, zk_root)
    others = [replace(RUN, id=RunId(f"r{number}")) for number in range(3)]
    for run in others:
        bench.put(run)
    bench.reader.run_list()
    bench.put(replace(others[1], state=RunState.FAILED))
    read = note_reads(monkeypatch)
    bench.reader.run_list()

    assert read == [f"{zk_root}/runs/r1"]


def test_the_names_of_all_runs_are_read_only_when_one_came_or_went(
    session: ZooKeeperSession, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = zookeeper_bench(session, zk_root)
    names: list[str] = []
    children = ZooKeeperCalls.children

    def noted(calls: ZooKeeperCalls, path: str, *more: Any) -> tuple[str, ...] | None:
        names.append(path)
        return children(calls, path, *more)

    bench.put(RUN)
    monkeypatch.setattr(ZooKeeperCalls, "children", noted)
    for _ in range(3):
        bench.put(replace(RUN, state=RunState.FAILED))
        assert len(bench.reader.run_list()) == 1
    assert names == [f"{zk_root}/runs"]
    bench.put(replace(RUN, id=RunId("other")))
    assert len(bench.reader.run_list()) == 2


def test_a_command_that_waits_is_read_once(
    session: ZooKeeperSession, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = zookeeper_bench(session, zk_root)
    first, second = (bench.queue.submit(COMMANDS[number], submitted_by="") for number in (0, 4))
    bench.reader.commands()
    third = bench.queue.submit(COMMANDS[4], submitted_by="")
    bench.answer(outcome(first))
    read = note_reads(monkeypatch)
    waiting = bench.reader.commands()

    assert [queued.id for queued in waiting] == [second, third]
    assert read == [f"{zk_root}/commands/{third}"]


def note_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the paths that are read together from now on."""
    read: list[str] = []
    read_watched = ZooKeeperCalls.read_watched

    def noted(
        calls: ZooKeeperCalls, parent: str, changed: Mapping[str, Enqueue]
    ) -> tuple[tuple[str, bytes], ...]:
        read.extend(f"{parent}/{name}" for name in changed)
        return read_watched(calls, parent, changed)

    monkeypatch.setattr(ZooKeeperCalls, "read_watched", noted)
    return read


def test_a_record_that_cannot_be_read_hides_no_other(session: ZooKeeperSession, zk_root: str) -> None:
    bench = zookeeper_bench(session, zk_root)
    for record in (RECORD, RUN, SCHEDULER, WORKER):
        bench.put(record)
    for parent in ("pipelines", "runs", "schedulers", "workers"):
        session.call(session.client.create_async, f"{zk_root}/{parent}/broken", b"{broken")

    reader = bench.reader
    assert (reader.pipelines(), tuple(reader.run_list().values())) == ((RECORD,), (listed(RUN),))
    assert reader.runs([RUN.id, RunId("broken")]) == {RUN.id: RUN}
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
