"""The decisions of a participant above its latch, one by one."""

from __future__ import annotations

import pytest

from leader import FencingToken, Leadership, Participant, Verdict
from leader.core.participant import model as m
from leader.core.participant.machine import step
from leader.core.participant.model import Leave, SetTimer, Timer

TERM = Leadership(5, FencingToken("/x/epoch", 4, 5, "/x/leader-lock/l"), Participant("a", "h", 1, "b"))
YES, NO = Verdict(True), Verdict(False, ("file 7 is missing", "file 8 too"))


def test_being_added_twice_makes_one_latch() -> None:
    added = step(m.Outside(), m.AddAsked())

    assert added.effects == (m.StartLatch(),)
    assert step(added.state, m.AddAsked()).effects == ()


@pytest.mark.parametrize(
    "leaving",
    [m.Leaving("no", 5, Leave.BACK_OFF), m.Draining(TERM, "enough", Leave.BACK_OFF, 5)],
    ids=["leaving", "draining"],
)
def test_being_added_while_leaving_spares_the_back_off(leaving: m.Leaving | m.Draining) -> None:
    wanted = step(leaving, m.AddAsked())
    assert wanted.effects == ()

    ended = step(wanted.state, m.LatchEnded())

    assert ended.state == m.InLine(refusals=0)
    assert ended.effects == (m.StartLatch(),)


@pytest.mark.parametrize(
    "leaving",
    [m.Leaving("closed", 1, Leave.CLOSE), m.Draining(TERM, "closed", Leave.CLOSE)],
    ids=["leaving", "draining"],
)
def test_being_added_while_closing_changes_nothing(leaving: m.Leaving | m.Draining) -> None:
    assert step(leaving, m.AddAsked()).state == leaving


def test_the_guard_is_asked_when_the_lock_is_held_and_against_the_clock() -> None:
    moved = step(m.InLine(), m.LatchGained(TERM))

    assert moved.state == m.Guarding(TERM)
    assert moved.effects == (SetTimer(Timer.GUARD), m.AskGuard(5))


def test_a_yes_is_granted_and_nothing_is_asked_of_zookeeper_before_the_electable_knows() -> None:
    moved = step(m.Guarding(TERM), m.GuardSaid(5, YES))

    assert moved.state == m.Leading(TERM)
    assert moved.effects == (m.GrantLeadership(TERM), SetTimer(Timer.PUBLISH))


def test_a_leader_publishes_soon_again_after_a_failure_and_forgets_refusals_when_it_has_led_for_long() -> (
    None
):
    new = m.Leading(TERM, refusals=2)
    told = step(new, m.DelayOver())
    failed = step(told.state, m.WriteFailed("no answer"))
    again = step(failed.state, m.DelayOver())
    settled = step(told.state, m.DelayOver())

    assert told.state == m.Leading(TERM, refusals=2, published=True)
    assert told.effects == (SetTimer(Timer.SETTLED), m.Publish(TERM))
    assert failed.effects == (SetTimer(Timer.RETRY, 1),)
    assert again.effects == told.effects
    assert step(again.state, m.WriteFailed("no answer")).effects == (SetTimer(Timer.RETRY, 2),)
    assert step(again.state, m.Published()).state == told.state
    assert settled.state == m.Leading(TERM, published=True)
    assert settled.effects == (m.Publish(TERM),)


def test_a_no_closes_the_latch_and_says_why() -> None:
    moved = step(m.Guarding(TERM, refusals=2), m.GuardSaid(5, NO))

    assert moved.state == m.Leaving("file 7 is missing; file 8 too", 3, Leave.BACK_OFF)
    assert moved.effects == (m.CloseLatch("file 7 is missing; file 8 too"),)


def test_silence_is_a_no() -> None:
    assert step(m.Guarding(TERM), m.DelayOver()).effects == (
        m.CloseLatch("the guard gave no answer in time"),
    )


def test_an_answer_for_an_older_epoch_is_none() -> None:
    moved = step(m.Guarding(TERM), m.GuardSaid(4, YES))

    assert moved.state == m.Guarding(TERM)
    assert moved.effects == ()


def test_a_late_yes_after_the_lock_was_lost_grants_nothing() -> None:
    lost = step(m.Guarding(TERM), m.LatchLost("link"))

    assert step(lost.state, m.GuardSaid(5, YES)).effects == ()


