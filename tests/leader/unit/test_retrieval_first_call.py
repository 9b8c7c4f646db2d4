"""When a retrieval calls its listener first: no ZooKeeper, and the threads' jobs done here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from leader import LeaderRetrievalService, LeaderView, ViewState, ZooKeeperUnavailableError
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import SessionState


class Inbox:
    """In the place of a thread: does the jobs when told to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.post = self.jobs.append

    def start(self) -> None:
        return

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


class Desk:
    """A retrieval that was started; its session; what it has told. It is its own listener."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: Callable[[], Any] = lambda: None
        monkeypatch.setattr(SessionExecutor, "run", lambda _self, _steps: self.answer())
        self.session: Any = SimpleNamespace(
            is_connected=False,
            state=SessionState.SUSPENDED,
            negotiated_timeout=timedelta(seconds=10),
            add_listener=lambda _listener: None,
            heal=lambda: self.healed.append(self.now),
        )
        self.now = timedelta(0)
        self.healed: list[timedelta] = []
        self.views: list[LeaderView] = []
        self.retrieval = LeaderRetrievalService(self.session, "/e", clock=lambda: self.now)
        self.reader, self.teller = Inbox(), Inbox()
        self.retrieval._reader, self.retrieval._notifier = self.reader, self.teller  # type: ignore[assignment]
        self.retrieval.start(self)

    def leader_changed(self, view: LeaderView) -> None:
        self.views.append(view)

    def hear(self, state: SessionState) -> None:
        self.session.state, self.session.is_connected = state, state is SessionState.CONNECTED
        self.retrieval._on_session(state)
        self.run()

    def run(self) -> None:
        self.reader.run()
        self.teller.run()

    def wait(self, pause: timedelta) -> None:
        """Advance the time, and call `expired` each time that it is due."""
        until = self.now + pause
        while (due_at := self.retrieval._due_at()) is not None and due_at <= until:
            self.now = due_at
            self.retrieval._expired()
        self.now = until


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def _no_answer() -> None:
    raise ZooKeeperUnavailableError("no answer")


def test_a_loss_before_the_first_reading_is_not_told(desk: Desk) -> None:
    desk.hear(SessionState.SUSPENDED)
    desk.hear(SessionState.LOST)
    assert desk.views == []
    assert desk.retrieval.view().state is ViewState.UNKNOWN

    desk.hear(SessionState.CONNECTED)
    assert [view.state for view in desk.views] == [ViewState.CURRENT]

    desk.hear(SessionState.LOST)
    assert [view.state for view in desk.views] == [ViewState.CURRENT, ViewState.UNKNOWN]


def test_a_first_reading_that_gets_no_answer_is_not_told(desk: Desk) -> None:
    desk.answer = _no_answer
    desk.hear(SessionState.CONNECTED)

    assert desk.views == []
    assert desk.retrieval._due_at() is not None


def test_a_first_reading_of_what_no_leader_writes_is_told(desk: Desk) -> None:
    desk.answer = lambda: (b"scribble", SimpleNamespace(owner=1, created_zxid=1))
    desk.hear(SessionState.CONNECTED)

    assert [view.state for view in desk.views] == [ViewState.UNKNOWN]
    assert "/e/leader" in desk.views[0].reason


@pytest.mark.parametrize("state", [SessionState.SUSPENDED, SessionState.LOST])
def test_a_session_whose_connection_thread_has_ended_is_healed_at_a_measured_pace(
    desk: Desk, state: SessionState
) -> None:
    desk.hear(SessionState.CONNECTED)
    desk.hear(state)
    desk.healed.clear()

    desk.wait(timedelta(minutes=1))

    assert 3 <= len(desk.healed) <= 20
