"""The AttemptBoard, on SQLite and on a real ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leader import FencingToken, ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.sqlite.calls import begin_term
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import StoreSession, calls_on
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.runs import encode_order
from nimbus.adapters.zookeeper.calls import ZooKeeperCalls
from nimbus.domain import writes as w
from nimbus.domain.attempts.orders import order_for
from nimbus.domain.attempts.slots import Claim, ClusterDriver, ConnectSession, End, Holder, Slots
from nimbus.domain.attempts.workers import Assignment, AssignmentKind
from nimbus.domain.ids import AttemptId, HostId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec, TriggerRule
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.localstack.zookeeper import ZooKeeperServer
from nimbus.ports import AttemptBoard, AttemptWithdrawnError, StoreUnavailableError
from nimbus.result import LARGEST_BYTES
from nimbus.worker.attempt.board_link import MAX_TOGETHER
from tests.nimbus.bench_board import BenchBoard
from tests.nimbus.leader_writes import commit
from tests.nimbus.loading import loaded

Eventually = Callable[..., None]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
ATTEMPT = AttemptId(RunId("r"), TaskName("t"), 1)
WORKER = WorkerId("w1")
CLAIM = Claim(
    attempt=str(ATTEMPT),
    worker=WORKER,
    host=HostId("h"),
    pid=7,
    start_ticks=9,
    claimed_at=NOW,
    session=ConnectSession(url="sc://localhost:1", session_id="s", server_session_id="t"),
)
END = End(
    attempt=str(ATTEMPT), outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=NOW, output="p/r/t/1"
)
FENCE = Claim(attempt=str(ATTEMPT), fenced_by_epoch=0, worker=WORKER, host=HostId("h"), claimed_at=NOW)
REFUSAL = replace(END, outcome=Outcome.REFUSED, written_by="worker", reason="no Java", output=None)
ORDER = Assignment(
    attempt=str(ATTEMPT),
    kind=AssignmentKind.RUN,
    epoch=1,
    pipeline=PipelineName("p"),
    release=ReleaseDigest("0" * 64),
    run=RunId("r"),
    task=TaskSpec(name=TaskName("t"), kind=TaskKind.PYTHON, script="t.py", timeout=timedelta(seconds=3)),
    logical_date=NOW,
    parameters={"month": 1, "name": "ü"},
    variables={"dwh": "jdbc:x"},
    inputs={"a": "p/r/a/1"},
)


@dataclass
class Bench:
    """A board, with the functions that a test needs to act as leader."""

    board: AttemptBoard
    other: AttemptBoard
    """The same board, from another process."""
    add: Callable[[AttemptId], None]
    remove: Callable[[AttemptId], None]
    assign: Callable[[Assignment], None]
    unassign: Callable[[AttemptId], None]
    create: Callable[[Run], object]
    request_stop: Callable[[AttemptId], None]


@pytest.fixture(params=["sqlite", "zookeeper"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "sqlite":
        yield from sqlite_bench(tmp_path)
    else:
        yield from zookeeper_bench(request)


@pytest.fixture
def zookeeper_board(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from zookeeper_bench(request)


def sqlite_bench(folder: Path) -> Iterator[Bench]:
    sessions = [SqliteSession(folder / "state.db") for _ in range(2)]
    for session in sessions:
        session.start()
    token = begin_term(sessions[0], FencingToken(path="/nimbus/epoch", version=0, epoch=1))
    yield _bench(sessions[0], sessions[1], "/nimbus", token)
    for session in sessions:
        session.close(timedelta(seconds=10))


def zookeeper_bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    root: str = request.getfixturevalue("zk_root")
    config = ZooKeeperConfig(hosts=request.getfixturevalue("zookeeper").hosts)
    sessions = [ZooKeeperSession(config), ZooKeeperSession(config)]
    for session in sessions:
        session.start(timedelta(seconds=30))
    leader = sessions[0]
    leader.call(leader.client.create_async, f"{root}/epoch", b"1", makepath=True)
    yield _bench(leader, sessions[1], root, FencingToken(path=f"{root}/epoch", version=0, epoch=1))
    for session in sessions:
        session.close(timedelta(seconds=10))


def _bench(leader: StoreSession, other: StoreSession, root: str, token: FencingToken) -> Bench:
    store = TreeLeaderStore(calls_on(leader), root, token)
    loaded(store)
    board = TreeAttemptBoard(calls_on(leader), root)
    board.assignments(WORKER)
    return Bench(
        board=board,
        other=TreeAttemptBoard(calls_on(other), root),
        add=lambda attempt: commit(store, [w.CreateAttempt(attempt)]),
        remove=lambda attempt: commit(store, [w.RemoveAttempt(attempt)]),
        assign=lambda order: commit(store, [w.Assign(WORKER, order)]),
        unassign=lambda attempt: commit(store, [w.Unassign(WORKER, attempt)]),
        create=lambda run: commit(store, [w.CreateRun(run)]),
        request_stop=lambda attempt: commit(store, [w.RequestStop(attempt, "test")]),
    )


def test_an_attempt_begins_with_empty_slots(bench: Bench) -> None:
    assert bench.board.read(ATTEMPT) == Slots(), "also before the attempt is added"
    bench.add(ATTEMPT)
    assert bench.board.read(ATTEMPT) == Slots()


def _nth(number: int) -> AttemptId:
    return AttemptId(RunId("r"), TaskName(f"t{number}"), 1)


def _claim_of(attempt: AttemptId, nonce: str) -> Claim:
    return replace(CLAIM, attempt=str(attempt), nonce=nonce, holder=Holder.POOLED, pid=None, start_ticks=None)


def test_several_slots_are_filled_together_and_claimed_attempts_beat(bench: Bench) -> None:
    attempts = [_nth(number) for number in range(3)]
    for attempt in attempts:
        bench.add(attempt)
    claims = [_claim_of(attempt, f"n{number}") for number, attempt in enumerate(attempts)]
    assert list(bench.board.fill(claims)) == claims
    assert all(found.has_heartbeat for found in bench.other.read_all(dict.fromkeys(attempts)).values())

    ends = [replace(END, attempt=claim.attempt, nonce=claim.nonce) for claim in claims]
    assert list(bench.board.fill([*ends[:2]])) == ends[:2]
    assert [bench.other.read(attempt).end for attempt in attempts] == [*ends[:2], None]


def test_as_many_ends_as_an_executor_fills_together_can_all_have_the_largest_result(bench: Bench) -> None:
    largest = {"x": "a" * (LARGEST_BYTES - 8)}
    attempts = [_nth(number) for number in range(MAX_TOGETHER)]
    for attempt in attempts:
        bench.add(attempt)
    claims = [_claim_of(attempt, f"n{number}") for number, attempt in enumerate(attempts)]
    bench.board.fill(claims)

    ends = [replace(END, attempt=claim.attempt, nonce=claim.nonce, result=largest) for claim in claims]
    assert list(bench.board.fill(ends)) == ends
    assert {bench.other.read(attempt).end.result["x"] for attempt in attempts} == {largest["x"]}  # type: ignore[union-attr, index]


def test_of_slots_that_are_filled_together_those_that_are_taken_or_gone_hinder_no_other(bench: Bench) -> None:
    attempts = [_nth(number) for number in range(4)]
    for attempt in attempts[:3]:
        bench.add(attempt)
    theirs = _claim_of(attempts[0], "theirs")
    bench.other.claim(theirs)
    ours = [_claim_of(attempt, f"n{number}") for number, attempt in enumerate(attempts)]
    stale = replace(END, attempt=str(attempts[2]), nonce="of an earlier run")

    found = bench.board.fill([ours[0], ours[1], stale, ours[3]])

    assert list(found) == [theirs, ours[1], None, None]
    assert bench.other.read(attempts[1]).has_heartbeat
    assert bench.other.read(attempts[2]).end is None


def test_filling_slots_again_after_a_lost_reply_finds_them_ours(bench: Bench) -> None:
    bench.add(ATTEMPT)
    claim = _claim_of(ATTEMPT, "n")
    end = replace(END, nonce="n")
    for _ in range(2):
        assert list(bench.board.fill([claim])) == [claim]
    for _ in range(2):
        assert list(bench.board.fill([end])) == [end]
    assert bench.other.read(ATTEMPT).has_heartbeat


def test_a_cluster_is_told_from_another_and_is_the_same_for_all_who_see_it(
    request: pytest.FixtureRequest,
) -> None:
    root: str = request.getfixturevalue("zk_root")
    hosts: str = request.getfixturevalue("zookeeper").hosts
    session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
    session.start(timedelta(seconds=30))
    try:
        one, two = (
            TreeAttemptBoard(calls_on(session), f"{root}/one"),
            TreeAttemptBoard(calls_on(session), f"{root}/two"),
        )
        first = one.cluster()  # creates the nodes that it watches
        below = ZooKeeperSession(ZooKeeperConfig(hosts=f"{hosts}{root}"))
        below.start(timedelta(seconds=30))
        try:
            assert TreeAttemptBoard(calls_on(below), "/one").cluster() == first == one.cluster()
        finally:
            below.close(timedelta(seconds=10))
        assert two.cluster() != first
    finally:
        session.close(timedelta(seconds=10))


def test_the_first_claim_stands_and_everybody_learns_it(bench: Bench) -> None:
    bench.add(ATTEMPT)
    late = replace(CLAIM, pid=8)

    assert bench.board.claim(CLAIM) == CLAIM
    assert bench.board.claim(CLAIM) == CLAIM, "asking twice, as after a lost answer"
    assert bench.other.claim(late) == CLAIM
    assert bench.other.read(ATTEMPT).claim == CLAIM


def test_the_first_end_stands_and_everybody_learns_it(bench: Bench) -> None:
    bench.add(ATTEMPT)
    late = replace(END, outcome=Outcome.LOST, written_by="worker", output=None)

    assert bench.board.end(END) == END
    assert bench.other.end(late) == END
    assert bench.other.read(ATTEMPT).end == END


def test_an_end_is_accepted_only_where_its_claim_stands(bench: Bench) -> None:
    """An attempt id may be used twice, with its run id. The first run's driver must not end the second."""
    late, new = replace(END, nonce="first"), replace(END, nonce="second")
    bench.add(ATTEMPT)
    bench.board.claim(replace(CLAIM, nonce="first"))
    bench.remove(ATTEMPT)
    bench.add(ATTEMPT)

    with pytest.raises(AttemptWithdrawnError):
        bench.board.end(late)
    bench.board.claim(replace(CLAIM, nonce="second"))
    with pytest.raises(AttemptWithdrawnError):
        bench.board.end(late)
    assert bench.other.read(ATTEMPT).end is None
    assert bench.board.end(new) == new
    assert bench.board.end(new) == new, "asking twice, as after a lost answer"


