"""Cases that the tests of no other election have, on a real ZooKeeper.

In other files: a leader stopped for three sessions (test_paused), a wiped ensemble (test_wiped), guards that
raise or hang and the leader node changed by hand (test_election), removed access lists
(test_curator_selector), a follower that is isolated from its ensemble (test_curator_cluster).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from leader import LeaderError, SessionState, Verdict, read_leader
from leader.clock import boottime
from leader.core.latch import model as m
from leader.zookeeper.executor import SessionExecutor
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy
from tests.forked import exit_code_of_child
from tests.leader.integration.curator.hand_driven import HandDriven
from tests.leader.integration.curator.latches import LONG, PATIENT, Heard, Latches
from tests.leader.integration.curator.overlaps import Overlaps
from tests.leader.integration.curator.participants import Participants
from tests.thorough import thorough

SHORT = timedelta(seconds=2)
Eventually = Callable[..., None]


# --- the latch's node, watches, listeners ---------------------------------------------------------


def test_a_latch_whose_node_is_deleted_by_hand_loses_and_queues_at_the_end(
    latches: Latches, eventually: Eventually
) -> None:
    first, second = latches.queued(2, eventually)
    eventually(lambda: first.words == ["is"])

    latches.delete(first.latch.own_node)

    eventually(lambda: second.leads and second.words == ["is"])
    eventually(lambda: first.words == ["is", "not"] and len(latches.nodes()) == 2)
    assert latches.nodes() == [second.latch.own_node, first.latch.own_node]


def test_a_latch_that_hears_that_its_node_is_deleted_lets_go_before_it_asks_anything(
    latches: Latches,
) -> None:
    """The next one in the queue is notified at the same time."""
    latch = HandDriven(latches.shared, latches.path, "a")
    latch.do(m.Started())
    deleted = latch.node
    latches.delete(deleted)

    latch.begin_to_hear_of_the_end_of(f"{latches.path}/{deleted}")

    assert latch.pending is not None
    assert latch.words == ["is", "not"]
    assert not latch.lease.stands(latch.lease.hold)
    latch.finish()
    assert latch.holds
    assert latches.nodes() == [latch.node] != [deleted]


def test_a_watch_that_wakes_twice_elects_once(latches: Latches) -> None:
    leader, second = (HandDriven(latches.shared, latches.path, name) for name in "ab")
    leader.do(m.Started())
    second.do(m.Started())
    gone = f"{latches.path}/{leader.node}"

    leader.do(m.LatchCloseAsked())
    for _ in range(3):
        second.hear_of_the_end_of(gone)

    assert second.holds
    assert second.words == ["is"]
    assert latches.nodes() == [second.node]
    assert not list(second.core.watch_fired(gone, True)), "the holder of the lock need not look"


def test_a_watch_that_wakes_twice_for_a_predecessor_of_before_does_not_elect(latches: Latches) -> None:
    first, second, third = (HandDriven(latches.shared, latches.path, name) for name in "abc")
    for latch in (first, second, third):
        latch.do(m.Started())
    gone = f"{latches.path}/{second.node}"

    second.do(m.LatchCloseAsked())
    for _ in range(3):
        third.hear_of_the_end_of(gone)
    assert (first.holds, third.holds) == (True, False)

    oldest = first.node
    first.do(m.LatchCloseAsked())
    third.hear_of_the_end_of(f"{latches.path}/{oldest}")
    assert third.words == ["is"]


def test_a_latch_woken_by_each_of_its_watches_twice_is_told_once(
    latches: Latches, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = SessionExecutor._fired

    def twice(self: SessionExecutor, event: Any) -> None:
        fired(self, event)
        fired(self, event)

    twice.only_enqueues = True  # type: ignore[attr-defined]
    monkeypatch.setattr(SessionExecutor, "_fired", twice)
    first, second, third = latches.queued(3, eventually)
    eventually(lambda: first.words == ["is"])

    second.latch.close()
    first.latch.close()

    eventually(lambda: third.words == ["is"])
    assert latches.leaders() == [third]


def test_a_listener_that_never_returns_holds_up_nobody_but_itself(
    latches: Latches, eventually: Eventually
) -> None:
    release = threading.Event()
    first, second = latches.latch("a"), latches.latch("b")
    first.heard.then = lambda _word: release.wait(60) and None
    good = Heard()
    first.latch.add_listener(good)
    try:
        first.latch.start()
        eventually(lambda: first.words == ["is"] and good.words == ["is"])
        second.latch.start()
        eventually(lambda: len(latches.nodes()) == 2)

        latches.delete(first.latch.own_node)

        eventually(lambda: good.words == ["is", "not"], what="the other listener is told")
        eventually(lambda: second.words == ["is"], what="the other latch leads")
        second.latch.close()
        eventually(lambda: good.words == ["is", "not", "is"], what="it leads again")
        assert first.words == ["is"]
    finally:
        release.set()
    eventually(lambda: first.words == good.words, what="the slow one hears it all, in order")


def test_an_electable_that_never_returns_costs_its_participant_the_hand_over_time_and_no_more(
    participants: Participants, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    release = threading.Event()
    first = participants.candidate("a", handover_timeout=timedelta(milliseconds=100))
    first.then = lambda _word: release.wait(60) and None
    first.queue.add_to_leader_lock_queue()
    eventually(lambda: first.words == ["elected"])
    try:
        second = participants.candidate("b")
        second.queue.add_to_leader_lock_queue()
        eventually(lambda: participants.ids() == ["a", "b"])

        first.queue.abdicate("for the other")

        eventually(lambda: second.leads and second.words == ["elected"])
        assert not first.leads
        eventually(lambda: participants.ids() == ["b", "a"], what="it queues again meanwhile")
    finally:
        release.set()
    eventually(lambda: first.words == ["elected", "revoked"])


# --- time -----------------------------------------------------------------------------------------


def test_a_leader_whose_clock_jumps_by_a_session_does_not_lead_at_the_first_question(
    participants: Participants, latches: Latches, eventually: Eventually
) -> None:
    """CLOCK_BOOTTIME jumps like this when the machine has slept."""
    ahead = timedelta(0)

    def clock() -> timedelta:
        return boottime() + ahead

    one = participants.candidate("a", clock=clock)
    one.queue.add_to_leader_lock_queue()
    latch = latches.started("a", clock=clock)
    eventually(lambda: one.words == ["elected"] and latch.words == ["is"])
    assert one.leads
    assert latch.leads

    ahead = PATIENT

    assert not one.leads
    assert one.queue.leadership() is None
    assert not latch.leads
    eventually(lambda: one.words == ["elected", "revoked", "elected"], what="it proves itself and leads anew")
    eventually(lambda: latch.words == ["is", "not", "is"])
    assert one.epochs[1] > one.epochs[0]


def test_steps_of_the_wall_clock_change_nothing(
    participants: Participants, latches: Latches, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_s = 0.0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + step_s)
    (one,) = participants.queued(eventually, "a")
    latch = latches.started("a")
    eventually(lambda: latch.words == ["is"])

    for step_s in (86_400.0, -86_400.0, 3e9):  # noqa: B007 - time.time() reads it
        before = participants.witness.client.last_zxid
        participants.witness.call(participants.witness.client.sync_async, "/")
        eventually(lambda b=before: _last_zxid(participants) > b, what="a proof was committed since")
        assert one.leads
        assert latch.leads

    assert one.words == ["elected"]
    assert latch.words == ["is"]
    second = participants.candidate("b")
    second.queue.add_to_leader_lock_queue()
    eventually(lambda: participants.ids() == ["a", "b"])
    one.queue.abdicate("test")
    eventually(lambda: second.words == ["elected"])


def _last_zxid(participants: Participants) -> int:
    participants.witness.call(participants.witness.client.exists_async, "/")
    zxid: int = participants.witness.client.last_zxid
    return zxid


# --- sessions -------------------------------------------------------------------------------------


@thorough
def test_a_leader_behind_a_black_hole_that_goes_on_sending_is_deposed_before_its_heir_leads(
    proxy: FaultProxy, zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    """K1: kazoo checks for missing pings only when it has nothing to send."""
    with Participants(zookeeper.hosts, zk_root, SHORT) as participants:
        cut = participants.candidate("cut", participants.session(proxy.hosts))
        cut.queue.add_to_leader_lock_queue()
        eventually(lambda: cut.words == ["elected"])
        heir = participants.candidate("heir")
        heir.queue.add_to_leader_lock_queue()
        eventually(lambda: participants.ids() == ["cut", "heir"])
        done = threading.Event()

        def load() -> None:
            while not done.wait(0.1):
                with suppress(LeaderError):
                    cut.session.call(cut.session.client.exists_async, "/", timeout=timedelta(milliseconds=1))

        sender = threading.Thread(target=load)
        sender.start()
        try:
            with Overlaps(lambda: [one.name for one in participants.leaders()]) as overlaps:
                proxy.black_hole()
                eventually(lambda: heir.leads, what="the heir leads")
                eventually(lambda: cut.words[:2] == ["elected", "revoked"])
                assert not cut.leads
                proxy.heal()
                eventually(lambda: participants.ids() == ["heir", "cut"], what="the other queues again")
            assert overlaps.seen == []
        finally:
            done.set()
            sender.join()


def _forget_session(session: Any) -> None:
    """Let the server give it a new session at the next connection, without a message about the old one."""
    session.client._session_id = None
    session.client._session_passwd = b"\x00" * 16
    session.reconnect()


@pytest.mark.parametrize("role", ["leader", "heir"])
def test_a_session_that_is_replaced_without_a_word_costs_leadership_and_leaves_no_node(
    participants: Participants, eventually: Eventually, role: str
) -> None:
    """K2: ClickHouse Keeper does this."""
    first, second = participants.queued(eventually, "a", "b")
    struck, other = (first, second) if role == "leader" else (second, first)
    old = struck.session.session_id
    nodes = participants.nodes()
    with Overlaps(lambda: [one.name for one in participants.leaders()]) as overlaps:
        _forget_session(struck.session)

        eventually(lambda: struck.session.is_connected and struck.session.session_id != old)
        eventually(lambda: other.leads, what="the other leads")
        # The old session lives, so the participant deletes its node; an heir has the same place before.
        struck_node = nodes[0] if role == "leader" else nodes[1]
        eventually(lambda: struck_node not in participants.nodes(), what="its old node is deleted")
        eventually(lambda: participants.ids() == [other.name, struck.name], what="it queues again")

    assert overlaps.seen == []
    assert struck.session.state is SessionState.CONNECTED
    assert participants.leaders() == [other]


def test_a_latch_on_a_session_that_is_replaced_without_a_word_makes_a_new_node(
    latches: Latches, eventually: Eventually
) -> None:
    first, second = latches.queued(2, eventually, own_sessions=True)
    eventually(lambda: first.words == ["is"])

    _forget_session(first.session)

    eventually(lambda: second.words == ["is"] and first.words == ["is", "not"])
    eventually(lambda: latches.nodes() == [second.latch.own_node, first.latch.own_node])


def test_a_forked_child_does_not_lead_and_harms_nothing(
    participants: Participants, latches: Latches, eventually: Eventually
) -> None:
    (one,) = participants.queued(eventually, "a")
    latch = latches.started("a")
    eventually(lambda: latch.words == ["is"])
    assert one.leads
    assert latch.leads

    def in_child() -> int:
        one.session.close(LONG)
        status = (1 if one.leads else 0) + (2 if latch.leads else 0)
        return status + (4 if one.queue.leadership() is not None else 0)

    assert exit_code_of_child(in_child) == 0
    before = _last_zxid(participants)
    eventually(lambda: _last_zxid(participants) > before, what="a proof was committed since")
    assert one.leads
    assert (one.words, latch.words) == (["elected"], ["is"])


# --- guards ---------------------------------------------------------------------------------------


def test_while_every_candidate_is_unready_nobody_leads_and_each_says_so(
    participants: Participants, eventually: Eventually
) -> None:
    made = [participants.candidate(name) for name in "abc"]
    for one in made:
        one.guard = lambda: Verdict(False, ("not synced",))
        one.queue.publish_readiness(False, reasons=("not synced",))
        one.queue.add_to_leader_lock_queue()

    eventually(
        lambda: all(one.queue.status().everybody_declines for one in made), what="all know that all decline"
    )
    assert read_leader(participants.witness, participants.root) is None
    assert [one.told for one in made] == [[], [], []]
    assert "every participant's guard says no" in made[0].queue.status().why()

    made[1].guard = lambda: Verdict(True)
    made[1].queue.publish_readiness(True)

    eventually(lambda: made[1].words == ["elected"], what="the one that is ready leads")
    assert made[0].told == made[2].told == []
