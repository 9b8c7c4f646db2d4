"""What the election service's thread does with contenders, without a thread and without ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from leader import FencingToken, LeaderError, Leadership, Participant
from leader.flink.components import Component, Components, Term
from leader.protocol.ephemeral import EphemeralNode
from leader.zookeeper.executor import SessionExecutor


class Contender:
    def __init__(self) -> None:
        self.description = "contender"
        self.told: list[UUID | str] = []
        self.on_grant: Callable[[], None] = lambda: None

    def grant(self, session: UUID) -> None:
        self.told.append(session)
        self.on_grant()

    def revoke(self) -> None:
        self.told.append("revoke")

    def handle_error(self, error: LeaderError) -> None:
        self.told.append(str(error))


class Desk:
    """Two components, each with a contender that is registered."""

    def __init__(self, session: Any = None) -> None:
        self.time = timedelta(0)
        self.abdications: list[str] = []
        self.components = Components(session, lambda _path, _gone: None, lambda: self.time)
        self.components.abdicate = self.abdications.append
        self.a, self.b = Contender(), Contender()
        self.enter("a", self.a)
        self.enter("b", self.b)

    def enter(self, name: str, contender: Contender) -> None:
        component = Component(name, EphemeralNode(f"/e/components/{name}"))
        self.components.by_name[name] = component
        component.contender = contender
        self.components.enter(component, contender)

    def elect(self, epoch: int) -> Term:
        token = FencingToken("/e/epoch", epoch, epoch)
        term = self.components.term = Term(Leadership(epoch, token, Participant("me")), uuid4())
        return term

    def revoke(self) -> None:
        self.components.term = None
        self.components.revoke_all(threading.Event())


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_what_failed_for_a_reason_nobody_foresaw_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(SimpleNamespace(session_id=1))
    tries: list[object] = []

    def answer(_executor: SessionExecutor, request: object) -> object:
        tries.append(request)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(SessionExecutor, "answer", answer)
    components = desk.components
    term = desk.elect(1)
    components.grant_all(term)

    components.confirmed(desk.components.by_name["a"], term.session, "http://a")

    assert len(tries) == 1
    assert "can't start new thread" in str(desk.a.told[-1])
    assert components.due_at() is not None
    desk.time = timedelta(seconds=10)
    components.expired()
    assert len(tries) == 2


def test_who_registers_between_election_and_grants_is_granted_once(desk: Desk) -> None:
    term = desk.elect(1)
    late = Contender()
    desk.enter("c", late)
    assert late.told == [term.session]

    desk.components.grant_all(term)

    assert late.told == [term.session] == desk.a.told == desk.b.told


def test_a_term_that_ended_before_it_was_told_is_never_told(desk: Desk) -> None:
    old = desk.elect(1)
    desk.components.term = None
    desk.components.grant_all(old)
    new = desk.elect(2)
    desk.components.grant_all(old)

    assert desk.a.told == []
    desk.components.grant_all(new)
    assert desk.a.told == [new.session]


def test_a_term_that_ends_while_the_first_is_told_is_not_told_to_the_second(desk: Desk) -> None:
    term = desk.elect(1)

    def end() -> None:
        desk.components.term = None

    desk.a.on_grant = end
    desk.components.grant_all(term)
    desk.components.revoke_all(threading.Event())

    assert desk.a.told == [term.session, "revoke"]
    assert desk.b.told == [], "who was not granted is not revoked"


def test_who_was_unregistered_before_its_grant_is_told_nothing(desk: Desk) -> None:
    term = desk.elect(1)
    desk.components.by_name["b"].contender = None

    desk.components.grant_all(term)
    told = threading.Event()
    desk.components.leave(desk.components.by_name["b"], told)

    assert desk.b.told == []
    assert told.is_set()
    assert desk.a.told == [term.session]


def test_revoked_comes_once_and_again_only_after_another_grant(desk: Desk) -> None:
    first = desk.elect(1)
    desk.components.grant_all(first)
    desk.revoke()
    desk.revoke()
    second = desk.elect(2)
    desk.components.grant_all(second)
    desk.components.finish(threading.Event())
    desk.components.finish(threading.Event())

    assert desk.a.told == [first.session, "revoke", second.session, "revoke"]


def test_a_contender_that_raises_harms_nobody_else_and_gives_the_leadership_back(desk: Desk) -> None:
    term = desk.elect(1)

    def fail() -> None:
        raise OSError("port in use")

    desk.a.on_grant = fail
    desk.components.grant_all(term)

    assert desk.abdications == ["component a cannot lead: OSError: port in use"]
    assert desk.b.told == [term.session]


def test_a_contender_that_raises_when_its_term_is_over_gives_nothing_back(desk: Desk) -> None:
    term = desk.elect(1)

    def fail() -> None:
        desk.elect(2)
        raise OSError("port in use")

    desk.a.on_grant = fail
    desk.components.grant_all(term)

    assert desk.abdications == []


def test_a_revoke_that_raises_keeps_nobody_else_from_being_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.components.grant_all(desk.elect(1))

    def fail() -> None:
        raise OSError("disk full")

    monkeypatch.setattr(desk.a, "revoke", fail)
    told = threading.Event()
    desk.components.term = None
    desk.components.revoke_all(told)

    assert desk.b.told[-1] == "revoke"
    assert told.is_set()


def test_only_the_confirmation_of_the_present_term_by_who_was_granted_counts(desk: Desk) -> None:
    old = desk.elect(1)
    desk.components.grant_all(old)
    desk.revoke()
    term = desk.elect(2)
    desk.components.grant_all(term)
    component = desk.components.by_name["a"]

    for stale in (old.session, uuid4()):
        desk.components.confirmed(component, stale, "h:1")
        assert component.confirmed is None
    desk.components.confirmed(component, term.session, "h:1")
    assert component.confirmed is not None
    assert b"h:1" in component.confirmed[1]

    desk.components.confirmed(component, old.session, "zombie:1")
    assert b"h:1" in component.confirmed[1], "a stale one does not clear a newer grant (FLINK-11524)"