def test_an_end_that_names_a_refusal_is_accepted_where_that_stands(bench: Bench) -> None:
    fence, refusal = replace(FENCE, nonce="first"), replace(REFUSAL, nonce="first")
    bench.add(ATTEMPT)
    bench.board.refuse(fence, refusal)

    assert bench.board.end(refusal) == refusal
    bench.remove(ATTEMPT)
    bench.add(ATTEMPT)
    with pytest.raises(AttemptWithdrawnError):
        bench.board.end(refusal)


def test_a_refusal_fills_both_slots_once(bench: Bench) -> None:
    bench.add(ATTEMPT)

    assert bench.board.refuse(FENCE, REFUSAL) == FENCE
    assert bench.board.refuse(FENCE, REFUSAL) == FENCE, "asking twice, as after a lost answer"
    slots = bench.other.read(ATTEMPT)
    assert (slots.claim, slots.end) == (FENCE, REFUSAL)
    assert bench.other.claim(CLAIM) == FENCE


def test_a_refusal_of_what_is_claimed_writes_nothing(bench: Bench) -> None:
    bench.add(ATTEMPT)
    bench.board.claim(CLAIM)

    assert bench.other.refuse(FENCE, REFUSAL) == CLAIM
    assert bench.board.read(ATTEMPT).end is None