def test_a_lost_lock_ends_leadership_once_and_the_latch_goes_on() -> None:
    lost = step(m.Leading(TERM), m.LatchLost("link"))

    assert lost.state == m.InLine()
    assert lost.effects == (m.Revoke(TERM, "link"),)
    assert step(lost.state, m.LatchLost("again")).effects == ()


@pytest.mark.parametrize(
    ("event", "leave"),
    [
        (m.AbdicationAsked("upgrade"), Leave.BACK_OFF),
        (m.AbdicationAsked("switchover", 5, at_once=True), Leave.REQUEUE),
        (m.RemoveAsked(), Leave.OUT),
        (m.CloseAsked(), Leave.CLOSE),
    ],
)
def test_who_steps_down_lets_its_work_finish_before_it_lets_go(event: m.Event, leave: Leave) -> None:
    stepping = step(m.Leading(TERM), event)
    done = step(stepping.state, m.Drained(5))

    assert [type(effect) for effect in stepping.effects] == [m.Revoke, SetTimer]
    assert isinstance(stepping.state, m.Draining)
    assert [type(effect) for effect in done.effects] == [m.CloseLatch]
    assert isinstance(done.state, m.Leaving)
    assert done.state.leave is leave


def test_work_that_does_not_finish_does_not_hold_the_lock_for_ever() -> None:
    draining = m.Draining(TERM, "closed", Leave.CLOSE)

    assert step(draining, m.Drained(4)).effects == ()
    assert step(draining, m.DelayOver()).effects == (m.CloseLatch("closed"),)


def test_an_abdication_meant_for_an_older_term_is_none() -> None:
    assert step(m.Leading(TERM), m.AbdicationAsked("late", epoch=4)).state == m.Leading(TERM)


@pytest.mark.parametrize(
    ("leave", "state", "effect"),
    [
        (Leave.BACK_OFF, m.BackingOff("x", 2), SetTimer(Timer.BACK_OFF, 2)),
        (Leave.REQUEUE, m.InLine(2), m.StartLatch()),
        (Leave.CLOSE, m.Closed(), m.EndCore()),
    ],
)
def test_what_follows_when_the_old_latch_is_gone(leave: Leave, state: m.State, effect: m.Effect) -> None:
    moved = step(m.Leaving("x", 2, leave), m.LatchEnded())

    assert moved.state == state
    assert moved.effects == (effect,)


def test_no_new_latch_while_the_old_one_is_closing() -> None:
    leaving = m.Leaving("x", 1, Leave.OUT)
    added = step(leaving, m.AddAsked())

    assert added.effects == ()
    assert step(added.state, m.LatchEnded()).effects == (m.StartLatch(),)


@pytest.mark.parametrize("event", [m.Poked(), m.AddAsked(), m.DelayOver()])
def test_a_back_off_ends_with_its_time_or_when_readiness_changes(event: m.Event) -> None:
    assert step(m.BackingOff("x", 3), event).effects == (m.StartLatch(),)


def test_readiness_that_changed_makes_the_next_back_off_short() -> None:
    assert step(m.InLine(refusals=4), m.Poked()).state == m.InLine(0)
    assert step(m.Guarding(TERM, refusals=4), m.Poked()).state == m.Guarding(TERM, 0)


def test_who_yields_goes_to_the_end_of_the_queue_without_a_pause() -> None:
    moved = step(m.InLine(), m.LatchVetoed("yields to b", at_once=True))

    assert moved.state == m.Leaving("yields to b", 0, Leave.REQUEUE)


def test_a_refused_publication_ends_leadership() -> None:
    moved = step(m.Leading(TERM), m.LeaderNodeRefused("epoch 5 is over"))

    assert moved.effects == (m.Revoke(TERM, "epoch 5 is over"), m.CloseLatch("epoch 5 is over"))


def test_closing_wins_over_every_other_plan() -> None:
    for state in (m.Draining(TERM, "x", Leave.REQUEUE), m.Leaving("x", 1, Leave.BACK_OFF)):
        closed = step(state, m.CloseAsked()).state
        assert isinstance(closed, m.Draining | m.Leaving)
        assert closed.leave is Leave.CLOSE
        removed = step(closed, m.RemoveAsked()).state
        assert isinstance(removed, m.Draining | m.Leaving)
        assert removed.leave is Leave.CLOSE
