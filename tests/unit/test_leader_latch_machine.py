"""The decisions of a latch, one by one."""

from __future__ import annotations

import pytest

from leader.core.latch import effects as do
from leader.core.latch import events as ev
from leader.core.latch import states as st
from leader.core.latch.effects import SetTimer, Timer
from leader.core.latch.machine import PATROLS_BEFORE_LOOK, SuspendedPolicy, step
from leader.core.latch.states import Node, Place

NODE = Node("_c_x-latch-0000000007", session_id=11)
BEFORE = "_c_y-latch-0000000006"
NEXT = st.Waiting(NODE, Place(1, BEFORE))


def test_starting_joins_the_queue() -> None:
    moved = step(st.Latent(), ev.Started())

    assert moved.state == st.Joining()
    assert moved.effects == (do.Join(),)


def test_the_oldest_claims_and_does_not_hold_before_the_claim_is_answered() -> None:
    moved = step(st.Waiting(NODE), ev.SawSelf(Place(0)))

    assert moved.state == st.Claiming(NODE)
    assert moved.effects == (do.Claim(NODE),)


def test_the_next_in_line_claims_at_once_when_the_node_before_it_is_gone() -> None:
    assert step(NEXT, ev.NodeGone(BEFORE)).effects == (do.Claim(NODE),)


@pytest.mark.parametrize(
    ("state", "gone"),
    [
        (NEXT, "_c_z-latch-0000000005"),
        (st.Waiting(NODE, Place(2, BEFORE)), BEFORE),
        (st.Waiting(NODE), BEFORE),
    ],
    ids=["another node", "not the next in line", "place not known"],
)
def test_any_other_node_that_is_gone_only_makes_it_look(state: st.Waiting, gone: str) -> None:
    moved = step(state, ev.NodeGone(gone))

    assert moved.state == state
    assert moved.effects == (do.Look(NODE),)


def test_who_had_trouble_does_not_claim_on_what_it_saw_before() -> None:
    failed = step(NEXT, ev.CallFailed("no answer"))
    gone = step(failed.state, ev.NodeGone(BEFORE))

    assert gone.effects == (do.Look(NODE),)


def test_the_next_in_line_proves_itself_and_now_and_then_looks() -> None:
    proving = step(NEXT, ev.Due())
    tired = step(st.Waiting(NODE, Place(1, BEFORE), patrols=PATROLS_BEFORE_LOOK), ev.Due())

    assert proving.effects == (do.Prove(NODE),)
    assert step(proving.state, ev.Proven()).effects == (SetTimer(Timer.PROOF),)
    assert tired.effects == (do.Look(NODE),)


def test_the_lock_is_held_when_the_claim_was_committed() -> None:
    moved = step(st.Claiming(NODE), ev.Claimed())

    assert moved.state == st.Holding(NODE)
    assert moved.effects == (do.Gain(NODE), SetTimer(Timer.FIRST_PROOF))


@pytest.mark.parametrize("answer", [ev.Refused("x"), ev.CallFailed("x"), ev.Crashed("x")])
def test_a_claim_without_a_yes_leads_back_to_looking(answer: ev.Event) -> None:
    moved = step(st.Claiming(NODE), answer)

    assert moved.state == st.Waiting(NODE, tries=1)
    assert moved.effects == (SetTimer(Timer.RETRY, 1),)


def test_who_is_barred_tells_its_owner_and_stays() -> None:
    moved = step(st.Claiming(NODE), ev.Barred("yields to b", at_once=True))

    assert moved.state == st.Waiting(NODE, Place(0))
    assert do.Bar("yields to b", at_once=True) in moved.effects


def test_a_postponed_claim_is_tried_again() -> None:
    postponed = step(st.Claiming(NODE), ev.Postponed("paused"))

    assert postponed.effects == (SetTimer(Timer.FIRST_PROOF),)
    assert step(postponed.state, ev.Due()).effects == (do.Look(NODE),)


def test_under_the_standard_policy_a_broken_connection_loses_the_lock_at_once() -> None:
    moved = step(st.Holding(NODE), ev.LinkDown())

    assert moved.state == st.Suspended(NODE)
    assert isinstance(moved.effects[0], do.Lose)


def test_under_the_session_policy_it_does_not_but_a_timer_runs() -> None:
    moved = step(st.Holding(NODE), ev.LinkDown(), SuspendedPolicy.SESSION)
    back = step(moved.state, ev.LinkUp(11), SuspendedPolicy.SESSION)

    assert moved.state == st.Suspended(NODE, held=True)
    assert moved.effects == (SetTimer(Timer.DEADLINE),)
    assert back.state == st.Holding(NODE)
    assert back.effects == (do.Look(NODE),)


@pytest.mark.parametrize("event", [ev.SessionGone(), ev.LinkUp(12), ev.Due()])
def test_under_the_session_policy_the_lock_is_lost_with_the_session_or_the_time(event: ev.Event) -> None:
    moved = step(st.Suspended(NODE, held=True), event, SuspendedPolicy.SESSION)

    assert isinstance(moved.effects[0], do.Lose)


def test_losing_the_session_after_suspension_does_not_lose_the_lock_twice() -> None:
    suspended = step(st.Holding(NODE), ev.LinkDown())

    assert step(suspended.state, ev.SessionGone()).effects == (do.Join(),)


def test_the_same_session_keeps_the_node_and_another_makes_a_new_one() -> None:
    assert step(st.Suspended(NODE), ev.LinkUp(11)).effects == (do.Look(NODE),)
    assert step(st.Suspended(NODE), ev.LinkUp(12)).effects == (do.Join(),)


def test_a_proof_without_answer_ends_it_and_cuts_a_link_that_may_be_dead() -> None:
    moved = step(st.Holding(NODE), ev.CallFailed("late"))

    assert moved.effects[:2] == (do.Lose("late"), do.ForceReconnect())


def test_an_older_latch_in_the_queue_ends_it() -> None:
    moved = step(st.Holding(NODE), ev.SawSelf(Place(1, BEFORE)))

    assert isinstance(moved.effects[0], do.Lose)
    assert moved.state == st.Waiting(NODE, tries=1)


def test_a_deleted_node_ends_it_and_makes_a_new_one() -> None:
    moved = step(st.Holding(NODE), ev.LatchGone())

    assert moved.state == st.Joining()
    assert moved.effects == (do.Lose("our latch node was deleted"), do.Join())


def test_closing_says_first_that_the_lock_is_lost_and_forgets_the_node_only_when_it_is_gone() -> None:
    closing = step(st.Holding(NODE), ev.CloseAsked("closed"))
    unsure = step(closing.state, ev.CallFailed("no answer"))
    retried = step(unsure.state, ev.Due())

    assert closing.effects == (do.Lose("closed"), do.Withdraw())
    assert unsure.state == st.Withdrawing(1)
    assert retried.effects == (do.Withdraw(),)
    assert step(retried.state, ev.Withdrawn()).effects == (do.End(),)


def test_a_loss_while_withdrawing_forgets_nothing() -> None:
    assert step(st.Withdrawing(), ev.SessionGone()).state == st.Withdrawing()