def test_a_refusal_of_what_is_ended_unclaimed_writes_nothing(bench: Bench) -> None:
    bench.add(ATTEMPT)
    bench.board.end(END)

    with pytest.raises(AttemptWithdrawnError):
        bench.other.refuse(FENCE, REFUSAL)
    assert bench.board.read(ATTEMPT).claim is None


def test_of_many_that_claim_at_once_one_wins(bench: Bench) -> None:
    bench.add(ATTEMPT)
    claims = [replace(CLAIM, pid=pid) for pid in range(1, 9)]
    answers: list[Claim] = []
    ready = threading.Barrier(len(claims))

    def claim(ours: Claim) -> None:
        ready.wait(60)
        answers.append((bench.board if ours.pid in (1, 3, 5, 7) else bench.other).claim(ours))

    threads = [threading.Thread(target=claim, args=(ours,)) for ours in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(answers) == len(claims)
    assert set(map(repr, answers)) == {repr(bench.board.read(ATTEMPT).claim)}


def test_an_attempt_that_is_not_known_cannot_be_claimed_ended_or_beaten_for(bench: Bench) -> None:
    bench.add(ATTEMPT)
    bench.board.claim(CLAIM)
    bench.remove(ATTEMPT)

    with pytest.raises(AttemptWithdrawnError):
        bench.board.claim(CLAIM)
    with pytest.raises(AttemptWithdrawnError):
        bench.board.refuse(FENCE, REFUSAL)
    with pytest.raises(AttemptWithdrawnError):
        bench.board.end(END)
    with pytest.raises(AttemptWithdrawnError):
        bench.board.heartbeat(ATTEMPT, {})
    assert bench.board.read(ATTEMPT) == Slots()


def test_a_beat_is_a_sign_of_life_that_carries_progress(bench: Bench) -> None:
    bench.add(ATTEMPT)
    assert not bench.other.read(ATTEMPT).has_heartbeat
    bench.board.heartbeat(ATTEMPT, {"stage": "1/7"})
    bench.board.heartbeat(ATTEMPT, {"stage": "2/7", "rows": 5})

    seen = bench.other.read(ATTEMPT)
    assert seen.has_heartbeat
    assert seen.progress == {"stage": "2/7", "rows": 5}


def test_a_beat_from_elsewhere_takes_over(bench: Bench) -> None:
    """For example the same runner with a new session, before its old session has expired."""
    bench.add(ATTEMPT)
    bench.board.heartbeat(ATTEMPT, {"n": 1})
    bench.other.heartbeat(ATTEMPT, {"n": 2})

    assert bench.board.read(ATTEMPT).progress == {"n": 2}


def test_a_request_to_stop_is_seen(bench: Bench) -> None:
    bench.add(ATTEMPT)
    bench.request_stop(ATTEMPT)

    assert bench.board.read(ATTEMPT).stop_requested


@pytest.mark.parametrize("change", ["claim", "end", "beat", "stop", "remove"])
def test_each_change_of_an_attempt_wakes_who_read_it(
    bench: Bench, eventually: Eventually, change: str
) -> None:
    bench.add(ATTEMPT)
    woken: list[str] = []
    bench.board.read(ATTEMPT, lambda: woken.append("woken"))
    match change:
        case "claim":
            bench.other.claim(CLAIM)
        case "end":
            bench.other.end(END)
        case "beat":
            bench.other.heartbeat(ATTEMPT, {})
        case "stop":
            bench.request_stop(ATTEMPT)
        case _:
            bench.remove(ATTEMPT)

    eventually(lambda: woken)


def test_orders_are_read_as_they_were_given_and_can_be_taken_back(
    bench: Bench, eventually: Eventually
) -> None:
    assert bench.board.assignments(WorkerId("nobody")) == ()
    woken: list[str] = []
    assert bench.board.assignments(WORKER, lambda: woken.append("one")) == ()
    bench.assign(ORDER)
    eventually(lambda: woken)
    assert bench.board.assignments(WORKER) == (ORDER,)

    bench.board.assignments(WORKER, lambda: woken.append("two"))
    bench.unassign(ATTEMPT)
    eventually(lambda: "two" in woken)
    assert bench.board.assignments(WORKER) == ()


def test_an_order_of_a_task_with_many_needs_is_small_and_read_as_it_was_given(bench: Bench) -> None:
    done = Attempt(number=1, worker=WORKER, opened_at=NOW, opened_by_epoch=1, outcome=Outcome.SUCCEEDED)
    names = [TaskName(f"task_{number}") for number in range(1000)]
    join = TaskSpec(
        name=TaskName("join"),
        kind=TaskKind.PYTHON,
        script="t.py",
        needs=tuple(names),
        requirements={names[0]: TriggerRule.DONE},
    )
    run = Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks=Tasks(
            [
                *(
                    TaskRun(
                        spec=TaskSpec(name=name, kind=TaskKind.PYTHON, script="t.py"),
                        state=TaskState.SUCCEEDED,
                        attempts=(replace(done, output=f"p/r/{name}/1"),),
                    )
                    for name in names
                ),
                TaskRun(spec=join, attempts=(replace(done, outcome=None),)),
            ]
        ),
    )
    order = order_for(run, AttemptId(run.id, join.name, 1), epoch=1, kind=AssignmentKind.RUN)
    bench.create(run)
    bench.assign(order)

    assert bench.board.assignments(WORKER) == bench.other.assignments(WORKER) == (order,)
    assert len(order.inputs) == 1000
    assert len(encode_order(order)) < 2000


