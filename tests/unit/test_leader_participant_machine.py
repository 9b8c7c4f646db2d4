"""The decisions of a participant above its latch, one by one."""

from __future__ import annotations

import pytest

from leader import FencingToken, Leadership, Participant, Verdict
from leader.core.participant import effects as do
from leader.core.participant import events as ev
from leader.core.participant import states as st
from leader.core.participant.effects import SetTimer, Timer
from leader.core.participant.machine import step
from leader.core.participant.states import Leave

TERM = Leadership(5, FencingToken("/x/epoch", 4, 5, "/x/leader-lock/l"), Participant("a", "h", 1, "b"))
YES, NO = Verdict(True), Verdict(False, ("file 7 is missing", "file 8 too"))


def test_being_added_twice_makes_one_latch() -> None:
    added = step(st.Outside(), ev.AddAsked())

    assert added.effects == (do.StartLatch(),)
    assert step(added.state, ev.AddAsked()).effects == ()


@pytest.mark.parametrize(
    "leaving",
    [st.Leaving("no", 5, Leave.BACK_OFF), st.Draining(TERM, "enough", Leave.BACK_OFF, 5)],
    ids=["leaving", "draining"],
)
def test_being_added_while_leaving_spares_the_back_off(leaving: st.Leaving | st.Draining) -> None:
    wanted = step(leaving, ev.AddAsked())
    assert wanted.effects == ()

    ended = step(wanted.state, ev.LatchEnded())

    assert ended.state == st.InLine(refusals=0)
    assert ended.effects == (do.StartLatch(),)


@pytest.mark.parametrize(
    "leaving",
    [st.Leaving("closed", 1, Leave.CLOSE), st.Draining(TERM, "closed", Leave.CLOSE)],
    ids=["leaving", "draining"],
)
def test_being_added_while_closing_changes_nothing(leaving: st.Leaving | st.Draining) -> None:
    assert step(leaving, ev.AddAsked()).state == leaving


def test_the_guard_is_asked_when_the_lock_is_held_and_against_the_clock() -> None:
    moved = step(st.InLine(), ev.LatchGained(TERM))

    assert moved.state == st.Guarding(TERM)
    assert moved.effects == (SetTimer(Timer.GUARD), do.AskGuard(5))


def test_a_yes_is_granted_and_nothing_is_asked_of_zookeeper_before_the_electable_knows() -> None:
    moved = step(st.Guarding(TERM), ev.GuardSaid(5, YES))

    assert moved.state == st.Leading(TERM)
    assert moved.effects == (do.Grant(TERM), SetTimer(Timer.SETTLED), do.PublishSoon())


def test_a_no_closes_the_latch_and_says_why() -> None:
    moved = step(st.Guarding(TERM, refusals=2), ev.GuardSaid(5, NO))

    assert moved.state == st.Leaving("file 7 is missing; file 8 too", 3, Leave.BACK_OFF)
    assert moved.effects == (do.CloseLatch("file 7 is missing; file 8 too"),)


def test_silence_is_a_no() -> None:
    assert step(st.Guarding(TERM), ev.Due()).effects == (do.CloseLatch("the guard gave no answer in time"),)


def test_an_answer_for_an_older_epoch_is_none() -> None:
    moved = step(st.Guarding(TERM), ev.GuardSaid(4, YES))

    assert moved.state == st.Guarding(TERM)
    assert moved.effects == ()


def test_a_late_yes_after_the_lock_was_lost_grants_nothing() -> None:
    lost = step(st.Guarding(TERM), ev.LatchLost("link"))

    assert step(lost.state, ev.GuardSaid(5, YES)).effects == ()


def test_a_lost_lock_ends_leadership_once_and_the_latch_goes_on() -> None:
    lost = step(st.Leading(TERM), ev.LatchLost("link"))

    assert lost.state == st.InLine()
    assert lost.effects == (do.Revoke(TERM, "link"),)
    assert step(lost.state, ev.LatchLost("again")).effects == ()


