"""The schema of the protected data: a participant that does not know it cannot lead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leader import ElectionConfig, ElectionConfigError, Leadership, schema_raised
from leader.core.participant import model as m
from leader.protocol import requests as rq
from leader.protocol.terms import EpochRecord, decode_epoch, encode_epoch
from tests.leader.unit.participant_stage import PATHS, ROOT, Member, S, Server


def queued(server: Server, name: str, **settings: Any) -> Member:
    member = server.member(name, **settings)
    member.post(m.AddAsked())
    server.settle()
    return member


def term_of(member: Member) -> Leadership | None:
    return member.core.term.leadership()


def stands(server: Server) -> EpochRecord:
    node = server.zookeeper.tree.get(PATHS.epoch)
    assert node is not None
    return decode_epoch(node.data, PATHS.epoch)


def raise_schema(server: Server, leader: Member, schema: int) -> None:
    """Raise the schema like a leader, in a transaction that checks the version."""
    term = term_of(leader)
    assert term is not None
    server.zookeeper.write(rq.SetData(PATHS.epoch, schema_raised(term.token, schema), term.token.version))


def test_new_election_begins_with_the_newest_schema_that_its_first_participant_knows() -> None:
    server = Server()

    one = queued(server, "one", newest_schema=3)

    term = term_of(one)
    assert term is not None
    assert (term.schema, stands(server).schema) == (3, 3)


def test_claim_keeps_the_schema_that_stands_there() -> None:
    server = Server()
    one = queued(server, "one", newest_schema=1)
    one.post(m.RemoveAsked())
    server.settle()

    two = queued(server, "two", newest_schema=2)

    term = term_of(two)
    assert term is not None
    assert (term.epoch, term.schema, stands(server).schema) == (2, 1, 1)


def test_hand_over_keeps_the_schema_and_tells_the_successor() -> None:
    server = Server()
    one, two = queued(server, "one", newest_schema=2), queued(server, "two", newest_schema=2)
    server.wait(2 * S)  # it reads who is behind it

    one.post(m.RemoveAsked())
    server.settle()

    term = term_of(two)
    assert term is not None
    assert (term.epoch, term.schema, stands(server)) == (2, 2, EpochRecord(2, server.queue()[0], 2))


def test_participant_does_not_take_the_lead_under_a_schema_that_it_does_not_know() -> None:
    server = Server()
    one = queued(server, "one", newest_schema=2)
    old = queued(server, "old", newest_schema=1)
    one.post(m.RemoveAsked())
    server.wait(2 * S)

    assert old.told == []
    assert "/e/epoch has schema 2, and this process knows 1" in str(old.core.status().last_abdication)
    new = queued(server, "new", newest_schema=2)
    server.wait(2 * S)
    assert [what for what, _ in new.told] == ["elected"]
    assert old.told == []


def test_raised_schema_ends_the_term_and_locks_out_a_participant_that_awaited_a_hand_over() -> None:
    server = Server()
    server.zookeeper.write(rq.EnsurePath(ROOT))
    server.zookeeper.write(rq.Create(PATHS.epoch, encode_epoch(EpochRecord(1))))  # by an older release
    one, old = queued(server, "one", newest_schema=2), queued(server, "old", newest_schema=1)
    server.wait(2 * S)

    raise_schema(server, one, 2)
    one.post(m.AbdicationAsked("the schema was raised", None))
    server.wait(3 * S)

    term = term_of(one)
    assert term is not None
    assert (term.schema, stands(server).schema) == (2, 2)
    assert old.told == []


def test_release_whose_records_are_all_of_schema_1_refuses_an_epoch_of_schema_2() -> None:
    assert json.loads(encode_epoch(EpochRecord(3, "l", 2)))["schema"] == 2
    assert encode_epoch(EpochRecord(3, "l")) == b'{"epoch": 3, "latch": "l", "schema": 1}', "as it always was"


def test_schema_below_1_is_refused() -> None:
    with pytest.raises(ElectionConfigError, match="newest_schema"):
        ElectionConfig(root="/e", newest_schema=0)
