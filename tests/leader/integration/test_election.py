"""The election on a real ZooKeeper: who leads, which calls are made, and what a deposed leader can do."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import NodeExistsError, NotEmptyError

from leader import (
    ElectionConfig,
    ElectionPaths,
    ElectionStateError,
    FencedOutError,
    FencingToken,
    LeaderLockQueue,
    Leadership,
    Participant,
    Phase,
    TransactionRefusedError,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    ZooKeeperUnavailableError,
    fenced_transaction,
    read_leader,
    read_participants,
)
from nimbus.localstack.zookeeper import ZooKeeperServer

SESSION = timedelta(seconds=4)
LONG = timedelta(seconds=60)
Eventually = Callable[..., None]


class Member:
    """One participant: its session, its queue, a guard that the test controls, and the calls that it got."""

    def __init__(self, hosts: str, root: str, name: str, session_timeout: timedelta = SESSION) -> None:
        self.held_up = threading.Event()
        self.held_up.set()
        self.told: list[tuple[str, int]] = []
        self.reasons: list[str] = []
        self.verdict = Verdict(True)
        self.guard: Callable[[], Verdict] = lambda: self.verdict
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=session_timeout))
        self.session.start(LONG)
        self.queue = LeaderLockQueue(
            session=self.session,
            config=ElectionConfig(
                root=root,
                guard_timeout=timedelta(seconds=1),
                requeue_backoff_min=timedelta(milliseconds=200),
                requeue_backoff_max=timedelta(seconds=60),
                step_down_margin=timedelta(milliseconds=400),
            ),
            participant=Participant(name, "127.0.0.1", 1, uuid.uuid4().hex),
            guard=self._answer,
            electable=self,
        )

    def _answer(self) -> Verdict:
        return self.guard()

    def elected(self, leadership: Leadership) -> None:
        self.held_up.wait(LONG.total_seconds())
        self.told.append(("elected", leadership.epoch))

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self.reasons.append(reason)
        self.told.append(("revoked", leadership.epoch))

    def stop(self) -> None:
        self.queue.close(LONG)
        self.session.close(LONG)


@pytest.fixture
def members(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[Callable[..., Member]]:
    """Makes members of one election, and ends them all."""
    made: list[Member] = []

    def make(name: str, session_timeout: timedelta = SESSION) -> Member:
        made.append(Member(zookeeper.hosts, zk_root, name, session_timeout))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def _queue_up(members: Callable[[str], Member], eventually: Eventually, *names: str) -> list[Member]:
    """Start members one after the other, so that they queue in this order."""
    joined: list[Member] = []
    for name in names:
        member = members(name)
        member.queue.add_to_leader_lock_queue()
        joined.append(member)
        eventually(lambda: len(joined[0].queue.get_all_participants()) == len(joined), what=f"{name} queues")
    return joined


def test_who_takes_its_time_to_be_told_goes_on_proving_that_it_leads(
    members: Callable[..., Member], eventually: Eventually
) -> None:
    session_timeout = SESSION / 2
    member = members("a", session_timeout)
    member.held_up.clear()
    member.queue.add_to_leader_lock_queue()
    eventually(member.queue.is_leader)

    threading.Event().wait(1.5 * session_timeout.total_seconds())

    assert member.queue.is_leader()
    proof_age = member.queue.status().proof_age
    assert proof_age is not None
    assert proof_age < session_timeout / 2
    assert member.told == []
    member.held_up.set()
    eventually(lambda: member.told == [("elected", 1)])


def test_an_observer_of_an_election_nobody_joined_sees_nothing_and_no_error(
    members: Callable[[str], Member], zk_root: str
) -> None:
    session = members("observer").session

    assert read_participants(session, zk_root) == []
    assert read_leader(session, zk_root) is None


def test_who_the_guard_refuses_leaves_and_returns_with_a_new_latch_and_leads_when_poked(
    members: Callable[[str], Member], eventually: Eventually
) -> None:
    member = members("a")
    member.verdict = Verdict(False, ("artifact 7 is missing",))
    latches: set[str] = set()

    def note_latch() -> Verdict:
        latches.add(member.queue.get_all_participants()[0].node)
        return member.verdict

    member.guard = note_latch
    member.queue.add_to_leader_lock_queue()

    eventually(lambda: len(latches) >= 2, what="it came back with another latch")
    eventually(lambda: member.queue.status().phase is Phase.BACKING_OFF)
    status = member.queue.status()
    assert status.last_abdication == "artifact 7 is missing"
    assert status.last_verdict == Verdict(False, ("artifact 7 is missing",))
    assert member.told == []
    assert member.queue.get_leader() is None

    member.verdict = Verdict(True)
    member.queue.poke()
    eventually(member.queue.is_leader, what="it leads when ready")
    eventually(lambda: [word for word, _ in member.told] == ["elected"], what="it is told")


def test_a_guard_that_raises_means_no(members: Callable[[str], Member], eventually: Eventually) -> None:
    member = members("a")

    def broken() -> Verdict:
        raise LookupError("no such pipeline")

    member.guard = broken
    member.queue.add_to_leader_lock_queue()

    eventually(lambda: "LookupError: no such pipeline" in (member.queue.status().last_abdication or ""))
    assert member.told == []
    assert not member.queue.is_leader()


def test_a_guard_that_hangs_means_no_and_hangs_nobody_else(
    members: Callable[[str], Member], eventually: Eventually
) -> None:
    hanging, other = members("hanging"), members("other")
    release = threading.Event()

    def hang() -> Verdict:
        release.wait(60)
        return Verdict(True)

    hanging.guard = hang
    try:
        hanging.queue.add_to_leader_lock_queue()
        eventually(lambda: hanging.queue.status().phase is Phase.GUARDING)
        other.queue.add_to_leader_lock_queue()

        eventually(other.queue.is_leader, what="the other leads meanwhile")
        assert hanging.told == []
    finally:
        release.set()


def test_a_leader_whose_session_is_closed_at_the_server_is_deposed_and_queues_again(
    members: Callable[[str], Member], eventually: Eventually, zookeeper: ZooKeeperServer
) -> None:
    first, second = _queue_up(members, eventually, "a", "b")
    eventually(first.queue.is_leader)
    old_session = first.session.session_id

    thief = KazooClient(hosts=zookeeper.hosts, client_id=first.session.client.client_id)
    thief.start(timeout=60)
    thief.stop()
    thief.close()

    eventually(second.queue.is_leader, what="the second leads")
    eventually(lambda: ("revoked", 1) in first.told)
    eventually(lambda: [v.participant.id for v in second.queue.get_all_participants()] == ["b", "a"])
    assert first.session.session_id != old_session
    eventually(lambda: [word for word, _ in second.told] == ["elected"], what="the second is told")
    assert not first.queue.is_leader()


def test_a_broken_connection_ends_leadership_and_the_same_latch_leads_again_in_a_new_epoch(
    members: Callable[[str], Member], eventually: Eventually
) -> None:
    member = _queue_up(members, eventually, "a")[0]
    eventually(member.queue.is_leader)
    node, session = member.queue.get_all_participants()[0].node, member.session.session_id

    member.session.reconnect()

    eventually(lambda: member.told == [("elected", 1), ("revoked", 1), ("elected", 2)])
    assert member.session.session_id == session
    assert member.queue.get_all_participants()[0].node == node


def test_a_leader_whose_latch_is_deleted_by_hand_is_deposed_and_queues_with_a_new_one(
    members: Callable[[str], Member], eventually: Eventually, operator: KazooClient, zk_root: str
) -> None:
    first, second = _queue_up(members, eventually, "a", "b")
    eventually(first.queue.is_leader)
    node = first.queue.get_all_participants()[0].node

    operator.delete(ElectionPaths(zk_root).latch(node))

    eventually(second.queue.is_leader)
    eventually(lambda: first.told == [("elected", 1), ("revoked", 1)])
    eventually(lambda: [v.participant.id for v in second.queue.get_all_participants()] == ["b", "a"])


def test_a_whole_election_deleted_by_hand_starts_again_but_not_below_an_epoch_it_has_seen(
    members: Callable[[str], Member], eventually: Eventually, operator: KazooClient, zk_root: str
) -> None:
    member = _queue_up(members, eventually, "a")[0]
    eventually(member.queue.is_leader)

    def deleted() -> bool:
        try:
            operator.delete(zk_root, recursive=True)
        except NotEmptyError:  # the participant returned before all was deleted
            return False
        return True

    eventually(deleted)

    eventually(lambda: ("revoked", 1) in member.told)
    eventually(lambda: "wiped" in (member.queue.status().last_abdication or ""), what="it says why")
    assert not member.queue.is_leader()
    assert member.told == [("elected", 1), ("revoked", 1)]


@pytest.mark.parametrize("vandalism", ["overwritten", "deleted", "replaced"])
def test_the_leader_corrects_its_leader_node(
    members: Callable[[str], Member],
    eventually: Eventually,
    operator: KazooClient,
    zk_root: str,
    vandalism: str,
) -> None:
    member = _queue_up(members, eventually, "a")[0]
    eventually(member.queue.is_leader)
    path = ElectionPaths(zk_root).leader
    eventually(lambda: operator.exists(path) is not None)  # it is written right after the grant
    _, before = operator.get(path)

    if vandalism == "overwritten":
        operator.set(path, b"mine now")
    else:
        operator.delete(path)
    if vandalism == "replaced":
        try:
            operator.create(path, b"mine now")
        except NodeExistsError:  # already corrected: replace it by force
            operator.set(path, b"mine now")

    def corrected() -> bool:
        stat = operator.exists(path)
        return stat is not None and stat.mzxid > before.mzxid and operator.get(path)[0] != b"mine now"

    eventually(corrected)
    info = member.queue.get_leader()
    assert info is not None
    assert (info.participant.id, info.epoch, info.session_id) == ("a", 1, member.session.session_id)
    eventually(lambda: member.told == [("elected", 1)])


def test_a_write_under_an_epoch_that_is_over_is_refused_and_changes_nothing(
    members: Callable[[str], Member], eventually: Eventually, operator: KazooClient, zk_root: str
) -> None:
    first, second = _queue_up(members, eventually, "a", "b")
    eventually(first.queue.is_leader)
    old = first.queue.leadership()
    assert old is not None
    path = f"{zk_root}/state"
    results = fenced_transaction(first.session, old.token, lambda t: t.create(path, b"first"))
    assert results == [path]

    first.queue.abdicate("test")
    eventually(second.queue.is_leader)

    with pytest.raises(FencedOutError, match="epoch 1") as refused:
        fenced_transaction(first.session, old.token, lambda t: t.set_data(path, b"zombie"))
    assert refused.value.epoch == 1
    assert operator.get(path)[0] == b"first"


def test_a_refused_transaction_names_the_operation_that_really_failed(
    members: Callable[[str], Member], eventually: Eventually, operator: KazooClient, zk_root: str
) -> None:
    member = _queue_up(members, eventually, "a")[0]
    eventually(member.queue.is_leader)
    leadership = member.queue.leadership()
    assert leadership is not None
    operator.create(f"{zk_root}/there", b"")

    def build(transaction: object) -> None:
        transaction.create(f"{zk_root}/new", b"")  # type: ignore[attr-defined]
        transaction.create(f"{zk_root}/there", b"")  # type: ignore[attr-defined]
        transaction.create(f"{zk_root}/after", b"")  # type: ignore[attr-defined]

    with pytest.raises(TransactionRefusedError) as refused:
        fenced_transaction(member.session, leadership.token, build)

    assert refused.value.index == 1
    assert refused.value.path == f"{zk_root}/there"
    assert isinstance(refused.value.cause, NodeExistsError)
    assert operator.exists(f"{zk_root}/new") is None


def test_a_proof_is_a_committed_write_and_wakes_no_watch(
    members: Callable[[str], Member], eventually: Eventually, operator: KazooClient, zk_root: str
) -> None:
    member = _queue_up(members, eventually, "a")[0]
    eventually(member.queue.is_leader)
    node = ElectionPaths(zk_root).latch(member.queue.get_all_participants()[0].node)
    fired = threading.Event()
    before = operator.create(f"{zk_root}/before", b"", include_data=True)[1].czxid
    operator.exists(node, watch=lambda _event: fired.set())
    at_start = member.session.client.last_zxid

    eventually(lambda: member.session.client.last_zxid > max(before, at_start), what="a proof was committed")
    after = operator.create(f"{zk_root}/after", b"", include_data=True)[1].czxid

    assert after > before + 1, "no transaction was committed between ours"
    assert not fired.is_set()


def test_a_queue_can_be_added_to_again_and_again_but_not_after_it_was_closed(
    members: Callable[[str], Member], eventually: Eventually
) -> None:
    member = members("a")
    member.queue.add_to_leader_lock_queue()
    member.queue.add_to_leader_lock_queue()
    eventually(member.queue.is_leader)
    assert len(member.queue.get_all_participants()) == 1

    member.queue.close(LONG)

    with pytest.raises(ElectionStateError, match="make a new LeaderLockQueue"):
        member.queue.add_to_leader_lock_queue()


def test_an_outage_ends_leadership_and_everybody_returns_by_themselves(
    own_zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    member = Member(own_zookeeper.hosts, "/outage", "a")
    try:
        member.queue.add_to_leader_lock_queue()
        eventually(member.queue.is_leader)

        own_zookeeper.kill()
        eventually(lambda: not member.queue.is_leader())
        eventually(lambda: ("revoked", 1) in member.told)
        with pytest.raises(ZooKeeperUnavailableError, match="was not sent"):
            member.session.call(member.session.client.exists_async, "/", timeout=timedelta(milliseconds=300))
        own_zookeeper.start()

        eventually(member.queue.is_leader, what="it leads again")
        # It is called after the step that grants leadership, shortly after `is_leader` became true.
        eventually(lambda: len(member.told) == 3, what="it is told")
        assert member.told == [("elected", 1), ("revoked", 1), ("elected", member.told[-1][1])]
        assert member.told[-1][1] > 1
    finally:
        member.stop()


def test_fence_holds_below_a_chroot_too(zookeeper: ZooKeeperServer, zk_root: str) -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts + zk_root, session_timeout=SESSION))
    session.start(LONG)
    try:
        for path in ("/epoch", "/latch"):
            session.call(session.client.create_async, path, b"")
        token = FencingToken("/epoch", 0, 1, "/latch")

        fenced_transaction(session, token, lambda t: t.create("/written", b"1"))

        assert session.call(session.client.get_async, "/written")[0] == b"1"

        def twice(transaction: TransactionRequest) -> None:
            transaction.create("/one", b"")
            transaction.create("/written", b"")

        with pytest.raises(TransactionRefusedError) as refused:
            fenced_transaction(session, token, twice)
        assert (refused.value.index, refused.value.path) == (1, f"{zk_root}/written")
        session.call(session.client.delete_async, "/latch")
        with pytest.raises(FencedOutError, match="/latch"):
            fenced_transaction(session, token, lambda t: t.create("/two", b""))
        assert session.call(session.client.exists_async, "/one") is None
        assert session.call(session.client.exists_async, "/two") is None
    finally:
        session.close(LONG)