@pytest.mark.parametrize(
    ("event", "leave"),
    [
        (ev.AbdicationAsked("upgrade"), Leave.BACK_OFF),
        (ev.AbdicationAsked("switchover", 5, at_once=True), Leave.REQUEUE),
        (ev.RemoveAsked(), Leave.OUT),
        (ev.CloseAsked(), Leave.CLOSE),
    ],
)
def test_who_steps_down_lets_its_work_finish_before_it_lets_go(event: ev.Event, leave: Leave) -> None:
    stepping = step(st.Leading(TERM), event)
    done = step(stepping.state, ev.Drained(5))

    assert [type(effect) for effect in stepping.effects] == [do.Revoke, SetTimer]
    assert isinstance(stepping.state, st.Draining)
    assert [type(effect) for effect in done.effects] == [do.CloseLatch]
    assert isinstance(done.state, st.Leaving)
    assert done.state.leave is leave


def test_work_that_does_not_finish_does_not_hold_the_lock_for_ever() -> None:
    draining = st.Draining(TERM, "closed", Leave.CLOSE)

    assert step(draining, ev.Drained(4)).effects == ()
    assert step(draining, ev.Due()).effects == (do.CloseLatch("closed"),)


def test_an_abdication_meant_for_an_older_term_is_none() -> None:
    assert step(st.Leading(TERM), ev.AbdicationAsked("late", epoch=4)).state == st.Leading(TERM)


@pytest.mark.parametrize(
    ("leave", "state", "effect"),
    [
        (Leave.BACK_OFF, st.BackingOff("x", 2), SetTimer(Timer.BACK_OFF, 2)),
        (Leave.REQUEUE, st.InLine(2), do.StartLatch()),
        (Leave.CLOSE, st.Closed(), do.End()),
    ],
)
def test_what_follows_when_the_old_latch_is_gone(leave: Leave, state: st.State, effect: do.Effect) -> None:
    moved = step(st.Leaving("x", 2, leave), ev.LatchEnded())

    assert moved.state == state
    assert moved.effects == (effect,)


def test_no_new_latch_while_the_old_one_is_closing() -> None:
    leaving = st.Leaving("x", 1, Leave.OUT)
    added = step(leaving, ev.AddAsked())

    assert added.effects == ()
    assert step(added.state, ev.LatchEnded()).effects == (do.StartLatch(),)


@pytest.mark.parametrize("event", [ev.Poked(), ev.AddAsked(), ev.Due()])
def test_a_back_off_ends_with_its_time_or_when_readiness_changes(event: ev.Event) -> None:
    assert step(st.BackingOff("x", 3), event).effects == (do.StartLatch(),)


def test_readiness_that_changed_makes_the_next_back_off_short() -> None:
    assert step(st.InLine(refusals=4), ev.Poked()).state == st.InLine(0)
    assert step(st.Guarding(TERM, refusals=4), ev.Poked()).state == st.Guarding(TERM, 0)


def test_who_yields_goes_to_the_end_of_the_queue_without_a_pause() -> None:
    moved = step(st.InLine(), ev.LatchVetoed("yields to b", at_once=True))

    assert moved.state == st.Leaving("yields to b", 1, Leave.REQUEUE)


def test_a_refused_publication_ends_leadership() -> None:
    moved = step(st.Leading(TERM), ev.Refused("epoch 5 is over"))

    assert moved.effects == (do.Revoke(TERM, "epoch 5 is over"), do.CloseLatch("epoch 5 is over"))


def test_closing_wins_over_every_other_plan() -> None:
    for state in (st.Draining(TERM, "x", Leave.REQUEUE), st.Leaving("x", 1, Leave.BACK_OFF)):
        closed = step(state, ev.CloseAsked()).state
        assert isinstance(closed, st.Draining | st.Leaving)
        assert closed.leave is Leave.CLOSE
        removed = step(closed, ev.RemoveAsked()).state
        assert isinstance(removed, st.Draining | st.Leaving)
        assert removed.leave is Leave.CLOSE
