"""A planned hand-over between two cores: what each of them does, and what it leaves for later."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from leader import Verdict
from leader.office import events as ev
from leader.office import states as st
from tests.office_stage import PATHS, Member, S, Server


def _pair(server: Server) -> tuple[Member, Member]:
    """One leads and knows who stands behind it; the other waits."""
    one, two = server.member("one"), server.member("two")
    one.post(ev.AddAsked())
    server.settle()
    two.post(ev.AddAsked())
    server.wait(2 * S)
    assert one.core.foreseen
    return one, two


def test_who_has_handed_over_leaves_zookeeper_to_its_successor_for_a_moment_before_it_ends() -> None:
    server = Server()
    one, two = _pair(server)

    one.post(ev.CloseAsked())
    server.settle()

    assert two.told == [("elected", 2)]
    assert one.card() is not None
    assert not one.core.ended
    server.wait(timedelta(milliseconds=10))
    assert one.card() is None
    assert one.core.ended


def test_who_has_nobody_to_hand_over_to_takes_its_card_away_at_once() -> None:
    server = Server()
    _, two = _pair(server)

    two.post(ev.CloseAsked())
    server.settle()

    assert two.card() is None
    assert two.core.ended


def test_guard_is_asked_as_soon_as_the_epoch_is_known_to_be_raised_for_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    one, two = _pair(server)
    asked_in: list[type] = []
    ask = two.ask

    def noting(report: Callable[[Verdict], None]) -> bool:
        asked_in.append(type(two.core.state))
        return ask(report)

    monkeypatch.setattr(two, "ask", noting)
    one.post(ev.CloseAsked())
    server.settle()

    assert asked_in == [st.InLine], "while it takes the lock, and once"
    assert two.told == [("elected", 2)]


def test_electable_is_told_without_a_word_to_zookeeper_and_the_others_learn_of_it_as_the_next_thing() -> None:
    """What tells it can only do so when the step has ended, and a request would put that off."""
    server = Server()
    one, two = _pair(server)
    two.answer_at_once = None
    one.post(ev.CloseAsked())
    server.settle()
    assert isinstance(two.core.state, st.Guarding)

    requests = list(two.core.handle(ev.GuardAnswered(Verdict(True))))

    assert requests == []
    assert two.told == [("elected", 2)]
    assert server.zookeeper.tree.get(PATHS.leader) is None
    assert two.core.due_at is not None
    assert two.core.due_at <= server.now
    server.settle()
    assert server.zookeeper.tree.get(PATHS.leader) is not None
    card = two.card()
    assert card is not None
    assert card.leads
