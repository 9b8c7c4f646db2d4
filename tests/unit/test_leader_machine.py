"""The decisions of the elector, one by one."""

from __future__ import annotations

import pytest

from leader import effects as do
from leader import events as ev
from leader import states as st
from leader.effects import SetTimer, Timer
from leader.fencing import FencingToken
from leader.machine import step
from leader.protocol.records import Leadership, Participant
from leader.states import Latch, State

LATCH = Latch("0" * 32 + "-latch-0000000007", session_id=11)
LEADERSHIP = Leadership(5, FencingToken("/x/epoch", 4, 5), Participant("a", "h", 1, "b"))


def asks_for_office(effects: tuple[do.Effect, ...]) -> bool:
    return any(isinstance(effect, do.Grant | do.Announce | do.AskGuard) for effect in effects)


def test_starting_joins_the_queue() -> None:
    moved = step(st.Latent(), ev.Started())

    assert moved.state == st.Joining()
    assert moved.effects == (do.Join(),)


def test_the_oldest_latch_raises_the_epoch_before_anything_else() -> None:
    moved = step(st.Queued(LATCH), ev.SawSelf(0))

    assert moved.state == st.Elected(LATCH)
    assert moved.effects == (do.TakeEpoch(LATCH),)


def test_a_younger_latch_waits() -> None:
    moved = step(st.Queued(LATCH, tries=3), ev.SawSelf(2))

    assert moved.state == st.Queued(LATCH, position=2)
    assert moved.effects == (SetTimer(Timer.PATROL),)


def test_the_guard_is_asked_after_the_epoch_is_raised_and_against_the_clock() -> None:
    moved = step(st.Elected(LATCH), ev.EpochTaken(LEADERSHIP))

    assert moved.state == st.Guarding(LATCH, LEADERSHIP)
    assert moved.effects == (SetTimer(Timer.GUARD), do.AskGuard(5))


def test_a_yes_of_the_guard_is_announced_before_it_is_granted() -> None:
    announcing = step(st.Guarding(LATCH, LEADERSHIP), ev.GuardSaid(5, True))
    granting = step(announcing.state, ev.Announced())

    assert announcing.effects == (do.Announce(LATCH, LEADERSHIP),)
    assert granting.state == st.Leading(LATCH, LEADERSHIP)
    assert granting.effects == (do.Grant(LEADERSHIP), SetTimer(Timer.PROOF))


def test_a_yes_for_an_older_epoch_is_not_heard() -> None:
    guarding = st.Guarding(LATCH, LEADERSHIP)

    assert step(guarding, ev.GuardSaid(4, True)).state == guarding
    assert step(guarding, ev.GuardSaid(4, True)).effects == ()


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (ev.GuardSaid(5, False, ("not synced", "disk full")), "not synced; disk full"),
        (ev.GuardSaid(5, False), "the guard said no"),
        (ev.Due(), "the guard gave no answer in time"),
        (ev.Barred("wiped"), "wiped"),
        (ev.Crashed("bug"), "bug"),
        (ev.AbdicationAsked("operator"), "operator"),
    ],
)
def test_a_guarding_candidate_that_is_not_wanted_gives_its_latch_back(event: ev.Event, reason: str) -> None:
    moved = step(st.Guarding(LATCH, LEADERSHIP, refusals=2), event)

    assert moved.state == st.Withdrawing(reason, refusals=3)
    assert moved.effects == (do.Withdraw(),)


def test_it_backs_off_only_when_its_latch_is_known_to_be_gone() -> None:
    withdrawing = st.Withdrawing("no", refusals=3)

    unknown = step(withdrawing, ev.Troubled("no answer"))
    gone = step(unknown.state, ev.Withdrawn())

    assert unknown.state == st.Withdrawing("no", refusals=3, tries=1)
    assert unknown.effects == (SetTimer(Timer.RETRY, 1),)
    assert gone.state == st.BackingOff("no", refusals=3)
    assert gone.effects == (SetTimer(Timer.BACK_OFF, 3),)


def test_after_the_back_off_it_queues_again_and_remembers_how_often_it_was_refused() -> None:
    moved = step(st.BackingOff("no", refusals=3), ev.Due())

    assert moved.state == st.Joining(refusals=3)
    assert moved.effects == (do.Join(),)


def test_a_poke_ends_the_back_off_and_forgets_the_refusals() -> None:
    moved = step(st.BackingOff("no", refusals=3), ev.Poked())

    assert moved.state == st.Joining()
    assert moved.effects == (do.Join(),)


@pytest.mark.parametrize("state", [st.Elected(LATCH), st.Confirming(LATCH, LEADERSHIP)])
def test_an_unanswered_step_towards_office_leads_back_to_looking(state: State) -> None:
    moved = step(state, ev.Troubled("no answer"))

    assert moved.state == st.Queued(LATCH, tries=1)
    assert moved.effects == (SetTimer(Timer.RETRY, 1),)


