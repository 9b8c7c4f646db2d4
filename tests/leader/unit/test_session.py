"""A session's calls of its listeners, without a server."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from kazoo.protocol.states import KazooState, KeeperState

from leader import SessionState, ZooKeeperConfig, ZooKeeperSession, ZooKeeperUnavailableError
from leader.clock import Countdown
from leader.errors import ElectionStateError, ZooKeeperUnreachableError
from leader.protocol.requests import Steps, get
from leader.zookeeper.executor import SessionExecutor


class Told(ZooKeeperSession):
    """A session whose kazoo is simulated by the test."""

    def __init__(self) -> None:
        super().__init__(ZooKeeperConfig(hosts="127.0.0.1:1"))
        self.heard: list[tuple[SessionState, int | None]] = []
        self.add_listener(lambda state: self.heard.append((state, self.session_id)))

    def kazoo_says(self, state: str, session_id: int | None = None) -> None:
        if session_id is not None:
            self.client._session_id = session_id
            self.client._live.set()
        self._on_state(state)


def test_a_suspension_that_the_session_survives_is_no_loss() -> None:
    session = Told()
    session.kazoo_says(KazooState.CONNECTED, 7)
    session.kazoo_says(KazooState.SUSPENDED)
    session.kazoo_says(KazooState.CONNECTED, 7)

    assert session.heard == [
        (SessionState.CONNECTED, 7),
        (SessionState.SUSPENDED, 7),
        (SessionState.CONNECTED, 7),
    ]
    assert session.generation == 1


def test_another_session_id_without_a_word_counts_as_a_loss() -> None:
    session = Told()
    session.kazoo_says(KazooState.CONNECTED, 7)
    session.kazoo_says(KazooState.SUSPENDED)
    session.kazoo_says(KazooState.CONNECTED, 8)

    assert [state for state, _ in session.heard[2:]] == [SessionState.LOST, SessionState.CONNECTED]
    assert session.session_id == 8


def test_a_lost_session_has_no_id() -> None:
    session = Told()
    session.kazoo_says(KazooState.CONNECTED, 7)
    session.kazoo_says(KazooState.LOST)

    assert session.heard[-1] == (SessionState.LOST, None)
    assert not session.is_connected


def test_who_was_removed_hears_nothing() -> None:
    session = Told()
    heard: list[SessionState] = []
    session.add_listener(heard.append)
    session.remove_listener(heard.append)
    session.kazoo_says(KazooState.CONNECTED, 7)

    assert heard == []


def test_a_listener_that_is_added_while_another_is_removed_hears_what_follows() -> None:
    session = Told()
    heard: list[SessionState] = []
    added = threading.Thread(target=session.add_listener, args=(heard.append,))

    class AddsAnother:
        def __call__(self, state: SessionState) -> None:
            return

        def __eq__(self, other: object) -> bool:
            if not added.ident:
                added.start()
                added.join(0.2)  # it waits for the end of `remove_listener`, or it is done
            return False

        __hash__ = None  # type: ignore[assignment]

    session.add_listener(AddsAnother())
    session.remove_listener(lambda _state: None)
    added.join(60)
    session.kazoo_says(KazooState.CONNECTED, 7)

    assert heard == [SessionState.CONNECTED]


def test_a_call_on_a_session_that_never_started_fails_at_once_and_starts_nothing() -> None:
    session = Told()

    with pytest.raises(ZooKeeperUnavailableError, match=r"127\.0\.0\.1:1 gave no answer to exists"):
        session.call(session.client.exists_async, "/", timeout=timedelta(seconds=5))

    assert session.client._connection._connection_routine is None


def test_starting_takes_no_longer_than_its_limit_though_the_server_is_slow_at_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, never = Told(), threading.Event()
    limits: list[timedelta] = []

    def call(_method: object, *_arguments: object, timeout: timedelta) -> None:
        limits.append(timeout)
        never.wait(0.2)

    monkeypatch.setattr(session, "_await_first_connection", lambda _left, _timeout: never.wait(0.2))
    monkeypatch.setattr(session, "call", call)
    session.start(timedelta(seconds=5))

    assert len(limits) == 2
    assert limits[0] < timedelta(seconds=4.9)
    assert limits[1] < limits[0] - timedelta(seconds=0.1)
    session.close(timedelta(seconds=5))


def test_a_call_on_a_closed_session_is_not_worth_repeating() -> None:
    session = Told()
    session.close(timedelta(seconds=5))

    with pytest.raises(ZooKeeperUnavailableError, match="the session is closed") as refused:
        session.call(session.client.exists_async, "/")
    assert not refused.value.retryable


def test_kazoo_thread_that_has_not_begun_yet_has_not_stopped_and_is_not_started_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, may_end = Told(), threading.Event()
    connection = session.client._connection
    monkeypatch.setattr(connection, "zk_loop", may_end.wait)  # like a thread that gets no processor time
    session._started = True
    session.client.start_async()
    try:
        first = connection._connection_routine
        session.heal()
        session.heal()

        assert connection._connection_routine is first
    finally:
        may_end.set()
        session.close(timedelta(seconds=5))


def test_kazoo_that_is_being_started_is_not_started_by_another_thread_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A latch may have been started before its session, and ask it to heal just then."""
    session, starts = Told(), list[str]()

    def start_async() -> threading.Event:
        starts.append(threading.current_thread().name)
        if len(starts) == 1:
            healing = threading.Thread(target=session.heal)
            healing.start()
            healing.join()
        return threading.Event()

    monkeypatch.setattr(session.client, "start_async", start_async)

    with pytest.raises(ZooKeeperUnreachableError):
        session.start(timedelta(0))

    assert len(starts) == 1


def test_session_that_is_closed_while_it_is_started_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    session, starts = Told(), list[int]()
    monkeypatch.setattr(session.client, "start_async", lambda: starts.append(1))
    monkeypatch.setattr(session, "_await_first_connection", _close_first(session))

    with pytest.raises(ElectionStateError):
        session.start(timedelta(seconds=1))

    assert starts == []


def _close_first(session: ZooKeeperSession) -> Callable[[Countdown, timedelta], None]:
    connect = session._await_first_connection

    def closed(left: Countdown, timeout: timedelta) -> None:
        session.close(timedelta(seconds=5))
        connect(left, timeout)

    return closed


def test_call_without_a_connection_waits_for_one_with_the_request_in_hand() -> None:
    session = Told()
    session.kazoo_says(KazooState.CONNECTED, 7)
    session.client._state = KeeperState.CONNECTING
    session.kazoo_says(KazooState.SUSPENDED)

    with pytest.raises(
        ZooKeeperUnavailableError, match=r"within 0:00:00\.01.*; exists was not sent"
    ) as refused:
        session.call(session.client.exists_async, "/", timeout=timedelta(milliseconds=10))
    assert refused.value.retryable
    assert len(session.client._queue) == 0


def test_a_client_that_cannot_be_restarted_now_is_restarted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Told()
    tries: list[int] = []

    def no_more_files() -> None:
        tries.append(len(tries))
        raise OSError(errno.EMFILE, "too many open files")

    session._started = True
    monkeypatch.setattr(session.client, "start_async", no_more_files)
    session.heal()
    session.heal()

    assert tries == [0, 1]


def test_what_nobody_foresaw_reaches_whoever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Told()
    session.kazoo_says(KazooState.CONNECTED, 7)

    def no_more_threads(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(session.client, "get_async", no_more_threads)

    def asking() -> Steps[str]:
        try:
            yield from get("/x")
        except RuntimeError as exc:
            return str(exc)
        return ""

    assert SessionExecutor(session).run(asking()) == "can't start new thread"