def test_board_of_the_worker_bench_that_is_cut_off_is_unavailable_until_it_is_back(tmp_path: Path) -> None:
    board = BenchBoard(tmp_path / "board.db")
    board.add_attempt(str(ATTEMPT))
    board.cut_off(down=True)
    for call in (
        SqliteSession(tmp_path / "board.db").start,
        lambda: board.claim(CLAIM),
        lambda: board.refuse(FENCE, REFUSAL),
        lambda: board.end(END),
        lambda: board.heartbeat(ATTEMPT, {}),
        lambda: board.read(ATTEMPT),
        lambda: board.assignments(WORKER),
    ):
        with pytest.raises(StoreUnavailableError):
            call()
    board.cut_off(down=False)
    assert board.claim(CLAIM) == CLAIM
    board.close()


def test_report_is_written_into_the_beat_of_another_and_makes_none(bench: Bench) -> None:
    bench.add(ATTEMPT)
    bench.other.report(ATTEMPT, {"number": 1})
    assert not bench.board.read(ATTEMPT).has_heartbeat

    bench.board.heartbeat(ATTEMPT, {})
    bench.other.report(ATTEMPT, {"number": 2})

    slots = bench.board.read(ATTEMPT)
    assert slots.has_heartbeat
    assert slots.progress == {"number": 2}


