"""What the election service does with its contenders, step by step, without thread and ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from leader import FencingToken, LeaderElection, LeaderElectionService, LeaderError, Leadership, Participant
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import SessionState


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


class Elector:
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        self.abdications: list[str] = []

    def add_to_leader_lock_queue(self) -> None:
        pass

    def abdicate(self, reason: str) -> None:
        self.abdications.append(reason)


class Inbox:
    """In the place of the thread `leader-service`: does the jobs when told to."""

    here = True

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.post = self.jobs.append

    def start(self) -> None:
        pass

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


class Desk:
    """A service that was started, and two components, each with a contender that is registered."""

    def __init__(self, session: Any = None) -> None:
        self.time = timedelta(0)
        self.elector, self.inbox = Elector(), Inbox()
        elect: Any = lambda _electable: self.elector  # noqa: E731
        self.service = LeaderElectionService(elect=elect, root="/e", session=session, clock=lambda: self.time)
        self.service._thread = self.inbox  # type: ignore[assignment]
        self.service.start()
        self.a, self.b = Contender(), Contender()
        self.enter("a", self.a)
        self.enter("b", self.b)

    def enter(self, name: str, contender: Contender) -> LeaderElection:
        self.service.election(name).start(contender)
        return self.service.election(name)

    def elect(self, epoch: int) -> UUID:
        """We lead; the contenders hear of it when the inbox runs."""
        token = FencingToken("/e/epoch", epoch, epoch)
        self.service.elected(Leadership(epoch, token, Participant("me")))
        assert self.service._term is not None
        return self.service._term.session

    def revoke(self) -> None:
        self.service.revoked(Leadership(0, FencingToken("/e/epoch", 0, 0), Participant("me")), "test")

    def lead(self, epoch: int) -> UUID:
        session = self.elect(epoch)
        self.inbox.run()
        return session


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_what_failed_for_a_reason_nobody_foresaw_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(SimpleNamespace(session_id=1, add_listener=lambda _listener: None))
    tries: list[object] = []

    def answer(_executor: SessionExecutor, request: object) -> object:
        tries.append(request)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(SessionExecutor, "answer", answer)
    session = desk.lead(1)

    desk.service.election("a").confirm_leadership(session, "http://a")
    desk.inbox.run()

    assert len(tries) == 1
    assert "can't start new thread" in str(desk.a.told[-1])
    told = list(desk.a.told)
    due_at = desk.service._due_at()
    assert due_at is not None
    desk.time = due_at
    desk.service._settle_due()
    assert len(tries) == 2
    assert desk.a.told == told, "told once for the whole row"


def test_a_retry_that_is_due_leaves_the_pauses_of_other_components_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(SimpleNamespace(session_id=1, add_listener=lambda _listener: None))
    settled: list[str] = []
    for name, retry_at in (("a", timedelta(seconds=1)), ("b", timedelta(seconds=2))):
        publication = desk.service.election(name)._component
        publication.retry_at = retry_at
        monkeypatch.setattr(publication, "settle", partial(settled.append, name))

    desk.time = timedelta(seconds=1)
    desk.service._settle_due()
    assert settled == ["a"]

    desk.service._on_session(SessionState.CONNECTED)
    desk.inbox.run()
    assert settled == ["a", "a", "b"], "a new connection is a reason to try all"


def test_who_registers_between_election_and_grants_is_granted_once(desk: Desk) -> None:
    session = desk.elect(1)
    late = Contender()
    desk.enter("c", late)

    desk.inbox.run()

    assert late.told == [session] == desk.a.told == desk.b.told


def test_who_registers_while_the_participant_leads_is_granted_the_same_session_id(desk: Desk) -> None:
    session = desk.lead(1)
    late = Contender()

    desk.enter("c", late)
    desk.inbox.run()

    assert late.told == [session]


def test_a_term_that_ended_before_it_was_told_is_never_told(desk: Desk) -> None:
    desk.elect(1)
    desk.revoke()
    new = desk.elect(2)

    desk.inbox.run()

    assert desk.a.told == [new] == desk.b.told


def test_a_term_that_ends_while_the_first_is_told_is_not_told_to_the_second(desk: Desk) -> None:
    session = desk.elect(1)
    desk.a.on_grant = desk.revoke

    desk.inbox.run()

    assert desk.a.told == [session, "revoke"]
    assert desk.b.told == [], "who was not granted is not revoked"


def test_a_session_id_is_granted_once_though_the_next_term_begins_while_the_first_is_told(desk: Desk) -> None:
    sessions = [desk.elect(1)]

    def next_term() -> None:
        if len(sessions) == 1:
            desk.revoke()
            sessions.append(desk.elect(2))

    desk.a.on_grant = next_term
    desk.inbox.run()

    assert desk.a.told == [sessions[0], "revoke", sessions[1]]
    assert desk.b.told == [sessions[1]]


def test_who_was_unregistered_before_its_grant_is_told_nothing(desk: Desk) -> None:
    session = desk.elect(1)
    desk.service.election("b").stop()

    desk.inbox.run()

    assert desk.b.told == []
    assert desk.a.told == [session]


def test_another_contender_is_granted_after_the_one_before_it_was_revoked(desk: Desk) -> None:
    session, other = desk.lead(1), Contender()
    desk.service.election("b").stop()
    desk.enter("b", other)

    desk.inbox.run()

    assert desk.b.told == [session, "revoke"]
    assert other.told == [session]


def test_revoked_comes_once_and_again_only_after_another_grant(desk: Desk) -> None:
    first = desk.lead(1)
    desk.revoke()
    desk.revoke()
    second = desk.lead(2)
    desk.service._revoke_all(threading.Event())
    desk.service._revoke_all(threading.Event())

    assert desk.a.told == [first, "revoke", second, "revoke"]


def test_a_contender_that_raises_harms_nobody_else_and_gives_the_leadership_back(desk: Desk) -> None:
    def fail() -> None:
        raise OSError("port in use")

    desk.a.on_grant = fail
    session = desk.lead(1)

    assert desk.elector.abdications == ["component a cannot lead: OSError: port in use"]
    assert desk.b.told == [session]


def test_a_contender_that_raises_when_its_term_is_over_gives_nothing_back(desk: Desk) -> None:
    def fail() -> None:
        desk.revoke()
        raise OSError("port in use")

    desk.a.on_grant = fail
    desk.lead(1)

    assert desk.elector.abdications == []


def test_a_revoke_that_raises_keeps_nobody_else_from_being_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.lead(1)

    def fail() -> None:
        raise OSError("disk full")

    monkeypatch.setattr(desk.a, "revoke", fail)
    told = threading.Event()
    desk.service._revoke_all(told)

    assert desk.b.told[-1] == "revoke"
    assert told.is_set()


def test_a_contender_that_cannot_even_be_named_keeps_nobody_else_from_being_told(desk: Desk) -> None:
    class Nameless(Contender):
        def __init__(self) -> None:
            self.told, self.on_grant = [], lambda: None

        @property
        def description(self) -> str:  # type: ignore[override]
            raise LookupError("no name")

        def revoke(self) -> None:
            raise LookupError("not now")

    desk.service.election("a").stop()
    desk.inbox.run()
    nameless = Nameless()
    desk.enter("a", nameless)
    nameless.on_grant = nameless.revoke
    session = desk.lead(1)
    assert desk.b.told == [session]
    assert len(desk.elector.abdications) == 1

    desk.revoke()
    desk.inbox.run()
    assert desk.b.told == [session, "revoke"]


def test_only_the_confirmation_of_the_present_term_by_who_was_granted_counts(desk: Desk) -> None:
    old = desk.lead(1)
    desk.revoke()
    new = desk.lead(2)
    election = desk.service.election("a")

    def published() -> bytes | None:
        desk.inbox.run()
        found = election._component._published
        return None if found is None else found[0]

    for stale in (old, uuid4()):
        election.confirm_leadership(stale, "h:1")
        assert published() is None
    election.confirm_leadership(new, "h:1")
    assert b"h:1" in (published() or b"")

    election.confirm_leadership(old, "zombie:1")
    assert b"h:1" in (published() or b""), "a stale one does not clear a newer grant (FLINK-11524)"