def test_a_leader_proves_itself_when_the_timer_says_so() -> None:
    leading = st.Leading(LATCH, LEADERSHIP)

    assert step(leading, ev.Due()).effects == (do.Prove(LATCH, LEADERSHIP),)
    assert step(leading, ev.Proven()).effects == (SetTimer(Timer.PROOF),)


def test_a_leader_looks_after_its_leader_node_when_a_watch_fires() -> None:
    leading = st.Leading(LATCH, LEADERSHIP)

    assert step(leading, ev.Nudged()).effects == (do.Look(LATCH),)
    assert step(leading, ev.SawSelf(0)).effects == (do.KeepAnnounced(LATCH, LEADERSHIP),)


@pytest.mark.parametrize(
    ("event", "then"),
    [
        (ev.LinkDown(), st.Suspended(LATCH)),
        (ev.SessionGone(), st.Joining()),
        (ev.LinkUp(session_id=12), st.Joining()),
        (ev.LatchGone(), st.Joining()),
        (ev.SawSelf(1), st.Queued(LATCH, tries=1)),
        (ev.Refused("epoch moved on"), st.Queued(LATCH, tries=1)),
        (ev.Troubled("proof late"), st.Suspended(LATCH)),
        (ev.Crashed("bug"), st.Withdrawing("bug", refusals=1)),
        (ev.AbdicationAsked("operator"), st.Withdrawing("operator", refusals=1)),
        (ev.AbdicationAsked("elected() raised", epoch=5), st.Withdrawing("elected() raised", refusals=1)),
        (ev.CloseAsked(), st.Withdrawing("closed", refusals=1, closing=True)),
    ],
)
def test_a_leader_stops_leading_before_it_does_anything_else(event: ev.Event, then: State) -> None:
    moved = step(st.Leading(LATCH, LEADERSHIP), event)

    assert moved.state == then
    assert isinstance(moved.effects[0], do.Revoke)
    assert moved.effects[0].leadership == LEADERSHIP


def test_a_leader_that_cannot_prove_itself_cuts_the_link_that_may_be_dead() -> None:
    moved = step(st.Leading(LATCH, LEADERSHIP), ev.Troubled("late"))

    assert do.ForceReconnect() in moved.effects


def test_a_wish_to_end_an_older_term_does_not_end_this_one() -> None:
    leading = st.Leading(LATCH, LEADERSHIP)

    assert step(leading, ev.AbdicationAsked("late news", epoch=4)).state == leading


@pytest.mark.parametrize("event", [ev.AbdicationAsked("x"), ev.CloseAsked()])
def test_who_goes_of_its_own_will_lets_the_work_end_first(event: ev.Event) -> None:
    revoke = step(st.Leading(LATCH, LEADERSHIP), event).effects[0]

    assert isinstance(revoke, do.Revoke)
    assert revoke.handover


def test_after_a_break_the_same_session_looks_again_and_another_session_joins_anew() -> None:
    same = step(st.Suspended(LATCH), ev.LinkUp(session_id=11))
    other = step(st.Suspended(LATCH), ev.LinkUp(session_id=12))

    assert (same.state, same.effects) == (st.Queued(LATCH), (do.Look(LATCH),))
    assert (other.state, other.effects) == (st.Joining(), (do.Join(),))


def test_a_suspended_elector_asks_for_the_link_itself_in_case_the_news_was_lost() -> None:
    assert do.Probe() in step(st.Suspended(LATCH), ev.Due()).effects


@pytest.mark.parametrize(
    "state",
    [
        st.Queued(LATCH),
        st.Elected(LATCH),
        st.Guarding(LATCH, LEADERSHIP),
        st.Confirming(LATCH, LEADERSHIP),
        st.Suspended(LATCH),
        st.Joining(),
    ],
)
def test_closing_deletes_whatever_may_be_ours_and_then_ends(state: State) -> None:
    closing = step(state, ev.CloseAsked())

    assert isinstance(closing.state, st.Withdrawing)
    assert closing.state.closing
    assert closing.effects == (do.Withdraw(),)
    assert step(closing.state, ev.Withdrawn()).state == st.Closed()


@pytest.mark.parametrize("state", [st.Latent(), st.BackingOff("no")])
def test_closing_without_a_latch_ends_at_once(state: State) -> None:
    assert step(state, ev.CloseAsked()).state == st.Closed()


def test_no_link_news_moves_a_candidate_closer_to_office() -> None:
    candidates: list[State] = [st.Elected(LATCH), st.Guarding(LATCH, LEADERSHIP)]
    for state in candidates:
        for event in (ev.LinkUp(11), ev.LinkUp(12), ev.LinkDown(), ev.SessionGone(), ev.LatchGone()):
            assert not asks_for_office(step(state, event).effects)