def test_submitted_attempt_names_its_driver_and_may_beat_before_it_is_claimed(bench: Bench) -> None:
    driver = ClusterDriver(target="big", id="spark-1/ä:2")
    with pytest.raises(AttemptWithdrawnError):
        bench.board.note_submitted(ATTEMPT, driver)
    bench.add(ATTEMPT)

    since = bench.board.note_submitted(ATTEMPT, driver)
    assert abs(datetime.now(UTC) - since) < timedelta(minutes=1)
    assert bench.other.note_submitted(ATTEMPT, driver) == since
    assert bench.other.read(ATTEMPT) == Slots(submitted=driver)
    bench.board.heartbeat(ATTEMPT, {})

    assert bench.other.read(ATTEMPT) == Slots(submitted=driver, has_heartbeat=True)
    bench.remove(ATTEMPT)


def test_attempt_key_is_the_same_for_all_and_long(bench: Bench) -> None:
    key = bench.board.attempt_key()

    assert len(key) == 32
    assert bench.other.attempt_key() == key == bench.board.attempt_key()


# Faults that only ZooKeeper has.


def test_a_refusal_is_one_transaction(
    zookeeper_board: Bench, zk_root: str, zookeeper: ZooKeeperServer
) -> None:
    zookeeper_board.add(ATTEMPT)
    zookeeper_board.board.refuse(FENCE, REFUSAL)
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    session.start(timedelta(seconds=30))
    calls, paths = ZooKeeperCalls(session), Paths(zk_root)

    made_by = {calls.stat(path).origin for path in (paths.claim(ATTEMPT), paths.end(ATTEMPT))}

    session.close(timedelta(seconds=10))
    assert len(made_by) == 1


def test_an_order_that_cannot_be_read_hides_no_other(
    zookeeper_board: Bench, zk_root: str, zookeeper: ZooKeeperServer
) -> None:
    zookeeper_board.assign(ORDER)
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    session.start(timedelta(seconds=30))
    session.call(session.client.create_async, f"{Paths(zk_root).orders(WORKER)}/r.broken.1", b"{broken")
    session.close(timedelta(seconds=10))

    assert zookeeper_board.board.assignments(WORKER) == (ORDER,)


def test_a_huge_progress_document_is_dropped_and_the_beat_goes_on(zookeeper_board: Bench) -> None:
    """The document comes from user code. Without a limit, the runner would lose its connection."""
    zookeeper_board.add(ATTEMPT)
    zookeeper_board.board.heartbeat(ATTEMPT, {"rows": "x" * 2_000_000})

    seen = zookeeper_board.other.read(ATTEMPT)
    assert seen.has_heartbeat
    assert seen.progress == {}
