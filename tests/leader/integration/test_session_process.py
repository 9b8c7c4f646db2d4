"""A session and its process: forks, threads, files, and refusals that leave nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog.testing
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from leader import (
    SessionState,
    ZooKeeperAuthError,
    ZooKeeperConfig,
    ZooKeeperSession,
    ZooKeeperUnreachableError,
)
from leader.errors import ElectionStateError, ForkedError
from nimbus.localstack.ports import free_port
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy
from tests.forked import exit_code_of_child

LONG = timedelta(seconds=20)
SHORT = timedelta(milliseconds=500)
Eventually = Callable[..., None]


@pytest.fixture
def session(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    made = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    made.start(LONG)
    yield made
    made.close(LONG)


def _in_child(attempt: Callable[[], object]) -> str:
    """Name of the error that `attempt` raises in a forked child; empty: none."""
    reading, writing = os.pipe()

    def tell() -> int:
        try:
            attempt()
        except BaseException as exc:  # noqa: BLE001  # it is told to the parent
            os.write(writing, type(exc).__name__.encode())
        return 0

    assert exit_code_of_child(tell) == 0
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def test_session_refuses_to_be_used_in_a_forked_child_and_its_parent_is_unharmed(
    session: ZooKeeperSession, eventually: Eventually
) -> None:
    heard: list[SessionState] = []
    session.add_listener(heard.append)
    mine, exists = session.session_id, session.client.exists_async
    attempts: list[Callable[[], object]] = [
        lambda: session.call(exists, "/"),
        lambda: session.client,
        lambda: session.start(SHORT),
        session.reconnect,
        session.heal,
    ]

    assert [_in_child(attempt) for attempt in attempts] == ["ForkedError"] * len(attempts)
    assert issubclass(ForkedError, ElectionStateError)
    assert session.call(exists, "/") is not None
    assert (session.session_id, heard) == (mine, [])


def test_closing_in_a_forked_child_leaves_the_session_to_its_parent(session: ZooKeeperSession) -> None:
    assert _in_child(lambda: session.close(LONG)) == ""

    assert session.call(session.client.exists_async, "/") is not None
    assert session.generation == 0


def test_child_that_exits_in_the_ordinary_way_does_not_hang_and_harms_nobody(
    session: ZooKeeperSession,
) -> None:
    import atexit

    # An exiting interpreter does this, because kazoo's handler has registered its stop.
    assert _in_child(atexit._run_exitfuncs) == ""

    assert session.call(session.client.exists_async, "/") is not None
    assert session.generation == 0


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _go_round(hosts: str) -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
    session.start(LONG)
    session.call(session.client.exists_async, "/")
    session.close(LONG)


def test_starting_and_stopping_again_and_again_leaves_no_thread_and_no_file(
    zookeeper: ZooKeeperServer,
) -> None:
    _go_round(zookeeper.hosts)
    files, threads = _open_files(), threading.active_count()
    for _ in range(30):
        _go_round(zookeeper.hosts)

    assert _open_files() <= files
    assert threading.active_count() <= threads


def test_start_in_vain_leaves_no_thread_and_no_file() -> None:
    hosts = f"127.0.0.1:{free_port()}"
    for round_ in range(3):
        session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
        with pytest.raises(ZooKeeperUnreachableError, match="Connection refused"):
            session.start(SHORT)
        if round_ == 0:
            files, threads = _open_files(), threading.active_count()

    assert _open_files() <= files
    assert threading.active_count() <= threads


def test_closing_while_every_server_swallows_everything_ends_all_the_same(
    zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        session = ZooKeeperSession(ZooKeeperConfig(hosts=proxy.hosts, session_timeout=timedelta(seconds=3)))
        session.start(LONG)
        proxy.black_hole()

        session.close(timedelta(seconds=1))  # the leak check fails if remaining threads do not end

        assert session.state is not None
        eventually(lambda: "leader-session-stop" not in {thread.name for thread in threading.enumerate()})


def test_start_over_a_server_that_accepts_and_never_answers_is_unreachable(
    zookeeper: ZooKeeperServer,
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        proxy.black_hole()
        session = ZooKeeperSession(ZooKeeperConfig(hosts=proxy.hosts, session_timeout=timedelta(seconds=3)))
        with pytest.raises(ZooKeeperUnreachableError, match=proxy.hosts):
            session.start(SHORT)


def test_session_cannot_be_started_after_it_was_closed(session: ZooKeeperSession) -> None:
    session.close(LONG)

    with pytest.raises(ElectionStateError, match="make a new"):
        session.start(LONG)


def test_server_that_grants_another_session_timeout_is_believed_and_logged(
    zookeeper: ZooKeeperServer,
) -> None:
    config = ZooKeeperConfig(hosts=zookeeper.hosts, session_timeout=timedelta(milliseconds=400))
    session = ZooKeeperSession(config)
    with structlog.testing.capture_logs() as log:
        session.start(LONG)
    session.close(LONG)

    assert session.negotiated_timeout == timedelta(seconds=1)  # two ticks of half a second
    assert {
        "event": "zookeeper_session_timeout_changed",
        "hosts": config.hosts,
        "asked_s": 0.4,
        "granted_s": 1.0,
        "log_level": "warning",
    } in log


def test_chroot_that_we_may_not_make_is_an_auth_error_and_nothing_is_left_behind(
    zookeeper: ZooKeeperServer, zk_root: str
) -> None:
    owner = KazooClient(hosts=zookeeper.hosts)
    owner.start()
    owner.create(zk_root, acl=[make_digest_acl("somebody", "else", all=True)])
    owner.stop()
    owner.close()
    session = ZooKeeperSession(ZooKeeperConfig(hosts=f"{zookeeper.hosts}{zk_root}/inside"))

    with pytest.raises(ZooKeeperAuthError, match="may not create the chroot"):
        session.start(LONG)


def test_credential_is_not_in_the_words_that_describe_a_configuration() -> None:
    config = ZooKeeperConfig(hosts="one:1", auth=("digest", "user:very-secret"))

    assert "very-secret" not in repr(config)
