"""The decisions of a latch, one by one."""

from __future__ import annotations

import pytest

from leader.core.latch import model as m
from leader.core.latch.machine import PROOFS_BEFORE_READ, SuspendedPolicy, step
from leader.core.latch.model import LatchTimer, Node, Place, SetLatchTimer

NODE = Node("_c_x-latch-0000000007", session_id=11)
BEFORE = "_c_y-latch-0000000006"
NEXT = m.Waiting(NODE, Place(1, BEFORE))


def test_starting_joins_the_queue() -> None:
    moved = step(m.Latent(), m.Started())

    assert moved.state == m.Joining()
    assert moved.effects == (m.Join(),)


def test_the_oldest_claims_and_does_not_hold_before_the_claim_is_answered() -> None:
    moved = step(m.Waiting(NODE), m.SawSelf(Place(0)))

    assert moved.state == m.Claiming(NODE)
    assert moved.effects == (m.TakeLock(NODE),)


def test_the_next_in_line_claims_at_once_when_the_node_before_it_is_gone() -> None:
    assert step(NEXT, m.NodeGone(BEFORE)).effects == (m.TakeLock(NODE),)


@pytest.mark.parametrize(
    ("state", "gone"),
    [
        (NEXT, "_c_z-latch-0000000005"),
        (m.Waiting(NODE, Place(2, BEFORE)), BEFORE),
        (m.Waiting(NODE), BEFORE),
    ],
    ids=["another node", "not the next in line", "place not known"],
)
def test_any_other_node_that_is_gone_only_makes_it_look(state: m.Waiting, gone: str) -> None:
    moved = step(state, m.NodeGone(gone))

    assert moved.state == state
    assert moved.effects == (m.ReadQueue(NODE),)


def test_who_had_trouble_does_not_claim_on_what_it_saw_before() -> None:
    failed = step(NEXT, m.CallFailed("no answer"))
    gone = step(failed.state, m.NodeGone(BEFORE))

    assert gone.effects == (m.ReadQueue(NODE),)


def test_the_next_in_line_proves_itself_and_now_and_then_looks() -> None:
    proving = step(NEXT, m.TimerDue())
    tired = step(m.Waiting(NODE, Place(1, BEFORE), proofs=PROOFS_BEFORE_READ), m.TimerDue())

    assert proving.effects == (m.Prove(NODE),)
    assert step(proving.state, m.Proven()).effects == (SetLatchTimer(LatchTimer.PROOF),)
    assert tired.effects == (m.ReadQueue(NODE),)


def test_the_lock_is_held_when_the_claim_was_committed() -> None:
    moved = step(m.Claiming(NODE), m.Claimed())

    assert moved.state == m.Holding(NODE)
    assert moved.effects == (m.Gained(NODE), SetLatchTimer(LatchTimer.FIRST_PROOF))


@pytest.mark.parametrize("answer", [m.Refused("x"), m.CallFailed("x")])
def test_a_claim_without_a_yes_leads_back_to_looking(answer: m.Event) -> None:
    moved = step(m.Claiming(NODE), answer)

    assert moved.state == m.Waiting(NODE, tries=1)
    assert moved.effects == (SetLatchTimer(LatchTimer.RETRY, 1),)


def test_who_is_barred_tells_its_owner_and_stays() -> None:
    moved = step(m.Claiming(NODE), m.Barred("yields to b", at_once=True))

    assert moved.state == m.Waiting(NODE, Place(0))
    assert m.LatchVetoed("yields to b", at_once=True) in moved.effects


def test_a_postponed_claim_is_tried_again() -> None:
    postponed = step(m.Claiming(NODE), m.Postponed("paused"))

    assert postponed.effects == (SetLatchTimer(LatchTimer.FIRST_PROOF),)
    assert step(postponed.state, m.TimerDue()).effects == (m.ReadQueue(NODE),)


def test_under_the_standard_policy_a_broken_connection_loses_the_lock_at_once() -> None:
    moved = step(m.Holding(NODE), m.LinkDown())

    assert moved.state == m.Suspended(NODE)
    assert isinstance(moved.effects[0], m.LatchLost)


def test_under_the_session_policy_it_does_not_but_a_timer_runs() -> None:
    moved = step(m.Holding(NODE), m.LinkDown(), SuspendedPolicy.SESSION)
    back = step(moved.state, m.LinkUp(11), SuspendedPolicy.SESSION)

    assert moved.state == m.Suspended(NODE, held=True)
    assert moved.effects == (SetLatchTimer(LatchTimer.DEADLINE),)
    assert back.state == m.Holding(NODE)
    assert back.effects == (m.ReadQueue(NODE),)


@pytest.mark.parametrize("event", [m.SessionGone(), m.LinkUp(12), m.TimerDue()])
def test_under_the_session_policy_the_lock_is_lost_with_the_session_or_the_time(event: m.Event) -> None:
    moved = step(m.Suspended(NODE, held=True), event, SuspendedPolicy.SESSION)

    assert isinstance(moved.effects[0], m.LatchLost)


def test_losing_the_session_after_suspension_does_not_lose_the_lock_twice() -> None:
    suspended = step(m.Holding(NODE), m.LinkDown())

    assert step(suspended.state, m.SessionGone()).effects == (m.Join(),)


def test_the_same_session_keeps_the_node_and_another_makes_a_new_one() -> None:
    assert step(m.Suspended(NODE), m.LinkUp(11)).effects == (m.ReadQueue(NODE),)
    assert step(m.Suspended(NODE), m.LinkUp(12)).effects == (m.Join(),)


def test_a_proof_without_answer_ends_it_and_cuts_a_link_that_may_be_dead() -> None:
    moved = step(m.Holding(NODE), m.CallFailed("late"))

    assert moved.effects[:2] == (m.LatchLost("late"), m.ForceReconnect())


def test_an_older_latch_in_the_queue_ends_it() -> None:
    moved = step(m.Holding(NODE), m.SawSelf(Place(1, BEFORE)))

    assert isinstance(moved.effects[0], m.LatchLost)
    assert moved.state == m.Waiting(NODE, tries=1)


def test_a_deleted_node_ends_it_and_makes_a_new_one() -> None:
    moved = step(m.Holding(NODE), m.LatchGone())

    assert moved.state == m.Joining()
    assert moved.effects == (m.LatchLost("the latch node was deleted"), m.Join())


def test_closing_says_first_that_the_lock_is_lost_and_forgets_the_node_only_when_it_is_gone() -> None:
    closing = step(m.Holding(NODE), m.LatchCloseAsked("closed"))
    unsure = step(closing.state, m.CallFailed("no answer"))
    retried = step(unsure.state, m.TimerDue())

    assert closing.effects == (m.LatchLost("closed"), m.Withdraw())
    assert unsure.state == m.Withdrawing(1)
    assert retried.effects == (m.Withdraw(),)
    assert step(retried.state, m.Withdrawn()).effects == (m.LatchEnded(),)


def test_a_loss_while_withdrawing_forgets_nothing() -> None:
    assert step(m.Withdrawing(), m.SessionGone()).state == m.Withdrawing()
