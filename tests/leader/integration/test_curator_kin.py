"""Cases of Flink, etcd and client-go that concern a queue for leadership. Docstrings name them.

Flink's election service and its retrieval have separate tests. Cases without a counterpart here are left out,
such as etcd's compaction, because ZooKeeper keeps no history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from leader import (
    ElectionConfig,
    ElectionConfigError,
    ElectionStateError,
    LeaderLockQueue,
    Participant,
    Phase,
    RecordError,
    SessionState,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    read_leader,
)
from leader.protocol.paths import ElectionPaths
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import Direction, FaultProxy, Op, Request
from tests.leader.integration.curator.latches import LONG, PATIENT, end_session
from tests.leader.integration.curator.participants import Participants

Eventually = Callable[..., None]


def _leader(participants: Participants) -> str | None:
    try:
        info = read_leader(participants.witness, participants.root)
    except RecordError:  # other content was written
        return None
    return None if info is None else info.participant.id


# --- Flink: DefaultLeaderElectionServiceTest ------------------------------------------------------


def test_leader_information_that_somebody_changes_is_left_alone_by_who_does_not_lead(
    participants: Participants, eventually: Eventually
) -> None:
    """testLeaderInformationChangedWithNoCorrespondingSessionIDBeingSetYet and kin"""
    (one,) = participants.queued(eventually, "a")
    one.queue.remove_from_leader_lock_queue()
    eventually(lambda: participants.ids() == [] and _leader(participants) is None)
    path = ElectionPaths(participants.root).leader
    client = participants.witness.client
    participants.witness.call(client.create_async, path, b"somebody else's")

    other = participants.candidate("b")
    other.guard = lambda: Verdict(False, ("not ready",))
    other.queue.add_to_leader_lock_queue()
    eventually(lambda: other.queue.status().phase is Phase.BACKING_OFF)

    assert participants.witness.call(client.get_async, path)[0] == b"somebody else's"
    other.guard = lambda: Verdict(True)
    other.queue.poke()
    eventually(lambda: _leader(participants) == "b", what="who leads takes it over")


def test_what_happens_after_closing_is_ignored(
    participants: Participants, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    """testOnGrantLeadershipIsIgnoredAfterBeingStopped, ...LeaderInformationChange..., ...Error..."""
    first, second = participants.queued(eventually, "a", "b")

    second.queue.close(LONG)
    first.queue.close(LONG)
    first.queue.poke()
    first.queue.abdicate("too late")
    first.queue.publish_readiness(True)
    first.queue.remove_from_leader_lock_queue()
    end_session(zookeeper.hosts, second.session)

    assert second.told == []
    assert first.told == [("elected", 1), ("revoked", 1)]
    assert first.queue.status().phase is second.queue.status().phase is Phase.CLOSED
    with pytest.raises(ElectionStateError):
        first.queue.add_to_leader_lock_queue()
    assert participants.ids() == []
    assert _leader(participants) is None


def test_an_old_confirmation_does_not_confirm_a_new_term(
    participants: Participants, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    """testOldConfirmLeaderInformationWhileHavingNewLeadership (FLINK-11524)"""
    one = participants.candidate("a")
    asked, release, ready = threading.Event(), threading.Event(), threading.Event()

    def guard() -> Verdict:
        if not asked.is_set():
            asked.set()
            release.wait(LONG.total_seconds())
            return Verdict(True)
        return Verdict(ready.is_set(), ("only the first answer was yes",))

    one.guard = guard
    try:
        one.queue.add_to_leader_lock_queue()
        assert asked.wait(LONG.total_seconds())
        one.queue.abdicate("the first term ends while its guard still thinks")
        eventually(lambda: one.queue.status().phase is not Phase.GUARDING or one.queue.status().epoch != 1)
    finally:
        release.set()
    eventually(lambda: one.queue.status().last_abdication == "only the first answer was yes")
    assert one.told == []

    ready.set()
    one.queue.poke()
    eventually(lambda: one.words == ["elected"])
    assert one.epochs[0] > 1


def test_an_electable_may_close_its_queue_when_it_is_told(
    participants: Participants, eventually: Eventually
) -> None:
    """testNestedDeadlockInLeadershipConfirmation and kin: five deadlocks of Flink's came from callbacks"""
    closed = threading.Event()
    first = participants.candidate("a", handover_timeout=timedelta(milliseconds=200))
    second = participants.candidate("b")

    def then(word: str) -> None:
        if word == "elected":
            first.queue.close(timedelta(hours=1))
            closed.set()

    first.then = then
    first.queue.add_to_leader_lock_queue()
    assert closed.wait(LONG.total_seconds()), "it waits for itself"
    second.queue.add_to_leader_lock_queue()

    eventually(lambda: second.words == ["elected"])
    eventually(lambda: first.words == ["elected", "revoked"])
    assert participants.ids() == ["b"]


