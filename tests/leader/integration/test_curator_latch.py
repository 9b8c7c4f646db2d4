"""Curator's TestLeaderLatch, case by case, against a real ZooKeeper. Each docstring names the case.

Some cases run with one latch in Curator (`basic`) and with ten here. Where Curator provokes races with
latches that wait at a breakpoint, these tests send the requests one by one (`HandDriven`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest

from leader.clock import boottime
from leader.core.latch import model as m
from leader.core.latch.machine import SuspendedPolicy
from leader.errors import ElectionConfigError
from leader.latch import CloseMode, LatchConfig, LatchState
from leader.protocol.requests import Create, Exists
from leader.zookeeper.session import SessionState
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import Direction, FaultProxy
from tests.leader.integration.curator.hand_driven import HandDriven
from tests.leader.integration.curator.latches import LONG, PATIENT, Latches, Member, end_session

Eventually = Callable[..., None]
TEN = 10


def _one_leads(latches: Latches, eventually: Eventually) -> Member:
    eventually(lambda: len(latches.leaders()) == 1, what="one leads")
    return latches.leaders()[0]


def test_five_latches_hear_each_of_four_outages_once_and_lead_again(
    far_latches: Latches, proxy: FaultProxy, eventually: Eventually
) -> None:
    """testWithCircuitBreaker"""
    rounds = 4
    heard: list[SessionState] = []
    far_latches.shared.add_listener(heard.append)
    first, *others = far_latches.queued(5, eventually)
    eventually(lambda: first.words == ["is"])

    for number in range(1, rounds + 1):
        proxy.take_down()
        eventually(lambda n=number: first.words == ["is", "not"] * n, what="the leader is told")
        assert not far_latches.leaders()
        proxy.heal()
        eventually(lambda n=number: first.words == ["is", "not"] * n + ["is"], what="it leads again")

    assert heard == [SessionState.SUSPENDED, SessionState.CONNECTED] * rounds
    assert far_latches.leaders() == [first]
    assert [member.words for member in others] == [[]] * 4


def test_the_leader_of_a_queue_that_does_not_exist_is_nobody(latches: Latches) -> None:
    """testUncreatedPathGetLeader"""
    member = latches.latch("a")

    assert member.latch.get_leader() is None
    assert member.latch.get_participants() == []


def test_a_queue_that_is_gone_with_all_sessions_is_made_again(
    far_latches: Latches, proxy: FaultProxy, latches: Latches, eventually: Eventually
) -> None:
    """testGetChildrenHitsNoNode: Curator's test starts an empty server at the old port."""
    first, second = far_latches.queued(2, eventually, own_sessions=True)
    eventually(lambda: first.words == ["is"])

    proxy.take_down()
    for member in (first, second):
        end_session(latches.hosts, member.session)
    latches.shared.client.delete(latches.path)
    proxy.heal()

    eventually(lambda: first.words[:2] == ["is", "not"], what="the first is told that it lost")
    eventually(lambda: len(latches.nodes()) == 2, what="both queue again")
    leader = _one_leads(far_latches, eventually)
    eventually(lambda: leader.words[-1] == "is")
    first_in_line = next(member for member in (first, second) if member.latch.own_node == latches.nodes()[0])
    assert leader is first_in_line


