"""What the guarded process tells its sentinel, with a session that the test plays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from leader import CrashSentinel, SessionState, ZooKeeperSession
from leader.sentinel.ensemble import Ensemble
from leader.sentinel.sentinel import _hosts, _tls
from leader.sentinel.wire import Handoff

LONG = timedelta(seconds=10)


class Session(ZooKeeperSession):
    """Of `ZooKeeperSession` what a sentinel looks at. Connects to nothing."""

    client: Any = None
    negotiated_timeout = timedelta(milliseconds=1234)  # type: ignore[assignment]

    def __init__(self, hosts: str = "127.0.0.1:1", *, tls: Any = None) -> None:
        self.config: Any = SimpleNamespace(hosts=hosts, tls=tls)
        self.client = SimpleNamespace(client_id=None)
        self.listeners: list[Callable[[SessionState], None]] = []

    def add_listener(self, enqueue: Callable[[SessionState], None]) -> None:
        self.listeners.append(enqueue)

    def remove_listener(self, enqueue: Callable[[SessionState], None]) -> None:
        self.listeners = [known for known in self.listeners if known != enqueue]

    def becomes(self, state: str, session_id: int | None = None) -> None:
        self.client.client_id = None if session_id is None else (session_id, b"p" * 16)
        for listener in self.listeners:
            listener(SessionState(state))


class Recorded(CrashSentinel):
    """Notes what goes into the pipe."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.lines: list[str] = []

    def _write(self, line: bytes) -> None:
        self.lines.append(" ".join(line.decode().split()[:2]))
        super()._write(line)


@pytest.fixture
def session() -> Session:
    return Session()


def test_each_new_session_is_told_once(session: Session) -> None:
    sentinel = Recorded(session)
    session.becomes("connected", 5)
    sentinel.start()
    session.becomes("suspended")
    session.becomes("connected", 5)
    session.becomes("lost")
    session.becomes("connected", 7)
    session.becomes("lost")
    sentinel.close(LONG)

    assert sentinel.lines == ["session 5", "session 7", "forget"]


def test_what_is_handed_over_is_id_password_and_granted_timeout(session: Session) -> None:
    sentinel = CrashSentinel(session)
    sentinel.start()
    session.becomes("connected", 5)

    assert sentinel._newest == Handoff(5, b"p" * 16, 1234)
    session.becomes("lost")
    sentinel.close(LONG)


def test_nothing_is_left_after_a_session_that_a_server_has_ended(session: Session) -> None:
    sentinel = CrashSentinel(session)
    sentinel.start()
    session.becomes("connected", 5)
    pid = sentinel.pid
    assert pid is not None
    session.becomes("lost")
    sentinel.close(LONG)
    sentinel.close(LONG)

    assert not psutil.pid_exists(pid)
    assert session.listeners == []


def test_nothing_is_left_after_a_session_that_was_there_before_the_sentinel(session: Session) -> None:
    session.becomes("connected", 5)
    sentinel = CrashSentinel(session)
    sentinel.start()
    pid = sentinel.pid
    assert pid is not None
    session.becomes("lost")
    sentinel.close(LONG)

    assert not psutil.pid_exists(pid)


def test_the_program_stays_when_nobody_knows_whether_the_session_has_ended(session: Session) -> None:
    sentinel = CrashSentinel(session)
    sentinel.start()
    session.becomes("connected", 5)
    session.becomes("suspended")
    session.becomes("lost")
    sentinel.close(LONG)

    assert sentinel.pid is not None
    process = psutil.Process(sentinel.pid)
    assert process.status() != psutil.STATUS_ZOMBIE
    process.kill()
    process.wait(60)


def test_a_process_without_a_session_leaves_nothing(session: Session) -> None:
    sentinel = CrashSentinel(session)
    sentinel.start()
    pid = sentinel.pid
    assert pid is not None
    sentinel.close(LONG)

    assert not psutil.pid_exists(pid)


def test_without_pidfd_the_process_goes_on_without_a_sentinel(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    sentinel = CrashSentinel(session)
    sentinel.start()
    session.becomes("connected", 5)

    assert sentinel.pid is None
    sentinel.close(LONG)


def test_a_key_with_a_password_is_not_given_to_the_program() -> None:
    session = Session(tls=SimpleNamespace(key_password="secret"))
    sentinel = CrashSentinel(session)
    sentinel.start()
    session.becomes("connected", 5)

    assert sentinel.pid is None
    sentinel.close(LONG)


@pytest.mark.parametrize(
    ("verify_certificate", "verify_hostname", "word"),
    [(True, True, "verify"), (True, False, "no-hostname"), (False, True, "none")],
)
def test_the_program_is_told_the_files_of_the_sessions_own_tls(
    verify_certificate: bool, verify_hostname: bool, word: str
) -> None:
    tls = SimpleNamespace(
        ca_file="/etc/ca.pem",
        cert_file="own.pem",
        key_file=None,
        verify_certificate=verify_certificate,
        verify_hostname=verify_hostname,
    )

    assert _tls(Session(tls=tls)) == ("/etc/ca.pem", str(Path.cwd() / "own.pem"), "-", word)
    assert _tls(Session()) == ()


def test_the_program_is_given_each_server_with_its_port() -> None:
    session = Session("one, two:2182,[::1]:2183/chroot")

    hosts = _hosts(session)

    assert hosts == "one:2181,two:2182,::1:2183"
    assert Ensemble(hosts, None, time.monotonic)._hosts == [("one", 2181), ("two", 2182), ("::1", 2183)]


def test_a_program_that_cannot_work_is_not_started_again_and_again(
    eventually: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    tls = SimpleNamespace(
        ca_file="/no/such.pem",
        cert_file=None,
        key_file=None,
        key_password=None,
        verify_certificate=True,
        verify_hostname=True,
    )
    sentinel = CrashSentinel(Session(tls=tls))
    sentinel.start()

    eventually(lambda: not sentinel._thread.is_alive())
    assert "sentinel_cannot_watch" in capfd.readouterr().err
    sentinel.close(LONG)


def test_a_program_that_cannot_be_started_again_now_is_started_later(
    session: Session, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    monkeypatch.setattr("leader.sentinel.sentinel._RESTART_MIN_S", 0.01)
    sentinel = CrashSentinel(session)
    sentinel.start()
    spawn, failures = sentinel._spawn, iter([BlockingIOError("no more processes")] * 3)

    def spawn_later() -> Any:
        for failure in failures:
            raise failure
        return spawn()

    monkeypatch.setattr(sentinel, "_spawn", spawn_later)
    first = sentinel.pid
    assert first is not None
    psutil.Process(first).kill()

    eventually(lambda: sentinel.pid not in (None, first), what="another program runs")
    assert next(failures, None) is None
    sentinel.close(LONG)
