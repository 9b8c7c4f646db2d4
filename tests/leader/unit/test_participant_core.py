"""A participant's core with a ZooKeeper in memory: terms, guards, changes by others."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from leader.core.participant import model as m
from leader.core.participant.eligibility import MAX_YIELDS
from leader.errors import ZooKeeperUnavailableError
from leader.protocol import requests as rq
from leader.protocol.control import Control, Pause, Switchover, decode_control, encode_control
from leader.protocol.paths import new_latch_prefix
from tests.leader.unit.participant_stage import NO, PATHS, YES, Member, S, Server


def test_a_leader_alone_whose_session_is_replaced_leads_again_at_once() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()
    assert one.told == [("elected", 1)]

    one.lose_session()
    server.settle()

    assert one.told == [("elected", 1), ("revoked", 1), ("elected", 2)]


def test_a_leader_alone_whose_latch_is_deleted_leads_again_at_once() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()

    server.delete(PATHS.latch(server.queue()[0]))
    server.settle()

    assert one.told == [("elected", 1), ("revoked", 1), ("elected", 2)]


def test_an_answer_about_an_older_epoch_does_not_count_for_a_later_one() -> None:
    server = Server()
    slow = server.member("slow", guard_timeout=timedelta(minutes=5))
    slow.answer_at_once = None
    slow.post(m.AddAsked())
    server.settle()
    assert len(slow.asked) == 1
    slow.lose_session()
    server.settle()
    assert isinstance(slow.core.state, m.Guarding)
    assert len(slow.asked) == 2, "it is asked again, about the epoch raised since"

    slow.asked[0](YES)
    server.settle()

    assert slow.told == []
    assert slow.core.status().last_verdict is None
    slow.asked[1](YES)
    server.settle()
    assert slow.told == [("elected", 2)]


def test_who_hangs_in_its_guard_spends_no_epochs_and_says_so_until_the_guard_has_answered() -> None:
    server = Server()
    one = server.member("one", guard_timeout=timedelta(seconds=1))
    one.answer_at_once = None
    one.post(m.AddAsked())

    server.wait(timedelta(minutes=10))

    assert len(one.asked) == 1
    assert "the guard hangs" in (one.core.status().trouble or "")
    assert "the guard hangs" in (one.core.status().last_abdication or "")
    one.answer_at_once = YES
    one.asked[0](YES)
    server.wait(timedelta(minutes=1))
    assert one.told == [("elected", 2)]
    assert one.core.status().trouble is None


def test_a_hand_over_raises_the_epoch_and_deletes_latch_and_leader_node_in_one_transaction() -> None:
    server = Server()
    one, two = server.member("one"), server.member("two")
    for member in (one, two):
        member.post(m.AddAsked())
        server.settle()
    server.wait(2 * S)  # it reads who is behind it

    asked: list[rq.Request] = []
    one.before = asked.append
    own = PATHS.latch(server.queue()[0])
    one.post(m.RemoveAsked())
    server.settle()

    written = [
        {one.path for one in request.operations} for request in asked if isinstance(request, rq.Transaction)
    ]
    assert any({PATHS.epoch, own, PATHS.leader} <= paths for paths in written)
    assert two.told == [("elected", 2)]


def _writes_leader(request: rq.Request) -> bool:
    return isinstance(request, rq.Transaction) and any(
        isinstance(one, rq.Create) and one.path == PATHS.leader for one in request.operations
    )


def test_a_leader_node_whose_reply_was_lost_goes_with_its_leader() -> None:
    server = Server()
    one = server.member("one")
    one.lost_reply = _writes_leader
    one.post(m.AddAsked())
    server.settle()
    assert one.told == [("elected", 1)]
    assert server.zookeeper.tree.get(PATHS.leader) is not None

    one.post(m.RemoveAsked())
    server.settle()

    assert server.zookeeper.tree.get(PATHS.leader) is None


def test_a_leader_node_that_is_deleted_as_soon_as_it_was_written_is_written_again() -> None:
    server = Server()
    one = server.member("one")

    def meddle(request: rq.Request) -> bool:
        if _writes_leader(request):
            one.lost_reply = lambda _request: False
            server.delete(PATHS.leader)
        return False

    one.lost_reply = meddle
    one.post(m.AddAsked())
    server.settle()

    assert server.zookeeper.tree.get(PATHS.leader) is not None


def test_a_leader_whose_leader_node_cannot_be_written_says_on_its_member_node_that_it_leads() -> None:
    server = Server()
    one, two = server.member("one"), server.member("two")
    for member in (one, two):
        member.post(m.AddAsked())
        server.settle()

    def refuse(request: rq.Request) -> None:
        if _writes_leader(request):
            raise ZooKeeperUnavailableError("no answer")

    two.before = refuse
    one.post(m.RemoveAsked())
    server.settle()

    assert two.told == [("elected", 2)]
    assert server.zookeeper.tree.get(PATHS.leader) is None
    member = two.member()
    assert member is not None
    assert member.leads


def test_a_leader_whose_leader_node_is_written_at_the_second_try_is_in_no_trouble_after_it() -> None:
    server = Server()
    one = server.member("one")

    def refuse(request: rq.Request) -> None:
        if _writes_leader(request):
            raise ZooKeeperUnavailableError("no answer")

    one.before = refuse
    one.post(m.AddAsked())
    server.settle()
    assert "no answer" in (one.core.status().trouble or "")

    one.before = lambda _request: None
    server.wait(S)

    assert server.zookeeper.tree.get(PATHS.leader) is not None
    assert one.told == [("elected", 1)]
    assert one.core.status().trouble is None


def test_a_leader_tries_to_write_its_leader_node_ever_more_rarely_and_soon_after_a_later_failure() -> None:
    server = Server()
    one = server.member("one", retry_max=timedelta(seconds=2))
    tries: list[timedelta] = []
    fails = True

    def refuse(request: rq.Request) -> None:
        if _writes_leader(request):
            tries.append(server.now)
            if fails:
                raise ZooKeeperUnavailableError("no answer")

    def pauses() -> list[float]:
        return [(late - early).total_seconds() for early, late in pairwise(tries)]

    one.before = refuse
    one.post(m.AddAsked())
    server.wait(2 * S)
    assert pauses()[:7] == [0.1, 0.2, 0.4, 0.8, 1.6, 2, 2]
    assert set(pauses()[7:]) == {2}

    fails = False
    server.wait(S)
    fails = True
    tries.clear()
    server.delete(PATHS.leader)
    server.wait(S / 10)

    assert one.told == [("elected", 1)]
    assert pauses()[:3] == [0.1, 0.2, 0.4]


def test_a_pause_that_begins_while_a_candidate_looks_for_one_is_heard() -> None:
    server = Server()
    one, two = server.member("one"), server.member("two")
    one.post(m.AddAsked())
    server.settle()

    def meddle(request: rq.Request) -> None:
        if request == rq.Exists(PATHS.control, watch=True):
            two.before = lambda _request: None
            server.zookeeper.write(rq.Create(PATHS.control, encode_control(Control(Pause("one", "upgrade")))))

    two.before = meddle
    two.post(m.AddAsked())
    server.settle()
    assert one.session_id is not None
    server.zookeeper.close_session(one.session_id)
    two.work()

    assert two.core.status().paused == "upgrade"
    assert two.told == []


def test_who_is_out_of_the_queue_for_good_does_not_keep_others_from_a_forced_takeover() -> None:
    server = Server()
    forced: dict[str, Any] = {
        "guard_timeout": timedelta(seconds=1),
        "forced_takeover_after": timedelta(seconds=15),
    }
    gone, left = server.member("a", **forced), server.member("b", **forced)
    gone.post(m.AddAsked())
    server.settle()
    gone.post(m.RemoveAsked())
    server.settle()
    left.answer_at_once = NO
    left.post(m.AddAsked())

    server.wait(timedelta(minutes=2))

    assert [kind for kind, _ in left.told] == ["elected"]


def test_who_cannot_lead_tries_ever_more_rarely() -> None:
    server = Server()
    one = server.member("one")
    one.cannot_lead = True
    one.post(m.AddAsked())

    server.wait(timedelta(minutes=1))

    assert len(one.told) <= 2 * 7, "after 1, 2, 4, 8, 16 and 30 seconds"


def test_who_led_for_long_comes_back_soon() -> None:
    server = Server()
    one = server.member("one")
    one.cannot_lead = True
    one.post(m.AddAsked())
    server.wait(timedelta(seconds=20))
    one.cannot_lead = False
    server.wait(timedelta(minutes=5))
    assert one.told[-1][0] == "elected"

    one.post(m.AbdicationAsked("enough"))
    server.settle()
    server.wait(timedelta(seconds=1.1))

    assert one.told[-1][0] == "elected"


def test_terms_that_end_without_a_handover_leave_no_watches_behind() -> None:
    server = Server()
    one, two = server.member("one"), server.member("two")
    one.answer_at_once = two.answer_at_once = NO
    for member in (one, two):
        member.post(m.AddAsked())
        server.settle()

    server.wait(timedelta(hours=1))

    watched = server.zookeeper.tree._on_node
    assert len([path for path, who in watched.items() if who and "handover" in path]) < 10


def test_a_stranger_whose_latch_holds_no_text_does_not_depose_a_leader_that_is_asked_for_a_switchover() -> (
    None
):
    server = Server()
    one, two = server.member("one"), server.member("two")
    one.post(m.AddAsked())
    server.settle()
    server.zookeeper.write(rq.Create(PATHS.latch(new_latch_prefix()), b"\xff", sequential=True))
    two.post(m.AddAsked())
    server.settle()

    wish = Control(switchover=Switchover("two", 1, "wanted"))
    server.zookeeper.write(rq.Create(PATHS.control, encode_control(wish)))
    server.settle()

    assert one.reasons == ["switchover to two: wanted"]


def test_a_core_that_was_ended_from_outside_wants_nothing_any_more() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()

    one.core.abort("the thread ends")

    assert one.core.due_at is None, "the driver would call it again and again"
    assert one.told == [("elected", 1), ("revoked", 1)]


def test_an_answer_is_taken_though_the_others_cannot_be_read_for_a_reason_nobody_foresaw() -> None:
    server = Server()
    one = server.member("one")
    one.answer_at_once = NO

    def no_more_threads(request: rq.Request) -> None:
        if request == rq.GetChildren(PATHS.members):
            raise RuntimeError("can't start new thread")

    one.before = no_more_threads
    one.post(m.AddAsked())
    server.settle()

    assert isinstance(one.core.state, m.BackingOff)


def test_who_still_hangs_in_the_end_of_its_last_term_does_not_lead_and_does_as_soon_as_it_is_back() -> None:
    server = Server()
    one = server.member(
        "one", requeue_backoff_min=timedelta(minutes=5), requeue_backoff_max=timedelta(hours=1)
    )
    one.post(m.AddAsked())
    server.settle()
    one.hangs = True
    one.post(m.AbdicationAsked("enough"))
    server.wait(timedelta(minutes=30))
    assert one.told == [("elected", 1), ("revoked", 1)]
    for words in (one.core.status().last_abdication, one.core.status().trouble):
        assert "elected() or revoked() of epoch 1 has not returned" in (words or "")

    one.owed.pop()()
    server.wait(S)  # some proofs

    assert one.told[2:] == [("elected", 2)]
    assert one.core.status().trouble is None


def test_who_lost_its_latch_and_leaves_while_another_is_asked_is_not_shown_as_leader() -> None:
    server = Server()
    one, two = server.member("one"), server.member("two")
    two.answer_at_once = None
    for member in (one, two):
        member.post(m.AddAsked())
        server.settle()
    server.delete(PATHS.latch(server.queue()[0]))
    server.settle()
    assert isinstance(two.core.state, m.Guarding)

    one.post(m.RemoveAsked())
    server.settle()
    two.asked[0](NO)
    server.settle()

    assert server.zookeeper.tree.get(PATHS.leader) is None


def test_whose_session_timeout_shrinks_below_its_margin_leads_no_more_and_says_why() -> None:
    server = Server()
    one = server.member("one", step_down_margin=timedelta(seconds=3))
    one.post(m.AddAsked())
    server.settle()
    assert one.told == [("elected", 1)]

    one.reattach(granted=timedelta(seconds=5))
    server.wait(S)

    assert one.told == [("elected", 1), ("revoked", 1)]
    assert "step_down_margin" in one.core.status().why()

    one.reattach(granted=S)
    server.wait(timedelta(minutes=1))
    assert one.core.term.leadership() is not None


def test_readiness_that_is_said_again_does_not_end_a_back_off_and_does_once_it_has_changed() -> None:
    server = Server()
    pause = {"requeue_backoff_min": timedelta(minutes=5), "requeue_backoff_max": timedelta(hours=1)}
    one = server.member("one", **pause)
    one.answer_at_once = NO
    one.publish_readiness(True)
    one.post(m.AddAsked())
    server.settle()
    asked = len(one.asked)

    for _ in range(3):
        one.publish_readiness(True)
        server.wait(timedelta(seconds=1))

    assert len(one.asked) == asked
    member = one.member()
    assert member is not None
    assert member.declined, "for the others, too, its guard has not changed its mind"
    one.publish_readiness(False)
    one.publish_readiness(True)
    server.settle()
    assert len(one.asked) > asked


def test_a_latch_that_others_delete_as_fast_as_it_is_made_is_made_again_at_a_measured_pace() -> None:
    server = Server()
    one = server.member("one")
    made: list[str] = []

    def meddle(request: rq.Request) -> None:
        if isinstance(request, rq.GetChildren) and request.path == PATHS.queue and len(made) < 100:
            made.extend(server.queue())
            server.delete(PATHS.latch(made[-1]))

    one.before = meddle
    one.post(m.AddAsked())
    server.settle()

    assert len(made) == 1
    server.wait(timedelta(seconds=5))
    assert 2 <= len(made) < 20
    one.before = lambda _request: None
    server.wait(timedelta(seconds=5))
    assert one.told == [("elected", 1)]


def test_a_latch_that_others_delete_before_it_is_claimed_is_made_again_at_a_measured_pace() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    made: list[str] = []

    def meddle(request: rq.Request) -> None:
        if request == rq.Get(PATHS.epoch) and len(made) < 100:
            made.extend(server.queue())
            server.delete(PATHS.latch(made[-1]))

    one.before = meddle
    server.settle()

    assert len(made) == 1
    server.wait(timedelta(seconds=5))
    assert len(made) >= 2


def test_an_unready_head_asks_little_of_zookeeper_however_long_the_queue() -> None:
    server = Server()
    head, *others = (server.member(f"m{number:02}") for number in range(30))
    head.publish_readiness(False)
    for other in others:
        other.publish_readiness(False)
    for member in (head, *others):
        member.answer_at_once = None
        member.post(m.AddAsked())
        server.settle()
    asked: list[rq.Request] = []
    others[-1].publish_readiness(True)
    server.settle()

    head.post(m.AbdicationAsked("look round", at_once=True))
    others[0].before = asked.append
    server.settle()

    assert isinstance(others[-1].core.state, m.Guarding)
    assert len(asked) < 20


def _steps_down(server: Server, leader: Member) -> None:
    """Leave the queue, and return to its end."""
    leader.post(m.RemoveAsked())
    server.settle()
    leader.post(m.AddAsked())
    server.settle()


def _leading(members: list[Member]) -> Member:
    (leader,) = (member for member in members if member.core.term.leadership() is not None)
    return leader


def test_a_reserve_yields_to_ready_members_however_many_terms_there_were_before() -> None:
    server = Server()
    first, reserve, second = server.member("a"), server.member("r", priority=-1), server.member("b")
    everybody = [first, reserve, second]
    for member in everybody:
        member.publish_readiness(True)
        member.post(m.AddAsked())
        server.settle()

    for _ in range(2 * MAX_YIELDS):
        _steps_down(server, _leading(everybody))

    assert reserve.told == []


def test_a_reserve_that_never_stands_behind_a_leader_learns_of_one_and_yields_again() -> None:
    server = Server()
    first, second = server.member("a"), server.member("b")
    between, reserve = (server.member(name, priority=-1) for name in ("q", "r"))
    everybody = [first, between, reserve, second]
    for member in everybody:
        member.publish_readiness(True)
        member.post(m.AddAsked())
        server.settle()

    for _ in range(2 * MAX_YIELDS):
        server.wait(4 * S)
        _steps_down(server, _leading(everybody))

    assert between.told == reserve.told == []


def test_a_reserve_claims_after_three_yields_to_a_member_that_declines_and_comes_back() -> None:
    server = Server()
    other, reserve = server.member("a"), server.member("r", priority=-1)
    other.answer_at_once = NO
    returns: list[rq.Request] = []

    def come_back(request: rq.Request) -> None:
        if request == rq.GetChildren(PATHS.queue) and len(returns) < 100:
            returns.append(request)
            other.post(m.Poked())
            while other.work():
                pass

    reserve.before = come_back
    for member in (other, reserve):
        member.publish_readiness(True)
        member.post(m.AddAsked())
    server.settle()

    assert [kind for kind, _ in reserve.told] == ["elected"]
    assert len(returns) < 20, "it must not yield for ever"


def test_members_yield_to_the_target_of_a_switchover_however_often_they_have_yielded() -> None:
    server = Server()
    members = {name: server.member(name) for name in ("a", "b", "c", "d")}
    for member in members.values():
        member.post(m.AddAsked())
        server.settle()

    for named in ("d", "a") * (MAX_YIELDS + 1):
        leadership = _leading(list(members.values())).core.term.leadership()
        assert leadership is not None
        server.wish(Control(switchover=Switchover(named, leadership.epoch, "upgrade")))
        server.settle()
        assert _leading(list(members.values())).name == named


def test_a_pause_that_is_written_while_a_void_switchover_is_removed_stays() -> None:
    server = Server()
    one = server.member("one")
    void = Switchover("two", 0, "too late")

    def pause(request: rq.Request) -> None:
        if isinstance(request, rq.Transaction) and request.operations[-1].path == PATHS.control:
            one.before = lambda _request: None
            server.wish(Control(Pause("one", "upgrade"), void))

    one.post(m.AddAsked())
    server.settle()
    one.before = pause
    server.wish(Control(switchover=void))
    server.settle()

    node = server.zookeeper.tree.get(PATHS.control)
    assert node is not None
    assert decode_control(node.data, "") == Control(Pause("one", "upgrade"))


def test_trouble_of_an_older_term_does_not_hide_that_of_the_latch() -> None:
    server = Server()
    one = server.member("a")

    def no_answer_to_a_leader(request: rq.Request) -> None:
        if isinstance(one.core.state, m.Leading) and isinstance(request, rq.GetChildren):
            raise ZooKeeperUnavailableError("no answer")

    def forbidden(request: rq.Request) -> None:
        if isinstance(request, rq.Exists):
            raise rq.NotPermittedError(request.path)

    one.before = no_answer_to_a_leader
    one.post(m.AddAsked())
    server.settle()
    assert one.core.status().trouble == "no answer"

    one.before = forbidden
    one.reattach(S)
    server.settle()

    assert "access list" in (one.core.status().trouble or "")


def test_no_negative_time_is_left_while_the_core_has_not_learned_that_its_session_is_over() -> None:
    server = Server()
    a = server.member("a")
    a.post(m.AddAsked())
    server.settle()

    a.liveness.broke(lost=True)

    assert a.core.status().time_left == timedelta(0)