def test_a_latch_whose_predecessor_vanishes_while_it_makes_a_new_node_leads_with_that_one(
    latches: Latches, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    """testWatchedNodeDeletedOnReconnect"""
    first, second = (HandDriven(latches.session(), latches.path, name) for name in "ab")
    first.do(m.Started())
    second.do(m.Started())
    assert (first.holds, second.holds) == (True, False)

    latches.delete(second.node)
    second.begin(m.LatchGone())
    second.until(Create)
    first.do(m.LatchCloseAsked())
    second.finish()

    assert second.holds
    assert latches.nodes() == [second.node]
    while second.hear():  # the event of the old predecessor
        assert second.holds
    assert second.words == ["is"]


def test_a_leader_whose_session_ends_is_replaced_and_does_not_lead_again(
    latches: Latches, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    """testSessionInterruptionDoNotCauseBrainSplit"""
    first, second = latches.queued(2, eventually, own_sessions=True)
    eventually(lambda: first.words == ["is"])
    old_node = first.latch.own_node

    end_session(zookeeper.hosts, first.session)

    # Somebody else has ended the session, so the first may hear of it after the second leads; until then its
    # writes are refused.
    eventually(lambda: second.leads, what="the second leads")
    eventually(lambda: first.words == ["is", "not"])
    # The latch learns the name of its node a moment after the server has it.
    eventually(lambda: latches.nodes() == [second.latch.own_node, first.latch.own_node])
    assert old_node not in latches.nodes()
    eventually(lambda: second.words == ["is"])
    assert first.words == ["is", "not"]
    assert latches.leaders() == [second]


@pytest.mark.parametrize("seed", range(12))
def test_two_latches_that_reset_at_once_never_lead_both_and_one_leads_in_the_end(
    latches: Latches, seed: int
) -> None:
    """testResettingOfLeadershipAfterConcurrentLeadershipChange"""
    dice = random.Random(seed)
    pair = [HandDriven(latches.shared, latches.path, name) for name in "ab"]
    for latch in pair:
        latch.do(m.Started())
    for latch in pair:
        latches.delete(latch.node)

    for latch in pair:
        latch.begin(m.LatchGone())
    for _ in range(200):
        busy = [latch for latch in pair if latch.pending is not None]
        if busy:
            dice.choice(busy).answer_one()
        elif not pair[0].hear() and not pair[1].hear():
            break
        assert sum(latch.holds for latch in pair) <= 1
    else:
        pytest.fail("they reset each other for ever")

    leading = [latch for latch in pair if latch.holds]
    assert len(leading) == 1
    assert latches.nodes()[0] == leading[0].node
    assert len(latches.nodes()) == 2


def test_when_the_leader_leaves_between_reading_the_queue_and_watching_it_one_of_two_candidates_leads(
    latches: Latches, eventually: Eventually
) -> None:
    """testLeadershipElectionWhenNodeDisappearsAfterChildrenAreRetrieved"""
    leader, second, third = (HandDriven(latches.shared, latches.path, name) for name in "abc")
    leader.do(m.Started())
    second.begin(m.Started())
    second.until(Exists)  # it has read the queue, and watches nothing yet
    third.do(m.Started())

    leader.do(m.LatchCloseAsked())
    second.finish()
    eventually(lambda: not second.hear() and not third.hear())

    assert [latch.holds for latch in (second, third)] == [True, False]
    assert latches.nodes() == [second.node, third.node]


@pytest.mark.parametrize(
    ("policy", "words"),
    [(SuspendedPolicy.STANDARD, ["is", "not", "is"]), (SuspendedPolicy.SESSION, ["is"])],
)
def test_a_broken_connection_costs_the_lock_only_under_the_standard_policy_and_never_the_node(
    latches: Latches, eventually: Eventually, policy: SuspendedPolicy, words: list[str]
) -> None:
    """testSessionErrorPolicy"""
    states: list[SessionState] = []
    latches.shared.add_listener(states.append)
    first, second = latches.queued(2, eventually, policy=policy)
    eventually(lambda: first.words == ["is"])
    nodes = latches.nodes()

    latches.shared.reconnect()

    eventually(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
    eventually(lambda: first.words == words and first.leads)
    assert latches.nodes() == nodes
    assert second.words == []


def test_under_the_standard_policy_a_leader_is_told_with_the_suspension_and_before_any_loss(
    far_latches: Latches, proxy: FaultProxy, eventually: Eventually
) -> None:
    """testErrorPolicies, standard"""
    member = far_latches.started("a")
    eventually(lambda: member.words == ["is"])

    proxy.take_down()

    eventually(lambda: member.words == ["is", "not"])
    assert member.session.state is SessionState.SUSPENDED


def test_under_the_session_policy_a_leader_is_told_with_the_loss_and_not_before(
    far_latches: Latches, proxy: FaultProxy, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    """testErrorPolicies, session"""
    ahead = timedelta(0)
    member = far_latches.started("a", policy=SuspendedPolicy.SESSION, clock=lambda: boottime() + ahead)
    states: list[tuple[SessionState, int]] = []
    member.session.add_listener(lambda state: states.append((state, len(member.words))))
    eventually(lambda: member.words == ["is"])

    proxy.take_down()
    eventually(lambda: states == [(SessionState.SUSPENDED, 1)])
    assert member.leads

    ahead = PATIENT  # no loss was reported, but the session may have expired by the clock
    assert not member.leads
    ahead = timedelta(0)
    end_session(zookeeper.hosts, member.session)
    proxy.heal()

    eventually(lambda: member.words[:2] == ["is", "not"])
    eventually(lambda: member.words == ["is", "not", "is"], what="it leads again")
    assert (SessionState.LOST, 1) in states


@pytest.mark.parametrize("before", ["connected once", "never connected"])
def test_a_latch_that_closes_without_a_connection_has_nothing_to_give_back(
    far_latches: Latches, proxy: FaultProxy, eventually: Eventually, before: str
) -> None:
    """testProperCloseWithoutConnectionEstablished"""
    session = far_latches.session(start=before == "connected once")
    proxy.take_down()
    eventually(lambda: not session.is_connected)
    member = far_latches.started("a", session)

    member.latch.close(timeout=timedelta(hours=1))

    assert member.latch.state is LatchState.CLOSED
    assert member.words == []
    proxy.heal()
    assert far_latches.shared.call(far_latches.shared.client.exists_async, far_latches.path) is None


def test_a_latch_whose_creation_is_interrupted_makes_one_node(
    proxy: FaultProxy, latches: Latches, eventually: Eventually
) -> None:
    """testResetRace"""
    latches.make_queue()
    trap = proxy.cut_after(when=lambda request: request.mentions("-latch-"))
    member = latches.started("a", latches.session(proxy.hosts))

    assert trap.wait(LONG)
    eventually(lambda: member.leads)

    assert latches.nodes() == [member.latch.own_node]


def test_a_latch_that_closes_while_its_node_is_being_made_leaves_none(
    proxy: FaultProxy, latches: Latches, eventually: Eventually
) -> None:
    """testCreateDeleteRace"""
    bystander = latches.started("b")
    eventually(lambda: bystander.leads)
    member = latches.latch("a", latches.session(proxy.hosts))
    proxy.stall(Direction.TO_CLIENT)
    member.latch.start()
    eventually(lambda: len(latches.nodes()) == 2, what="its node is made, and it does not know")

    closing = threading.Thread(target=member.latch.close, kwargs={"timeout": LONG})
    closing.start()
    eventually(lambda: member.latch.state is LatchState.CLOSED)
    proxy.heal()
    closing.join()

    assert latches.nodes() == [bystander.latch.own_node]
    assert member.words == []


def test_of_ten_latches_none_leads_without_a_server_and_one_leads_with_it(
    far_latches: Latches, proxy: FaultProxy, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    """testLostConnection"""
    far_latches.queued(TEN, eventually)
    _one_leads(far_latches, eventually)

    proxy.take_down()
    eventually(lambda: not far_latches.leaders(), what="nobody leads")
    proxy.heal()
    _one_leads(far_latches, eventually)

    old = set(far_latches.nodes())
    end_session(zookeeper.hosts, far_latches.shared)
    eventually(
        lambda: len(far_latches.nodes()) == TEN and old.isdisjoint(far_latches.nodes()),
        what="all queue again with a new session",
    )
    _one_leads(far_latches, eventually)


def test_a_latch_leads_only_when_the_leader_leaves_and_not_when_its_neighbour_does(
    latches: Latches, eventually: Eventually
) -> None:
    """testCorrectWatching"""
    first, second, third, *_others = latches.queued(TEN, eventually)
    eventually(lambda: first.leads)

    second.latch.close()

    eventually(lambda: len(latches.nodes()) == TEN - 1)
    assert latches.leaders() == [first]
    assert third.words == []
    first.latch.close()
    eventually(lambda: third.leads, what="the third follows the first")
    assert latches.leaders() == [third]


def test_ten_threads_that_wait_for_leadership_ten_times_are_never_inside_together(
    latches: Latches, eventually: Eventually
) -> None:
    """testWaiting"""
    inside: list[int] = []
    faults: list[str] = []
    rounds: list[int] = []
    latches.shared  # noqa: B018 - made here, not by the first thread

    def one(number: int) -> None:
        for _ in range(TEN):
            member = latches.started(f"id{number}")
            if not member.latch.await_leadership(timedelta(seconds=60)):
                faults.append(f"{number} waited in vain")
                return
            inside.append(number)
            if inside != [number]:
                faults.append(f"inside together: {inside}")
            rounds.append(number)
            threading.Event().wait(0.002)  # time in which another one could wrongly enter
            inside.remove(number)
            member.latch.close()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(TEN)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)

    assert faults == []
    assert sorted(rounds) == sorted(list(range(TEN)) * TEN)
    assert latches.nodes() == []


def test_ten_latches_lead_in_the_order_in_which_they_were_started(
    latches: Latches, eventually: Eventually
) -> None:
    """testBasic, with ten latches"""
    _lead_one_after_the_other(latches, latches.queued(TEN, eventually), eventually)


def test_ten_latches_started_by_as_many_threads_lead_in_the_order_of_the_queue(
    latches: Latches, eventually: Eventually
) -> None:
    """testBasicAlt, with ten latches"""
    made = [latches.latch(f"id{number}") for number in range(TEN)]
    starting = [threading.Thread(target=member.latch.start) for member in made]
    random.shuffle(starting)
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join()
    eventually(lambda: len(latches.nodes()) == TEN)
    eventually(lambda: all(member.latch.own_node is not None for member in made))

    order = sorted(made, key=lambda member: latches.nodes().index(str(member.latch.own_node)))
    _lead_one_after_the_other(latches, order, eventually)


def _lead_one_after_the_other(latches: Latches, order: list[Member], eventually: Eventually) -> None:
    for member in order:
        eventually(latches.leaders, what="a latch leads")
        assert latches.leaders() == [member]
        leader = member.latch.get_leader()
        assert leader is not None
        assert (leader.participant.id, leader.is_leader) == (member.latch.id, True)
        member.latch.close()
    assert latches.leaders() == []
    assert [member.words for member in order] == [["is"]] * len(order)


def _resets_then_closes(latches: Latches, member: Member) -> None:
    """When it leads first, delete its node; at the second time, close it. On the listener's thread."""

    def then(word: str) -> None:
        if word != "is":
            return
        if member.words.count("is") == 1:
            latches.delete(member.latch.own_node)
        else:
            member.latch.close(timeout=timedelta(hours=1))

    member.heard.then = then


@pytest.mark.parametrize(("notify", "nots"), [(0, 10), (7, 17)])
def test_listeners_of_ten_latches_are_told_each_gain_and_loss_and_may_close_their_latch(
    latches: Latches, eventually: Eventually, notify: int, nots: int
) -> None:
    """testCallbackSanity, testCallbackNotifyLeader"""
    modes = [CloseMode.NOTIFY_LEADER] * notify + [CloseMode.SILENT] * (TEN - notify)
    made = [latches.latch(f"id{number}", close_mode=mode) for number, mode in enumerate(modes)]
    for member in made:
        _resets_then_closes(latches, member)
    for member in made:
        member.latch.start()

    eventually(lambda: latches.all_closed, within_s=60, what="all have led twice and closed")

    def told() -> tuple[int, int]:
        words = [word for member in made for word in member.words]
        return words.count("is"), words.count("not")

    eventually(lambda: told() == (2 * TEN, nots), what=f"{2 * TEN} gains and {nots} losses are told")
    for member in made:
        assert all(one != next_one for one, next_one in pairwise(member.words)), member.words
    assert latches.nodes() == []


def test_closing_tells_nobody_but_the_listeners_of_a_leader_and_only_if_wanted(
    latches: Latches, eventually: Eventually
) -> None:
    """testCallbackDontNotify"""
    silent = latches.started("a")
    eventually(lambda: silent.words == ["is"])
    other = latches.started("b", close_mode=CloseMode.NOTIFY_LEADER)
    eventually(lambda: len(latches.nodes()) == 2)

    other.latch.close()
    silent.latch.close(CloseMode.NOTIFY_LEADER)

    assert other.words == []
    assert silent.words == ["is", "not"]
    silent.latch.close(CloseMode.NOTIFY_LEADER)
    assert silent.words == ["is", "not"]


def test_a_latch_started_before_its_server_leads_once_when_the_server_comes(
    far_latches: Latches, proxy: FaultProxy, eventually: Eventually
) -> None:
    """testNoServerAtStart"""
    proxy.take_down()
    session = far_latches.session(start=False)
    member = far_latches.started("a", session)
    proxy.heal()
    session.start(LONG)

    eventually(lambda: member.leads)
    eventually(lambda: member.words == ["is"])
    member.latch.close()
    assert member.words == ["is"]


@pytest.mark.parametrize("path", ["parent", "", "parent/child", "/", "/parent/", "/a/../b", "//a"])
def test_a_path_that_is_not_absolute_and_plain_is_refused(path: str) -> None:
    """testRelativePath"""
    with pytest.raises(ElectionConfigError, match="path"):
        LatchConfig(path=path)