def test_a_guard_may_close_its_queue(participants: Participants, eventually: Eventually) -> None:
    closed = threading.Event()
    one = participants.candidate("a")

    def guard() -> Verdict:
        one.queue.close(timedelta(hours=1))
        closed.set()
        return Verdict(True)

    one.guard = guard
    one.queue.add_to_leader_lock_queue()

    assert closed.wait(LONG.total_seconds()), "it waits for itself"
    eventually(lambda: participants.ids() == [])
    assert one.told == []


# --- etcd: concurrency/election_test.go -----------------------------------------------------------


def test_observers_see_each_of_the_leaders_in_turn(
    participants: Participants, eventually: Eventually
) -> None:
    """TestElectionWait, TestElectionObserveFreshResponsesOnProclaim"""
    made = participants.queued(eventually, "a", "b", "c")
    seen: list[tuple[str, int]] = []
    for one in made:
        eventually(lambda o=one: _leader(participants) == o.name)
        info = read_leader(participants.witness, participants.root)
        assert info is not None
        seen.append((info.participant.id, info.epoch))
        assert [other.queue.get_leader() for other in made] == [info] * 3
        one.queue.remove_from_leader_lock_queue()

    eventually(lambda: _leader(participants) is None)
    assert [name for name, _ in seen] == ["a", "b", "c"]
    epochs = [epoch for _, epoch in seen]
    assert epochs == sorted(set(epochs))


def test_the_next_leads_when_the_session_of_the_leader_is_closed(
    participants: Participants, eventually: Eventually
) -> None:
    """TestElectionFailover"""
    first, second = participants.queued(eventually, "a", "b")

    first.session.close(LONG)

    eventually(lambda: second.words == ["elected"] and _leader(participants) == "b")
    assert not first.leads


def test_one_session_may_campaign_again_and_again(participants: Participants, eventually: Eventually) -> None:
    """TestElectionSessionRecampaign, TestElectionResumeElection"""
    (one,) = participants.queued(eventually, "a")
    nodes = participants.nodes()

    one.queue.remove_from_leader_lock_queue()
    one.queue.add_to_leader_lock_queue()

    eventually(lambda: one.words == ["elected", "revoked", "elected"])
    assert participants.nodes() != nodes
    assert len(participants.nodes()) == 1


