"""What an observer knows, reading by reading."""

from __future__ import annotations

from datetime import timedelta

from leader.flink.view import Knowledge, Sighting, ViewState

AT = timedelta(seconds=5)
LATER = timedelta(seconds=9)
NINE = Sighting("a", "h:1", 9, "0x1", 100)


def test_a_reading_is_current_and_as_old_as_its_question() -> None:
    view = Knowledge.none(timedelta(0)).saw(NINE, AT).view

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
    view = Knowledge.none(AT).saw(NINE, AT).saw(None, LATER).view

    assert (view.state, view.id, view.epoch, view.as_of) == (ViewState.CURRENT, None, None, LATER)


def test_a_break_makes_it_stale_but_keeps_what_was_known_and_its_age() -> None:
    view = Knowledge.none(AT).saw(NINE, AT).doubted("cut off").view

    assert (view.state, view.id, view.as_of, view.reason) == (ViewState.STALE, "a", AT, "cut off")


def test_a_break_makes_nothing_stale_that_was_not_known() -> None:
    before = Knowledge.none(AT)

    assert before.doubted("cut off") == before


def test_a_lower_epoch_is_unknown_with_a_reason_until_epochs_are_above_again() -> None:
    wiped = Knowledge.none(AT).saw(NINE, AT).saw(Sighting("b", "h:2", 1, "0x2", 7), LATER)

    assert (wiped.view.state, wiped.view.id) == (ViewState.UNKNOWN, None)
    assert "epoch 1" in wiped.view.reason
    assert "epoch 9" in wiped.view.reason
    assert "wiped or restored" in wiped.view.reason
    assert wiped.saw(Sighting("b", "h:2", 10, "0x2", 8), LATER).view.id == "b"


def test_an_older_node_of_the_same_epoch_is_not_shown() -> None:
    known = Knowledge.none(AT).saw(NINE, AT)

    assert known.saw(Sighting("b", "h:2", 9, "0x2", 99), LATER).view.state is ViewState.UNKNOWN
    assert known.saw(Sighting("a", "h:1", 9, "0x1", 101), LATER).view.state is ViewState.CURRENT


def test_two_views_that_differ_in_age_alone_say_the_same() -> None:
    known = Knowledge.none(AT).saw(NINE, AT)

    assert known.view.says_the_same(known.saw(NINE, LATER).view)
    assert not known.view.says_the_same(known.doubted("why").view)
