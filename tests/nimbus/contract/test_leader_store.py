"""The LeaderStore in every store: a dict, SQLite, and a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from leader import FencedOutError, FencingToken, ZooKeeperConfig, ZooKeeperSession, read_epoch
from leader.protocol.terms import decode_epoch
from nimbus import records
from nimbus.adapters.sqlite.calls import begin_term
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store import leader_store
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import Calls, calls_on
from nimbus.adapters.store.cluster import TreeCommandQueue, TreeRegistrations
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.adapters.store.paths import Paths
from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.attempts.workers import Assignment, AssignmentKind, WorkerInfo
from nimbus.domain.cluster.alerts import Alert, AlertEvent, claimed
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.cluster.terms import Adopted, EndCause, Leader, begun, ended
from nimbus.domain.commands import Abdication, ActOnSelection, CommandOutcome, KeyedCommand, StopRun, part_of
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning, Version
from nimbus.domain.ids import (
    AttemptId,
    BackfillId,
    CommandId,
    DatasetName,
    HostId,
    PipelineName,
    ReleaseDigest,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.backfill import Backfill, BackfillRequest
from nimbus.domain.pipelines.catalog import PipelineState, Skips
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    FailureStrategy,
    PipelineSpec,
    Priority,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.pipelines.pipeline_health import PipelineHealth
from nimbus.domain.runs.lifecycle import open_attempt, stop
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.ports import (
    LeaderStore,
    SlotTakenError,
    StaleStateError,
)
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import DictCluster
from tests.nimbus.leader_writes import commit
from tests.nimbus.loading import loaded

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ATTEMPT = AttemptId(RunId("r"), TaskName("t"), 1)
WORKER = WorkerId("w1")
SPEC = TaskSpec(name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py")
RUN = Run(
    id=RunId("r"),
    pipeline=PipelineName("p"),
    release=ReleaseDigest("0" * 64),
    parameters={"month": 1},
    logical_date=NOW,
    created_at=NOW,
    cause=RunCause.MANUAL,
    priority=Priority.LOW,
    failure_strategy=FailureStrategy.CONTINUE,
    tasks=Tasks([TaskRun(spec=SPEC)]),
)
OPEN = open_attempt(RUN, SPEC.name, worker=WORKER, epoch=1, now=NOW)
ORDER = Assignment(
    attempt=str(ATTEMPT),
    kind=AssignmentKind.RUN,
    epoch=1,
    pipeline=PipelineName("p"),
    release=ReleaseDigest("0" * 64),
    run=RunId("r"),
    task=SPEC,
    logical_date=NOW,
)

INFO = WorkerInfo(
    id=WORKER, host=HostId("h"), hostname="h", pid=1, slots=1, version="1", started_at=NOW, reported_at=NOW
)
RECORD = active(
    PipelineSpec(name=PipelineName("p"), tasks=(SPEC,)),
    published=ReleaseDigest("0" * 64),
    state=PipelineState.INACTIVE,
    release=None,
    updated_at=NOW,
)

HOURLY = PipelineSpec(
    name=RECORD.name, schedule=Schedule(cron="0 * * * *", timezone="Europe/Berlin"), tasks=(SPEC,)
)
ACTIVE_RECORD = active(HOURLY, schedule_position=NOW, updated_at=NOW)


@dataclass
class Bench:
    """A store, with the functions that a test needs to act as all other processes."""

    store: LeaderStore
    depose: Callable[[], None]
    submit: Callable[[StopRun], CommandId]
    register: Callable[[WorkerInfo], None]
    outcome: Callable[[CommandId], CommandOutcome | None]
    claim: Callable[[Claim], Claim]
    end: Callable[[End], End]
    schema: Callable[[], int]
    put_key: Callable[[str, KeyedCommand], object]
    keyed: Callable[[str], KeyedCommand | None]


def dict_bench() -> Iterator[Bench]:
    cluster = DictCluster()
    yield _bench(
        cluster.calls(),
        "/nimbus",
        cluster.token(1),
        lambda: cluster.change(epoch=2),
        lambda: cluster.world.schema,
    )


@pytest.fixture(params=["dict", "sqlite", "zookeeper"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "dict":
        yield from dict_bench()
    elif request.param == "sqlite":
        yield from sqlite_bench(tmp_path)
    else:
        yield from zookeeper_bench(request)


def sqlite_bench(folder: Path) -> Iterator[Bench]:
    root, token = "/nimbus", FencingToken(path="/nimbus/epoch", version=0, epoch=1)
    session = SqliteSession(folder / "state.db")
    session.start()
    try:
        fence = begin_term(session, token)

        def schema() -> int:
            return decode_epoch(calls_on(session).get(token.path) or b"", token.path).schema

        yield _bench(
            calls_on(session), root, fence, lambda: begin_term(session, replace(token, epoch=2)), schema
        )
    finally:
        session.close(timedelta(seconds=10))


def zookeeper_bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    root: str = request.getfixturevalue("zk_root")
    session = ZooKeeperSession(ZooKeeperConfig(hosts=request.getfixturevalue("zookeeper").hosts))
    session.start(timedelta(seconds=30))
    try:
        session.call(session.client.create_async, f"{root}/epoch", b"1", makepath=True)
        token = FencingToken(path=f"{root}/epoch", version=0, epoch=1)

        def schema() -> int:
            found = read_epoch(session, root)
            assert found is not None
            return found.schema

        depose = partial(session.call, session.client.set_async, f"{root}/epoch", b"2")
        yield _bench(calls_on(session), root, token, depose, schema)
    finally:
        session.close(timedelta(seconds=10))


def _bench(
    calls: Calls,
    root: str,
    token: FencingToken,
    depose: Callable[[], object],
    schema: Callable[[], int],
) -> Bench:
    board, queue, paths = TreeAttemptBoard(calls, root), TreeCommandQueue(calls, root), Paths(root)

    def put_key(name: str, known: KeyedCommand) -> None:
        calls.ensure(paths.keys)
        calls.create(paths.key(name), records.KEY.encode(known))

    return Bench(
        store=TreeLeaderStore(calls, root, token),
        depose=lambda: (depose(), None)[1],
        submit=lambda command: queue.submit(command, submitted_by="test"),
        register=TreeRegistrations(calls, root).publish_worker,
        outcome=queue.outcome,
        claim=board.claim,
        end=board.end,
        schema=schema,
        put_key=put_key,
        keyed=queue.keyed,
    )


def with_open_attempt(bench: Bench) -> None:
    bench.register(INFO)
    loaded(bench.store)
    commit(bench.store, [w.CreateRun(RUN)])
    commit(bench.store, [w.PutRun(OPEN, RUN), w.CreateAttempt(ATTEMPT), w.Assign(WORKER, ORDER)])


@pytest.mark.parametrize("size", [1, 150])
def test_a_run_in_pages_is_loaded_as_it_was_written(bench: Bench, size: int) -> None:
    specs = [replace(SPEC, name=TaskName(f"t{number}")) for number in range(size)]
    interval = DataInterval(start=NOW - timedelta(hours=23), end=NOW)
    run = replace(
        RUN,
        data_interval=interval,
        timezone="Europe/Berlin",
        tasks=Tasks(TaskRun(spec=spec) for spec in specs),
    )
    opened = open_attempt(run, TaskName(f"t{size - 1}"), worker=WORKER, epoch=1, now=NOW)
    stopped = stop(opened, verdict=RunState.STOPPED, reason="by hand", now=NOW)
    loaded(bench.store)

    commit(bench.store, [w.CreateRun(run)])
    assert loaded(bench.store).runs == {RUN.id: run}
    commit(bench.store, [w.PutRun(opened, run)], [w.PutRun(stopped, opened)])
    assert loaded(bench.store).runs == {RUN.id: stopped}
    assert bench.store.read_run(RUN.id) == stopped
    commit(bench.store, [w.RemoveRun(RUN.id)])
    assert bench.store.read_run(RUN.id) is None


def test_decisions_that_are_written_together_leave_the_last_of_each(bench: Bench) -> None:
    bench.register(INFO)
    loaded(bench.store)

    commit(
        bench.store,
        [w.CreateRun(RUN)],
        [w.PutRun(OPEN, RUN), w.CreateAttempt(ATTEMPT), w.Assign(WORKER, ORDER)],
        [w.Unassign(WORKER, ATTEMPT), w.Assign(WORKER, replace(ORDER, kind=AssignmentKind.REAP))],
    )

    assert loaded(bench.store).runs == {RUN.id: OPEN}
    with pytest.raises(SlotTakenError):
        commit(bench.store, [w.CreateAttempt(ATTEMPT)])


def test_what_was_written_is_loaded_unchanged(bench: Bench) -> None:
    with_open_attempt(bench)
    commit(bench.store, [w.CreatePipeline(RECORD)])

    snapshot = loaded(bench.store)

    assert snapshot.runs == {RUN.id: OPEN}
    assert snapshot.pipelines == {RECORD.name: RECORD}
    assert snapshot.registered.workers == (INFO,)
    assert set(snapshot.slots) == {ATTEMPT}
    assert snapshot.slots[ATTEMPT].claim is None


def test_terms_are_loaded_newest_first_and_the_oldest_are_forgotten(bench: Bench) -> None:
    leader = Leader(id="s1", host="h", boot_id="b", version="1")
    terms = [
        replace(begun(leader, epoch, None, NOW), adopted=Adopted(runs=epoch)) for epoch in (8, 9, 10, 11)
    ]
    closed = ended(terms[-1], EndCause.HANDED_OVER, NOW + timedelta(hours=1), reason="move", by="ann")
    loaded(bench.store)

    commit(bench.store, *([w.CreateTerm(term)] for term in terms), [w.PutTerm(closed)])

    assert loaded(bench.store).registered.terms == (closed, terms[2]) == bench.store.read_terms()
    assert bench.store.old_terms(2) == (terms[0], terms[1])
    assert bench.store.old_terms(4) == ()
    with pytest.raises(SlotTakenError):
        commit(bench.store, [w.CreateTerm(terms[0])])
    with pytest.raises(StaleStateError):
        commit(bench.store, [w.PutTerm(begun(leader, 12, None, NOW))])
    bench.store.forget_terms([8, 7])
    assert bench.store.old_terms(2) == (terms[0], terms[1]), "one does not exist, so none is deleted"
    bench.store.forget_terms([8, 9])
    assert bench.store.old_terms(2) == ()
    bench.depose()
    with pytest.raises(FencedOutError):
        bench.store.forget_terms([10])


def test_a_backfill_is_loaded_as_it_was_written_until_it_is_removed(bench: Bench) -> None:
    loaded(bench.store)
    backfill = Backfill(
        id=BackfillId("b"),
        pipeline=RECORD.name,
        release=RECORD.published,
        schedule=HOURLY.schedule,
        request=BackfillRequest(first=NOW, last=NOW, every=timedelta(days=1), parameters={"a": [1]}),
        created_at=NOW,
    )
    moved = replace(backfill, position=NOW, started=1)

    commit(bench.store, [w.PutBackfill(backfill, None)])
    assert loaded(bench.store).registered.backfills == (backfill,)
    commit(bench.store, [w.PutBackfill(moved, backfill)])
    assert bench.store.read_backfill(backfill.id) == moved
    with pytest.raises(SlotTakenError):
        commit(bench.store, [w.PutBackfill(backfill, None)])
    commit(bench.store, [w.RemoveBackfill(moved)])
    assert loaded(bench.store).registered.backfills == ()
    assert bench.store.read_backfill(backfill.id) is None


def test_an_index_of_intervals_is_loaded_as_it_was_written_until_it_is_removed(bench: Bench) -> None:
    loaded(bench.store)
    before = None
    for number in range(300):
        interval = DataInterval(start=NOW, end=NOW + timedelta(hours=1 + number * 7 % 300))
        run = replace(
            RUN,
            state=RunState.SUCCEEDED,
            started_at=NOW,
            finished_at=NOW,
            data_interval=interval,
        )
        index = (before or IntervalIndex(begins=NOW)).with_run(run)
        commit(bench.store, [w.PutIntervals(RECORD.name, index, before)])
        before = index

    assert before is not None
    assert len(before.pages) > 3
    assert loaded(bench.store).registered.intervals == {RECORD.name: before}
    assert bench.store.read_intervals(RECORD.name) == before
    commit(bench.store, [w.PutIntervals(RECORD.name, None, before)])
    assert loaded(bench.store).registered.intervals == {}
    assert bench.store.read_intervals(RECORD.name) is None
    commit(bench.store, [w.PutIntervals(RECORD.name, before, None)])
    assert bench.store.read_intervals(RECORD.name) == before


def test_a_dataset_is_loaded_as_it_was_written(bench: Bench) -> None:
    loaded(bench.store)
    name, before = DatasetName("orders"), None
    for number in range(3):
        version = Version(
            partition=f"k{number}",
            number=number,
            run=RUN.id,
            task=TaskName("t"),
            source=AttemptId(RUN.id, TaskName("t"), 1),
            output="p/r/t/1",
            at=NOW,
        )
        found = before or Dataset(name=name, pipeline=RECORD.name, partition=Partitioning.KEY)
        after = found.with_version(version, bool)
        commit(bench.store, [w.PutDataset(after, before)])
        before = after

    assert before is not None
    assert loaded(bench.store).registered.datasets == {name: before}
    assert bench.store.read_datasets([name, DatasetName("other")]) == {name: before}
    with pytest.raises(SlotTakenError):
        commit(bench.store, [w.PutDataset(before, None)])


def test_a_pipeline_is_loaded_as_it_was_written_through_all_its_changes(bench: Bench) -> None:
    first = ACTIVE_RECORD
    fired = replace(first, schedule_position=NOW + timedelta(hours=1))
    paused = replace(fired, state=PipelineState.PAUSED)
    loaded(bench.store)

    commit(bench.store, [w.CreatePipeline(first)])
    for before, after in pairwise((first, fired, paused, first)):
        commit(bench.store, [w.PutPipeline(after, before)])
        assert loaded(bench.store).pipelines == {RECORD.name: after}
        assert bench.store.read_pipeline(RECORD.name) == after
    commit(bench.store, [w.RemovePipelineRecord(first)])
    assert loaded(bench.store).pipelines == {}
    commit(bench.store, [w.CreatePipeline(first)])
    assert bench.store.read_pipeline(RECORD.name) == first


def test_a_pipeline_keeps_its_position_and_the_fire_times_that_were_skipped(bench: Bench) -> None:
    loaded(bench.store)
    fired = replace(ACTIVE_RECORD, schedule_position=NOW + timedelta(hours=1))
    commit(bench.store, [w.CreatePipeline(ACTIVE_RECORD)], [w.PutPipeline(fired, ACTIVE_RECORD)])
    assert loaded(bench.store).pipelines == {RECORD.name: fired}
    skips = Skips().with_fires((NOW + timedelta(hours=2),), "missed", after=fired.schedule_position, now=NOW)
    again = replace(fired, schedule_position=NOW + timedelta(hours=2), skips=skips)
    commit(bench.store, [w.PutPipeline(again, fired)])
    assert bench.store.read_pipeline(RECORD.name) == again
    commit(bench.store, [w.RemovePipelineRecord(again)], [w.CreatePipeline(again)])
    assert bench.store.read_pipeline(RECORD.name) == again


def test_a_deposed_leader_writes_nothing(bench: Bench) -> None:
    loaded(bench.store)
    bench.depose()

    with pytest.raises(FencedOutError):
        commit(bench.store, [w.CreateRun(RUN)])

    assert loaded(bench.store).runs == {}


def test_a_refused_write_takes_the_whole_transaction_with_it(bench: Bench) -> None:
    loaded(bench.store)

    with pytest.raises(StaleStateError):
        commit(
            bench.store,
            [w.CreateRun(RUN), w.PutPipeline(replace(RECORD, state=PipelineState.PAUSED), RECORD)],
        )

    assert loaded(bench.store).runs == {}


def test_the_last_abdication_is_loaded(bench: Bench) -> None:
    assert loaded(bench.store).registered.abdication is None

    for epoch in (3, 4):
        commit(bench.store, [w.PutAbdication(Abdication(epoch=epoch, reason="upgrade"))])

    assert loaded(bench.store).registered.abdication == Abdication(epoch=4, reason="upgrade")


def test_last_settings_are_loaded(bench: Bench) -> None:
    assert loaded(bench.store).registered.settings == ClusterSettings()
    settings = ClusterSettings(pools={"db": 3}, cordoned={WorkerId("w1"): "new disk"})

    for found in (ClusterSettings(pools={"db": 1}), settings):
        commit(bench.store, [w.PutSettings(found)])

    assert loaded(bench.store).registered.settings == settings


def test_raising_the_schema_is_the_last_write_of_a_term(bench: Bench) -> None:
    loaded(bench.store)
    asked = Abdication(epoch=1, reason="the schema was raised")

    commit(bench.store, [w.RaiseSchema(2), w.PutAbdication(asked)])

    assert bench.schema() == 2
    assert loaded(bench.store).registered.abdication == asked
    with pytest.raises(FencedOutError):
        commit(bench.store, [w.CreateRun(RUN)])


def test_a_run_cannot_be_created_twice(bench: Bench) -> None:
    loaded(bench.store)
    commit(bench.store, [w.CreateRun(RUN)])

    with pytest.raises(SlotTakenError):
        commit(bench.store, [w.CreateRun(replace(RUN, state=RunState.FAILED))])

    assert loaded(bench.store).runs[RUN.id] == RUN


def test_a_command_is_consumed_once(bench: Bench) -> None:
    loaded(bench.store)
    command = StopRun(run_id=RUN.id, reason="test")
    first, second = bench.submit(command), bench.submit(command)
    assert [queued.id for queued in bench.store.read_commands((), 100)] == [first, second]
    outcome = CommandOutcome(
        command=first, accepted=True, code="ok", message="done", decided_at=NOW, epoch=1, kind="start_run"
    )

    commit(bench.store, [w.ConsumeCommand(outcome)])

    assert [queued.id for queued in bench.store.read_commands((), 100)] == [second]
    with pytest.raises(StaleStateError):
        commit(bench.store, [w.ConsumeCommand(outcome)])


def test_a_selection_is_read_again_with_the_commands_that_it_has_queued(bench: Bench) -> None:
    loaded(bench.store)
    asked = ActOnSelection(action="stop", of="runs", targets={"p-1": "p", "p-2": "p"}, reason="test")
    key = bench.submit(asked)
    (queued,) = bench.store.read_commands((), 100)
    rest = replace(queued, command=replace(asked, targets={"p-2": "p"}, queued=1))
    part = replace(queued, id=part_of(key, 0), command=StopRun(run_id=RUN.id, reason="test"))
    writes = [w.PutCommand(part, is_new=True), w.PutCommand(rest, is_new=False)]

    commit(bench.store, writes)

    assert bench.store.read_commands((), 100) == (rest, part)
    with pytest.raises(SlotTakenError):
        commit(bench.store, writes)
    assert [queued.id for queued in bench.store.read_commands((), 100)] == [key, part.id]
    assert bench.submit(asked).startswith("cmd-")


def test_the_first_to_fill_a_slot_wins_leader_or_driver(bench: Bench) -> None:
    with_open_attempt(bench)
    driver = Claim(attempt=str(ATTEMPT), worker=WORKER, host=HostId("h"), pid=7, claimed_at=NOW)
    fence = replace(driver, fenced_by_epoch=1, worker=None, host=None, pid=None)

    assert bench.claim(driver) == driver
    with pytest.raises(SlotTakenError):
        commit(bench.store, [w.WriteClaim(ATTEMPT, fence)])

    lost = End(attempt=str(ATTEMPT), outcome=Outcome.LOST, written_by="leader", ended_at=NOW)
    commit(bench.store, [w.WriteEnd(ATTEMPT, lost)])
    late = replace(lost, outcome=Outcome.SUCCEEDED, written_by="runner")
    assert bench.end(late) == lost
    assert bench.store.read_slots([ATTEMPT])[ATTEMPT].end == lost


def test_outcomes_beyond_the_most_are_old_whatever_their_age(bench: Bench) -> None:
    asked = with_outcomes(bench, 3)

    pruned = bench.store.prune_outcomes(NOW, 2)

    assert [outcome.command for outcome in pruned.old] == asked[:1]


def test_old_keys_are_forgotten_in_steps_and_those_of_waiting_commands_never(bench: Bench) -> None:
    asked = with_outcomes(bench, 3)
    for number, command in enumerate(asked):
        bench.put_key(f"k{number}", KeyedCommand(request="r", outcome=bench.outcome(command)))
    bench.put_key("k9", KeyedCommand(request="r"))

    def left() -> list[str]:
        return [name for name in ("k0", "k1", "k2", "k9") if bench.keyed(name) is not None]

    bench.store.prune_keys(NOW + timedelta(minutes=2), 1)
    assert len(left()) == 3
    for _ in range(6):
        bench.store.prune_keys(NOW + timedelta(minutes=2), 1)
    assert left() == ["k2", "k9"]


@pytest.mark.parametrize("bench", ["sqlite", "zookeeper"], indirect=True)  # the fake deletes all in one call
def test_a_look_at_the_outcomes_says_when_it_left_some(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_store, "MAX_PRUNED", 2)
    asked = with_outcomes(bench, 3)

    assert bench.store.prune_outcomes(NOW + timedelta(days=1), 100).more
    bench.store.forget_outcomes(asked[:2])
    assert not bench.store.prune_outcomes(NOW + timedelta(days=1), 100).more


@pytest.mark.parametrize("bench", ["sqlite", "zookeeper"], indirect=True)
def test_a_log_says_what_could_not_be_pruned(bench: Bench) -> None:
    (command,) = with_outcomes(bench, 1)
    bench.store.forget_outcomes([command])
    with capture_logs() as logged:
        bench.store.forget_outcomes([command])
        bench.store.forget_terms([7])

    assert [line["event"] for line in logged] == ["outcomes_not_pruned", "terms_not_pruned"]


def test_old_outcomes_are_returned_and_stay_until_they_are_forgotten(bench: Bench) -> None:
    asked = with_outcomes(bench, 4, refused=(0, 2, 3))

    pruned = bench.store.prune_outcomes(NOW + timedelta(minutes=3), 100)

    assert [outcome.command for outcome in pruned.old] == asked[:3]
    assert [bench.outcome(command) is None for command in asked] == [False] * 4
    assert bench.store.prune_outcomes(NOW + timedelta(minutes=3), 100).old == pruned.old

    bench.store.forget_outcomes(asked[:1])
    bench.store.forget_outcomes(asked[:1] + asked[2:3])  # one does not exist: nothing is deleted
    assert [bench.outcome(command) is None for command in asked] == [True, False, False, False]


def test_outcomes_beyond_twice_the_most_are_forgotten(bench: Bench) -> None:
    asked = with_outcomes(bench, 5, refused=range(5))

    pruned = bench.store.prune_outcomes(NOW, 2)

    assert [outcome.command for outcome in pruned.old] == asked[1:3]
    assert [bench.outcome(command) is None for command in asked] == [True, *[False] * 4]


def with_outcomes(bench: Bench, count: int, refused: Collection[int] = ()) -> list[CommandId]:
    """Decided commands, one for each minute."""
    loaded(bench.store)
    asked = [bench.submit(StopRun(run_id=RUN.id, reason="test")) for _ in range(count)]
    for minutes, command in enumerate(asked):
        outcome = CommandOutcome(
            command=command,
            accepted=minutes not in refused,
            code="ok" if minutes not in refused else "busy",
            message="",
            decided_at=NOW + timedelta(minutes=minutes),
            epoch=1,
            kind="start_run",
        )
        commit(bench.store, [w.ConsumeCommand(outcome)])
    return asked


def test_a_deposed_leader_forgets_nothing(bench: Bench) -> None:
    loaded(bench.store)
    command = bench.submit(StopRun(run_id=RUN.id, reason="test"))
    outcome = CommandOutcome(
        command=command, accepted=True, code="ok", message="", decided_at=NOW, epoch=1, kind="start_run"
    )
    commit(bench.store, [w.ConsumeCommand(outcome)])
    bench.depose()

    with pytest.raises(FencedOutError):
        bench.store.forget_outcomes([command])

    assert bench.outcome(command) is not None


def test_news_is_told_after_a_change_of_what_was_read(bench: Bench, eventually: Callable[..., None]) -> None:
    told: set[str] = set()
    bench.store.subscribe(
        commands=lambda: told.add("commands"),
        workers=lambda: told.add("workers"),
        attempt=lambda attempt: told.add(str(attempt)),
    )
    with_open_attempt(bench)
    loaded(bench.store)
    told.clear()

    bench.submit(StopRun(run_id=RUN.id, reason="test"))
    bench.register(replace(INFO, id=WorkerId("w2")))
    bench.claim(Claim(attempt=str(ATTEMPT), worker=WORKER, claimed_at=NOW))
    eventually(lambda: told >= {"commands", "workers", str(ATTEMPT)})


def test_an_end_is_told_to_who_awaits_it_and_a_claim_is_not(
    bench: Bench, eventually: Callable[..., None]
) -> None:
    told: list[AttemptId] = []
    with_open_attempt(bench)
    bench.store.subscribe(commands=lambda: None, workers=lambda: None, attempt=told.append)
    claim = Claim(attempt=str(ATTEMPT), worker=WORKER, claimed_at=NOW)
    end = End(attempt=str(ATTEMPT), outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=NOW)

    bench.store.await_ends([ATTEMPT])
    bench.claim(claim)
    assert bench.store.read_ends([ATTEMPT]) == {}
    told.clear()
    bench.end(end)
    eventually(lambda: told == [ATTEMPT])

    assert bench.store.read_ends([ATTEMPT]) == {ATTEMPT: Slots(claim=claim, end=end)}
    bench.store.await_ends([ATTEMPT])
    eventually(lambda: told == [ATTEMPT, ATTEMPT])  # an END that existed before is told at once


def test_a_run_leaves_with_all_its_attempts(bench: Bench) -> None:
    with_open_attempt(bench)
    bench.claim(Claim(attempt=str(ATTEMPT), worker=WORKER, claimed_at=NOW))

    commit(bench.store, [w.Unassign(WORKER, ATTEMPT), w.RequestStop(ATTEMPT, "test")])
    commit(bench.store, [w.RemoveAttempt(ATTEMPT), w.RemoveRun(RUN.id)])

    assert loaded(bench.store).runs == {}
    assert bench.store.read_slots([ATTEMPT])[ATTEMPT].claim is None


def test_an_attempt_that_is_gone_can_be_removed_again(bench: Bench) -> None:
    with_open_attempt(bench)
    commit(bench.store, [w.RemoveAttempt(ATTEMPT)])

    commit(bench.store, [w.RemoveAttempt(ATTEMPT)])

    assert set(loaded(bench.store).runs) == {RUN.id}


def test_records_of_a_newer_schema_are_refused_with_their_place() -> None:
    data = records.RUN.encode(RUN).replace(b'"schema":1', b'"schema":2')

    with pytest.raises(records.UnreadableRecordError, match=r"/runs/r.*schema 2.*upgrade"):
        records.RUN.decode(data, "/runs/r")


def test_alerts_and_health_are_loaded_as_they_were_written(bench: Bench) -> None:
    alert = Alert(
        id="failed.r.oncall",
        event=AlertEvent.FAILED,
        target="oncall",
        pipeline=PipelineName("p"),
        run=RUN.id,
        about="run r failed: t",
        raised_at=NOW,
    )
    later = replace(alert, id="recovered.s.oncall", event=AlertEvent.RECOVERED, raised_at=NOW + timedelta(1))
    health = PipelineHealth(name=PipelineName("p"), failing_since=RUN.id)
    loaded(bench.store)

    commit(bench.store, [w.CreateAlert(later), w.CreateAlert(alert), w.PutHealth(health, is_new=True)])
    assert bench.store.read_alerts() == (alert, later)

    sending = claimed(alert, 1)
    skips = replace(health, skips=True, durations=(1.5, 2.0), missed=NOW, foretold=NOW + timedelta(days=1))
    commit(bench.store, [w.PutAlert(sending), w.RemoveAlert(later.id), w.PutHealth(skips, is_new=False)])
    part = loaded(bench.store).registered
    assert (part.alerts, part.health) == ((sending,), (skips,))

    commit(bench.store, [w.RemoveHealth(health.name)])
    assert loaded(bench.store).registered.health == ()


def test_alert_that_is_there_is_not_made_again(bench: Bench) -> None:
    alert = Alert(
        id="failed.r.oncall",
        event=AlertEvent.FAILED,
        target="oncall",
        pipeline=PipelineName("p"),
        raised_at=NOW,
    )
    loaded(bench.store)
    commit(bench.store, [w.CreateAlert(alert)])

    with pytest.raises(SlotTakenError):
        commit(bench.store, [w.CreateAlert(alert)])
    with pytest.raises(StaleStateError):
        commit(bench.store, [w.PutAlert(replace(alert, id="other"))])