def test_two_queues_on_one_session_are_two_elections(
    participants: Participants, zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    """TestElectionOnPrefixOfExistingKey: one root is a prefix of the other"""
    with (
        Participants(zookeeper.hosts, f"{zk_root}/election") as one,
        Participants(zookeeper.hosts, f"{zk_root}/e") as two,
    ):
        first = one.candidate("a", participants.witness)
        second = two.candidate("b", participants.witness)
        first.queue.add_to_leader_lock_queue()
        second.queue.add_to_leader_lock_queue()
        eventually(lambda: first.words == second.words == ["elected"])
        assert (_leader(one), _leader(two)) == ("a", "b")


def test_strangers_in_the_queue_node_are_overlooked(
    participants: Participants, eventually: Eventually
) -> None:
    """TestElectionOnPrefixOfExistingKey, kazoo #309"""
    participants.make_queue()
    queue = ElectionPaths(participants.root).queue
    client = participants.witness.client
    for name in ("aaa", "latch", "-latch-", "x-latch-12a", "lock-0000000000"):
        participants.witness.call(client.create_async, f"{queue}/{name}")

    (one,) = participants.queued(eventually, "a")

    assert one.words == ["elected"]
    assert participants.ids() == ["a"]


def test_a_candidate_whose_session_restarts_campaigns_again_with_the_new_one(
    participants: Participants, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    """TestElectionOnSessionRestart; etcd #19597: neither a zombie candidate nor a phantom leader"""
    first, second = participants.queued(eventually, "a", "b")

    end_session(zookeeper.hosts, second.session)

    eventually(lambda: second.session.state is SessionState.CONNECTED and len(participants.ids()) == 2)
    first.queue.remove_from_leader_lock_queue()
    eventually(lambda: second.words == ["elected"])


# --- client-go: leaderelection_test.go ------------------------------------------------------------


def test_releasing_is_tried_again_until_it_is_done(
    proxy: FaultProxy, participants: Participants, eventually: Eventually
) -> None:
    """TestReleaseLease, release retried on conflict"""
    one = participants.candidate("a", participants.session(proxy.hosts))
    one.queue.add_to_leader_lock_queue()
    eventually(lambda: one.words == ["elected"])
    armed = threading.Event()  # set when all three traps are active, so that they count the same requests

    def concerns_the_latch(request: Request) -> bool:
        deletes = request.op in (Op.MULTI, Op.DELETE)
        return armed.is_set() and deletes and b"/leader-lock/" in request.payload

    traps = [proxy.cut_before(nth=nth, when=concerns_the_latch) for nth in (1, 2, 3)]
    armed.set()

    one.queue.close(LONG)

    assert all(trap.sprung for trap in traps)
    assert participants.ids() == []
    assert _leader(participants) is None


@pytest.mark.parametrize("verb", ["get", "update"])
def test_closing_while_a_request_is_under_way_releases(
    proxy: FaultProxy, participants: Participants, eventually: Eventually, verb: str
) -> None:
    """TestReleaseOnCancellation, during get and during update"""
    heir = participants.candidate("heir")
    participants.make_queue()
    one = participants.candidate("a", participants.session(proxy.hosts))
    asked = threading.Event()
    operations = (Op.GET_DATA, Op.EXISTS, Op.GET_CHILDREN2, Op.GET_CHILDREN) if verb == "get" else (Op.MULTI,)

    def under_way(request: object) -> bool:
        if getattr(request, "op", None) in operations:
            asked.set()
        return False

    proxy.cut_before(when=under_way)
    proxy.delay(timedelta(milliseconds=50), Direction.TO_CLIENT)
    one.queue.add_to_leader_lock_queue()
    assert asked.wait(LONG.total_seconds())

    one.queue.close(LONG)

    assert participants.ids() == []
    assert not one.leads
    assert one.words in ([], ["elected", "revoked"])
    heir.queue.add_to_leader_lock_queue()
    eventually(lambda: heir.words == ["elected"])


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"step_down_margin": timedelta(seconds=5)}, "half of the session timeout"),
        ({"step_down_margin": timedelta(0)}, "above 0"),
        ({"guard_timeout": timedelta(0)}, "above 0"),
        ({"retry_max": timedelta(0)}, "above 0"),
        ({"requeue_backoff_min": timedelta(seconds=9), "requeue_backoff_max": timedelta(seconds=8)}, "below"),
        ({"handover_timeout": timedelta(seconds=-1)}, "negative"),
        ({"root": "relative"}, "absolute"),
        ({"priority": 1}, "0 or less"),
        ({"forced_takeover_after": timedelta(seconds=1)}, "must not be below guard_timeout"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(
    zookeeper: ZooKeeperServer, settings: dict[str, object], complaint: str
) -> None:
    """TestLeaderElectionConfigValidation"""
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts, session_timeout=PATIENT))
    with pytest.raises(ElectionConfigError, match=complaint):
        LeaderLockQueue(
            session=session,
            config=ElectionConfig(**({"root": "/e"} | settings)),  # type: ignore[arg-type]
            participant=Participant("a"),
            guard=lambda: Verdict(True),
            electable=None,  # type: ignore[arg-type]
        )


def test_an_epoch_that_somebody_raised_meanwhile_is_read_again(
    participants: Participants, eventually: Eventually
) -> None:
    """TestFastPathLeaderElection: the fast path falls back"""
    first, second = participants.queued(eventually, "a", "b")
    eventually(lambda: second.queue.status().position == 1)
    epoch = ElectionPaths(participants.root).epoch
    data, stat = participants.witness.call(participants.witness.client.get_async, epoch)

    participants.witness.call(participants.witness.client.set_async, epoch, data, stat.version)

    eventually(lambda: first.words == ["elected", "revoked", "elected"], what="its fence has moved")
    assert first.epochs[1] > first.epochs[0]
    assert second.told == []
