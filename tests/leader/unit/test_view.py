"""What is known of a leader, reading by reading."""

from __future__ import annotations

from datetime import timedelta

from leader.flink.view import Knowledge, LeaderView, ViewState

AT = timedelta(seconds=5)
LATER = timedelta(seconds=9)
NOTHING = Knowledge.none(AT)


def _leads(name: str, epoch: int, at: timedelta = AT) -> LeaderView:
    return LeaderView(ViewState.CURRENT, at, name, "h:1", epoch, "0x1")


NINE = NOTHING.read(_leads("a", 9), 100)


def test_a_reading_is_current_and_as_old_as_its_question() -> None:
    view = NINE.view

    assert (view.state, view.id, view.address, view.epoch, view.session, view.as_of) == (
        ViewState.CURRENT,
        "a",
        "h:1",
        9,
        "0x1",
        AT,
    )
    assert view.reason == ""


def test_no_node_means_no_leader_and_that_is_known() -> None:
    view = NINE.read(LeaderView(ViewState.CURRENT, LATER)).view

    assert (view.state, view.id, view.epoch, view.as_of) == (ViewState.CURRENT, None, None, LATER)


def test_a_break_makes_it_stale_but_keeps_what_was_known_and_its_age() -> None:
    view = NINE.doubted("cut off").view

    assert (view.state, view.id, view.as_of, view.reason) == (ViewState.STALE, "a", AT, "cut off")


def test_a_break_makes_nothing_stale_that_was_not_known() -> None:
    assert NOTHING.doubted("cut off") == NOTHING


def test_a_lower_epoch_is_unknown_with_a_reason_until_epochs_are_above_again() -> None:
    wiped = NINE.read(_leads("b", 1, LATER), 7)

    assert (wiped.view.state, wiped.view.id) == (ViewState.UNKNOWN, None)
    assert "epoch 1" in wiped.view.reason
    assert "epoch 9" in wiped.view.reason
    assert "wiped or restored" in wiped.view.reason
    assert wiped.read(_leads("b", 10), 8).view.id == "b"


def test_an_older_node_of_the_same_epoch_is_not_shown() -> None:
    assert NINE.read(_leads("b", 9), 99).view.state is ViewState.UNKNOWN
    assert NINE.read(_leads("a", 9), 101).view.state is ViewState.CURRENT


def test_two_views_that_differ_in_age_alone_say_the_same() -> None:
    assert NINE.view.says_the_same(_leads("a", 9, LATER))
    assert not NINE.view.says_the_same(NINE.doubted("why").view)
