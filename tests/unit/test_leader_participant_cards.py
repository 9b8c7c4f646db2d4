"""A participant's card, over a ZooKeeper in memory: kept as it is here, whatever others do to it."""

from __future__ import annotations

from datetime import timedelta

from leader.core.participant import model as m
from leader.protocol import requests as rq
from leader.protocol.card import decode_card
from tests.participant_stage import PATHS, S, Server


def test_a_card_that_somebody_deleted_is_soon_there_again() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()

    server.delete(PATHS.card("one"))
    server.wait(4 * S)

    card = one.card()
    assert card is not None
    assert card.leads


def test_a_card_that_somebody_wrote_over_is_soon_as_it_was() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()
    before = one.card()

    server.zookeeper.write(rq.SetData(PATHS.card("one"), b"scribble"))
    server.wait(4 * S)

    assert one.card() == before
    assert one.told == [("elected", 1)]


def test_an_earlier_start_of_the_same_participant_is_waited_for_no_longer_than_it_lives() -> None:
    server = Server()
    first = server.member("one")
    first.post(m.AddAsked())
    server.settle()
    first.die()
    again = server.member("one", boot_id="another", requeue_backoff_min=timedelta(seconds=25))
    again.post(m.AddAsked())

    server.wait(2 * S)  # the session's end, the next look at the card, and some proofs

    assert [kind for kind, _ in again.told] == ["elected"]


def test_a_card_that_cannot_be_written_for_a_reason_nobody_foresaw_is_written_later() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()

    def no_more_threads(request: rq.Request) -> None:
        if getattr(request, "path", "") == PATHS.card("one"):
            raise RuntimeError("can't start new thread")

    one.before = no_more_threads
    one.inbox.append(lambda: one.core.readiness(False, 3, 0, ("three files",)))
    server.wait(S / 2)
    assert one.told == [("elected", 1)]
    one.before = lambda _request: None
    server.wait(S / 2)

    node = server.zookeeper.tree.get(PATHS.card("one"))
    assert node is not None
    assert decode_card(node.data, "").rank.missing == 3


def test_a_card_that_another_has_made_meanwhile_is_not_written_over() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()
    server.delete(PATHS.card("one"))
    twin = server.member("one", boot_id="twin")
    twin.post(m.AddAsked())
    server.settle()

    one.inbox.append(lambda: one.core.readiness(True, 0, 0, ()))
    server.settle()

    node = server.zookeeper.tree.get(PATHS.card("one"))
    assert node is not None
    assert node.owner == decode_card(node.data, "").session_id
