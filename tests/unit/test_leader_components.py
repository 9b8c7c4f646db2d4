"""What the election service's thread does with contenders, without a thread and without ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from leader import ElectionPaths, FencingToken, LeaderError, Leadership, Participant
from leader.components import Components, Seat, Term
from leader.publication import ComponentNode
from leader.zookeeper.executor import SessionExecutor


class Now:
    """A situation that the test sets."""

    def __init__(self) -> None:
        self.term: Term | None = None
        self.stopped = False
        self.abdications: list[str] = []

    def abdicate(self, reason: str) -> None:
        self.abdications.append(reason)


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

    def __init__(self) -> None:
        self.now = Now()
        self.seats = {name: Seat(name, ComponentNode(ElectionPaths("/e"), name)) for name in ("a", "b")}
        self.time = timedelta(0)
        self.components = self._components(None)
        self.a, self.b = Contender(), Contender()
        self.enter("a", self.a)
        self.enter("b", self.b)

    def _components(self, session: Any) -> Components:
        return Components(
            seats=self.seats,
            situation=self.now,
            session=session,
            on_watch=lambda _path, _gone: None,
            clock=lambda: self.time,
        )

    def publishing(self) -> Components:
        """The same, with a session to publish on."""
        return self._components(SimpleNamespace(session_id=1))

    def enter(self, name: str, contender: Contender) -> None:
        self.seats[name].contender = contender
        self.components.enter(self.seats[name], contender)

    def elect(self, epoch: int) -> Term:
        token = FencingToken("/e/epoch", epoch, epoch)
        self.now.term = Term(Leadership(epoch, token, Participant("me")), uuid4())
        return self.now.term

    def revoke(self) -> None:
        self.now.term = None
        self.components.revoke_all(threading.Event())


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_what_failed_for_a_reason_nobody_foresaw_is_told_and_tried_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def answer(_executor: SessionExecutor, request: object) -> object:
        tries.append(request)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(SessionExecutor, "answer", answer)
    components = desk.publishing()
    term = desk.elect(1)
    components.grant_all(term)

    components.confirmed(desk.seats["a"], term.session, "http://a")

    assert len(tries) == 1
    assert "can't start new thread" in str(desk.a.told[-1])
    assert components.due_at() is not None
    desk.time = timedelta(seconds=10)
    components.expired()
    assert len(tries) == 2


def test_who_registers_between_election_and_grants_is_granted_once(desk: Desk) -> None:
    term = desk.elect(1)
    late = Contender()
    desk.seats["c"] = Seat("c", ComponentNode(ElectionPaths("/e"), "c"))
    desk.enter("c", late)
    assert late.told == [term.session]

    desk.components.grant_all(term)

    assert late.told == [term.session] == desk.a.told == desk.b.told


def test_a_term_that_ended_before_it_was_told_is_never_told(desk: Desk) -> None:
    old = desk.elect(1)
    desk.now.term = None
    desk.components.grant_all(old)
    new = desk.elect(2)
    desk.components.grant_all(old)

    assert desk.a.told == []
    desk.components.grant_all(new)
    assert desk.a.told == [new.session]


def test_a_term_that_ends_while_the_first_is_told_is_not_told_to_the_second(desk: Desk) -> None:
    term = desk.elect(1)

    def end() -> None:
        desk.now.term = None

    desk.a.on_grant = end
    desk.components.grant_all(term)
    desk.components.revoke_all(threading.Event())

    assert desk.a.told == [term.session, "revoke"]
    assert desk.b.told == [], "who was not granted is not revoked"


def test_who_was_unregistered_before_its_grant_is_told_nothing(desk: Desk) -> None:
    term = desk.elect(1)
    desk.seats["b"].contender = None

    desk.components.grant_all(term)
    told = threading.Event()
    desk.components.leave(desk.seats["b"], told)

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

    assert desk.now.abdications == ["component a cannot lead: OSError: port in use"]
    assert desk.b.told == [term.session]


def test_a_contender_that_raises_when_its_term_is_over_gives_nothing_back(desk: Desk) -> None:
    term = desk.elect(1)

    def fail() -> None:
        desk.elect(2)
        raise OSError("port in use")

    desk.a.on_grant = fail
    desk.components.grant_all(term)

    assert desk.now.abdications == []


def test_a_revoke_that_raises_keeps_nobody_else_from_being_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.components.grant_all(desk.elect(1))

    def fail() -> None:
        raise OSError("disk full")

    monkeypatch.setattr(desk.a, "revoke", fail)
    told = threading.Event()
    desk.now.term = None
    desk.components.revoke_all(told)

    assert desk.b.told[-1] == "revoke"
    assert told.is_set()


def test_only_the_confirmation_of_the_present_term_by_who_was_granted_counts(desk: Desk) -> None:
    old = desk.elect(1)
    desk.components.grant_all(old)
    desk.revoke()
    term = desk.elect(2)
    desk.components.grant_all(term)
    seat = desk.seats["a"]

    for stale in (old.session, uuid4()):
        desk.components.confirmed(seat, stale, "h:1")
        assert seat.confirmed is None
    desk.components.confirmed(seat, term.session, "h:1")
    assert seat.confirmed is not None
    assert b"h:1" in seat.confirmed[1]

    desk.components.confirmed(seat, old.session, "zombie:1")
    assert b"h:1" in seat.confirmed[1], "a stale one does not clear a newer grant (FLINK-11524)"
