"""Curator's TestLeaderSelector and related tests, for lock queue and latch. Docstrings name the cases.

An interruption of a selector is an abdication here; taking leadership is `Electable.elected`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl

from leader import Phase, Verdict
from leader.core.latch.machine import SuspendedPolicy
from leader.core.latch.model import Node
from leader.core.latch.steps import PlainClaimant
from leader.core.participant.claim import EpochClaimant
from leader.core.participant.eligibility import DeclineTracker, Eligibility
from leader.errors import LeaderError
from leader.protocol.participant import MemberNode, Participant, Rank
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import NotPermittedError, TransactionFailedError
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy
from tests.leader.integration.curator.latches import LONG, Heard, Latches, end_session
from tests.leader.integration.curator.participants import Candidate, Participants

Eventually = Callable[..., None]


def test_an_interrupted_leader_releases_the_lock_and_queues_again(
    participants: Participants, eventually: Eventually
) -> None:
    """TestLeaderSelector.testInterruption, testInterruptLeadership"""
    first, second = participants.queued(eventually, "a", "b")
    old = participants.nodes()[0]

    first.queue.abdicate("interrupted")

    eventually(lambda: second.told == [("elected", 2)])
    eventually(lambda: first.told == [("elected", 1), ("revoked", 1)])
    eventually(lambda: participants.ids() == ["b", "a"])
    assert first.reasons == ["interrupted"]
    assert old not in participants.nodes()


def test_a_leader_interrupted_twice_in_a_row_still_queues_again(
    participants: Participants, eventually: Eventually
) -> None:
    """TestLeaderSelector.testInterruptLeadershipWithRequeue (CURATOR-518)"""
    (leader,) = participants.queued(eventually, "a")

    for number in range(2):
        leader.queue.abdicate(f"interruption {number}")
        leader.queue.abdicate("and once more while it leaves")
        eventually(lambda n=number: len(leader.epochs) == n + 2, what="it leads again")

    assert leader.words == ["elected", "revoked", "elected", "revoked", "elected"]
    assert leader.epochs == sorted(set(leader.epochs))


def test_a_leader_that_gives_up_each_term_at_once_leads_again_and_again(
    participants: Participants, eventually: Eventually
) -> None:
    """TestLeaderSelector.testAutoRequeue"""
    one = participants.candidate("a")
    one.then = lambda word: one.queue.abdicate("done") if word == "elected" else None
    one.queue.add_to_leader_lock_queue()

    eventually(lambda: len(one.epochs) >= 4, what="it has led four times")
    assert one.epochs == sorted(set(one.epochs))


def test_a_loss_between_winning_and_taking_the_lead_is_never_followed_by_taking_it(
    participants: Participants, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    """TestLeaderSelector.testRaceAtStateChanged"""
    asked, release = threading.Event(), threading.Event()
    one = participants.candidate("a")

    def guard() -> Verdict:
        first = not asked.is_set()
        asked.set()
        release.wait(LONG.total_seconds())
        return Verdict(first, () if first else ("only the first answer is yes",))

    one.guard = guard
    try:
        one.queue.add_to_leader_lock_queue()
        assert asked.wait(LONG.total_seconds())
        old = one.session.session_id

        end_session(zookeeper.hosts, one.session)
        eventually(lambda: one.session.session_id not in (None, old), what="it has a new session")
        eventually(lambda: one.queue.status().phase is not Phase.GUARDING or one.queue.status().epoch != 1)
    finally:
        release.set()  # the guard agrees, but for an epoch that is over

    eventually(lambda: one.queue.status().last_verdict == Verdict(False, ("only the first answer is yes",)))
    assert one.told == []


@pytest.mark.parametrize("verb", ["close", "remove"])
def test_a_leader_that_leaves_while_the_server_is_down_leaves_no_node(
    far_participants: Participants, proxy: FaultProxy, eventually: Eventually, verb: str
) -> None:
    """TestLeaderSelector.testLeaderNodeDeleteOnInterrupt"""
    first, second = far_participants.queued(eventually, "a", "b")
    proxy.take_down()
    eventually(lambda: first.words == ["elected", "revoked"])

    closing = threading.Thread(target=first.queue.close, args=(timedelta(minutes=1),))
    if verb == "close":
        closing.start()
    else:
        first.queue.remove_from_leader_lock_queue()
    proxy.heal()

    eventually(lambda: second.leads, what="the second leads")
    eventually(lambda: far_participants.ids() == ["b"])
    if verb == "close":
        closing.join(LONG.total_seconds())
        assert not closing.is_alive()
    assert first.words == ["elected", "revoked"]


def test_closing_is_bounded_when_the_server_dies_and_the_electable_does_not_return(
    far_participants: Participants, proxy: FaultProxy, eventually: Eventually
) -> None:
    """TestLeaderSelector.testServerDying"""
    release = threading.Event()
    one = far_participants.candidate("a")
    one.then = lambda word: release.wait(LONG.total_seconds()) and None if word == "elected" else None
    one.queue.add_to_leader_lock_queue()
    eventually(lambda: one.leads and one.words == ["elected"])

    proxy.take_down()
    eventually(lambda: not one.leads)
    one.queue.close(timedelta(milliseconds=300))

    assert one.words == ["elected"]
    assert not one.leads
    release.set()
    eventually(lambda: one.words == ["elected", "revoked"], what="it is told when it listens again")


def test_when_a_leaders_session_is_killed_and_it_closes_the_next_leads(
    participants: Participants, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    """TestLeaderSelector.testKillSessionThenCloseShouldElectNewLeader"""
    first, second = participants.queued(eventually, "a", "b")

    end_session(zookeeper.hosts, first.session)
    first.queue.close(LONG)

    eventually(lambda: second.words == ["elected"])
    eventually(lambda: participants.ids() == ["b"])
    assert first.told == [("elected", 1), ("revoked", 1)]


def test_when_the_server_is_killed_and_the_leader_closes_the_next_leads(
    far_participants: Participants, proxy: FaultProxy, eventually: Eventually
) -> None:
    """TestLeaderSelector.testKillServerThenCloseShouldElectNewLeader"""
    first, second = far_participants.queued(eventually, "a", "b")

    proxy.take_down()
    eventually(lambda: first.words == ["elected", "revoked"])
    proxy.heal()
    first.queue.close(LONG)

    eventually(lambda: second.leads)
    eventually(lambda: far_participants.ids() == ["b"])
    assert far_participants.leaders() == [second]


def test_a_leader_that_closes_while_it_still_takes_the_lead_makes_room(
    participants: Participants, eventually: Eventually
) -> None:
    """TestLeaderSelector.testClosing"""
    release = threading.Event()
    first = participants.candidate("a", handover_timeout=timedelta(milliseconds=100))
    first.then = lambda word: release.wait(LONG.total_seconds()) and None if word == "elected" else None
    second = participants.candidate("b")
    try:
        first.queue.add_to_leader_lock_queue()
        eventually(lambda: first.words == ["elected"])
        second.queue.add_to_leader_lock_queue()
        eventually(lambda: participants.ids() == ["a", "b"])

        first.queue.close(timedelta(seconds=1))
        eventually(lambda: second.leads, what="the second leads")
        assert not first.leads
    finally:
        release.set()
    eventually(lambda: first.words == ["elected", "revoked"])


def test_five_participants_lead_in_turn_three_rounds_long(
    participants: Participants, eventually: Eventually
) -> None:
    """TestLeaderSelector.testRotatingLeadership"""
    turns: list[str] = []
    names = [f"id{number}" for number in range(5)]

    def is_last(name: str) -> bool:
        queue = participants.ids()
        return len(queue) == len(made) and queue[-1] == name

    made: list[Candidate] = []
    for name in names:
        made.append(participants.candidate(name))
        made[-1].then = lambda word, name=name: turns.append(name) if word == "elected" else None
        made[-1].queue.add_to_leader_lock_queue()
        eventually(lambda name=name: is_last(name))

    for turn, one in enumerate(made * 3):
        eventually(lambda turn=turn: len(turns) == turn + 1, what=f"turn {turn}")
        one.queue.remove_from_leader_lock_queue()
        one.queue.add_to_leader_lock_queue()
        eventually(lambda one=one: is_last(one.name), what=f"{one.name} waits again")

    eventually(lambda: len(turns) == 16)
    assert turns == [*names * 3, names[0]]
    epochs = [epoch for one in made for epoch in one.epochs]
    assert len(epochs) == len(set(epochs))


def test_the_id_of_a_participant_is_what_it_was_given(latches: Latches, eventually: Eventually) -> None:
    """TestLeaderSelectorParticipants.testId"""
    member = latches.started("A is A")
    eventually(lambda: member.leads)

    view = member.latch.get_leader()

    assert view is not None
    assert (view.participant.id, member.latch.id) == ("A is A", "A is A")


def test_ten_participants_all_see_the_same_queue_with_one_leader(
    participants: Participants, eventually: Eventually
) -> None:
    """TestLeaderSelectorParticipants.testBasic"""
    names = [f"id{number}" for number in range(10)]
    made = [participants.candidate(name, participants.witness) for name in names]
    for number, one in enumerate(made):
        one.queue.add_to_leader_lock_queue()
        eventually(lambda n=number: len(participants.ids()) == n + 1)
    eventually(lambda: made[0].queue.get_leader() is not None)

    views = [one.queue.get_all_participants() for one in made]

    assert all(view == views[0] for view in views)
    assert [view.participant.id for view in views[0]] == names
    assert [view.is_leader for view in views[0]] == [True] + [False] * 9
    assert {str(one.queue.get_leader()) for one in made} == {str(made[0].queue.get_leader())}
    assert participants.leaders() == [made[0]]


def test_listeners_run_on_an_outer_executor_in_order(latches: Latches, eventually: Eventually) -> None:
    """TestLeaderSelectorWithExecutor.test"""
    threads: list[str] = []
    with ThreadPoolExecutor(4, thread_name_prefix="outer") as executor:
        member = latches.latch("a", executor=executor)
        member.heard.then = lambda _word: threads.append(threading.current_thread().name)
        member.latch.start()
        for number in range(1, 4):
            eventually(lambda n=number: member.words.count("is") == n)
            latches.delete(member.latch.own_node)
        eventually(lambda: member.words == ["is", "not"] * 3 + ["is"])
    assert threads
    assert all(name.startswith("outer") for name in threads)

    latches.delete(member.latch.own_node)  # without listeners; the latch continues
    eventually(lambda: member.leads)


def test_a_listener_that_was_removed_or_raises_troubles_no_other(
    latches: Latches, eventually: Eventually
) -> None:
    """Curator has no such case."""
    member = latches.latch("a")
    removed, good = Heard(), Heard()

    def raises(_word: str) -> None:
        raise LookupError("no listener of ours")

    member.heard.then = raises
    member.latch.add_listener(removed)
    member.latch.add_listener(good)
    member.latch.remove_listener(removed)
    member.latch.start()

    eventually(lambda: good.words == ["is"])
    latches.delete(member.latch.own_node)
    eventually(lambda: good.words == ["is", "not", "is"] and member.words == good.words)
    assert removed.words == []


@pytest.fixture
def owner(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper.hosts, auth_data=[("digest", "owner:secret")])
    client.start(timeout=60)
    yield client
    client.stop()
    client.close()


def _close_to_others(owner: KazooClient, path: str) -> None:
    owner.ensure_path(path)
    owner.set_acls(path, [make_acl("auth", "", all=True)])


def _open_to_all(owner: KazooClient, path: str) -> None:
    with suppress(NoNodeError):  # it was created again in the meantime
        owner.set_acls(path, [make_acl("world", "anyone", all=True)])


def test_a_latch_that_may_not_queue_says_so_and_queues_when_it_may(
    latches: Latches, owner: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    """TestLeaderAcls.testAclErrorWithLeader (CURATOR-365)"""
    _close_to_others(owner, zk_root)

    member = latches.started("a")

    eventually(lambda: "access list" in (member.latch.trouble or ""), what="it says what is wrong")
    assert not member.leads
    with pytest.raises(LeaderError, match="access list"):
        _close_to_others(owner, latches.path)
        member.latch.get_participants()
    for path in (latches.path, zk_root):
        _open_to_all(owner, path)
    eventually(lambda: member.leads, what="it leads once it may")
    assert member.latch.trouble is None


def test_an_election_that_may_not_be_held_says_so_and_is_held_when_it_may(
    participants: Participants, owner: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    """TestLeaderAcls.testAclErrorWithLeader, for the lock queue"""
    _close_to_others(owner, zk_root)
    one = participants.candidate("a")

    one.queue.add_to_leader_lock_queue()

    eventually(lambda: "access list" in (one.queue.status().trouble or ""))
    assert "access list" in one.queue.status().why()
    _open_to_all(owner, zk_root)
    eventually(lambda: one.leads)


@pytest.mark.parametrize("node", ["own latch", "queue"])
def test_a_latch_whose_access_list_is_changed_under_it_stops_leading_and_can_be_closed(
    latches: Latches, owner: KazooClient, eventually: Eventually, node: str
) -> None:
    """Missing everywhere: access list removed while leading"""
    member = latches.started("a")
    eventually(lambda: member.words == ["is"])
    path = f"{latches.path}/{member.latch.own_node}" if node == "own latch" else latches.path

    _close_to_others(owner, path)
    latches.shared.reconnect()  # it checks at once

    eventually(lambda: member.words == ["is", "not"])
    eventually(lambda: "access list" in (member.latch.trouble or ""))
    _open_to_all(owner, path)
    eventually(lambda: member.leads)


@pytest.mark.parametrize("node", ["latch", "queue", "epoch", "leader"])
def test_an_election_whose_access_list_is_changed_under_it_ends_leadership_or_bears_it_and_heals(
    participants: Participants, owner: KazooClient, zk_root: str, eventually: Eventually, node: str
) -> None:
    """Missing everywhere: access list removed while leading, in the lock queue"""
    paths = ElectionPaths(zk_root)
    (one,) = participants.queued(eventually, "a")
    path = {
        "latch": paths.latch(participants.nodes()[0]),
        "queue": paths.queue,
        "epoch": paths.epoch,
        "leader": paths.leader,
    }[node]

    _close_to_others(owner, path)
    one.session.reconnect()

    eventually(lambda: one.words[:2] == ["elected", "revoked"])
    eventually(lambda: "access list" in (one.queue.status().trouble or "") or one.leads)
    _open_to_all(owner, path)
    eventually(lambda: one.leads, what="it leads again")
    assert one.epochs == sorted(set(one.epochs))


def test_a_refusal_by_an_access_list_does_not_count_as_a_latch_that_is_gone() -> None:
    """On older servers we can see a node that we may not check. It must not count as deleted."""
    refused = TransactionFailedError(0, NotPermittedError("/q/mine"))
    node = Node("mine", 7)
    paths, me = ElectionPaths("/e"), Participant("a")
    declines = DeclineTracker(paths, me, None, lambda: timedelta(0))
    eligibility = Eligibility(paths, lambda: MemberNode(me, 7, Rank()), declines)
    claimant = EpochClaimant(paths, me, eligibility, newest_schema=1, hanging=lambda: None)
    for steps in (PlainClaimant("/q").claim(node), PlainClaimant("/q").prove(node), claimant.prove(node)):
        next(steps)
        with pytest.raises(NotPermittedError):
            steps.throw(refused)


def test_under_the_session_policy_ten_latches_outlive_a_broken_connection_without_a_word(
    latches: Latches, eventually: Eventually
) -> None:
    """TestLeaderSelector.testErrorPolicies, session"""
    made = latches.queued(10, eventually, policy=SuspendedPolicy.SESSION)
    eventually(lambda: made[0].words == ["is"])
    before: Any = latches.nodes()

    for _ in range(2):
        generation = latches.shared.generation
        latches.shared.reconnect()
        eventually(lambda g=generation: latches.shared.is_connected and latches.shared.generation > g)
        assert latches.leaders() == [made[0]]

    assert latches.nodes() == before
    assert [member.words for member in made] == [["is"]] + [[]] * 9
