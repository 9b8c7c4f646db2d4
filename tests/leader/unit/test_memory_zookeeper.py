"""The tests' ZooKeeper in memory: virtual time, wrap-around, wiping, which a real server does not offer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leader.errors import ZooKeeperUnavailableError
from leader.local.zookeeper import sequence
from leader.protocol import requests as rq
from tests.leader.expiring_zookeeper import ExpiringConnection, ExpiringZooKeeper
from tests.leader.virtual_clock import VirtualClock

_S = timedelta(seconds=1)
_TIMEOUT = 10 * _S
_TICK = 2 * _S


class _Seen(list[tuple[str, bool]]):
    def watch(self, path: str, gone: bool) -> None:
        self.append((path, gone))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def zookeeper(clock: VirtualClock) -> ExpiringZooKeeper:
    return ExpiringZooKeeper(clock, tick=_TICK)


@pytest.fixture
def seen() -> _Seen:
    return _Seen()


@pytest.fixture
def connection(zookeeper: ExpiringZooKeeper, seen: _Seen) -> ExpiringConnection:
    return zookeeper.connect(seen.watch, _TIMEOUT)


@pytest.mark.parametrize("offset_ms", [0, 1, 700, 1_999])
def test_session_expires_after_its_timeout_and_within_one_tick_more(
    zookeeper: ExpiringZooKeeper, clock: VirtualClock, offset_ms: int
) -> None:
    clock.advance(timedelta(milliseconds=offset_ms))
    session_id = zookeeper.new_session(_TIMEOUT)
    clock.advance(_TIMEOUT)
    assert zookeeper.expire_due() == []
    clock.advance(_TICK)
    assert zookeeper.expire_due() == [session_id]


def test_sign_of_life_prolongs_a_session_and_comes_too_late_after_its_end(
    zookeeper: ExpiringZooKeeper, clock: VirtualClock, connection: ExpiringConnection
) -> None:
    for _ in range(5):
        clock.advance(_TIMEOUT * 0.9)
        assert connection.ping()
    clock.advance(_TIMEOUT + _TICK)
    assert not connection.ping()
    with pytest.raises(ZooKeeperUnavailableError):
        connection.run(rq.exists("/"))
    assert zookeeper.reconnect(connection.session_id, lambda _path, _gone: None) is None


def test_request_is_a_sign_of_life(clock: VirtualClock, connection: ExpiringConnection) -> None:
    for _ in range(5):
        clock.advance(_TIMEOUT * 0.9)
        connection.run(rq.exists("/"))


def test_expiry_takes_ephemeral_nodes_and_wakes_who_watches(
    zookeeper: ExpiringZooKeeper, clock: VirtualClock, connection: ExpiringConnection, seen: _Seen
) -> None:
    other = zookeeper.connect(lambda _path, _gone: None, _TIMEOUT * 10)
    other.run(rq.create("/b", b"", ephemeral=True))
    connection.run(rq.create("/a", b"", ephemeral=True))
    told = _Seen()
    watcher = zookeeper.connect(told.watch, _TIMEOUT * 10)
    watcher.run(rq.exists("/a", watch=True))
    clock.advance(_TIMEOUT + _TICK)

    assert watcher.run(rq.get_children("/")) == ["b"]
    assert told == [("/a", True)]


def test_connection_that_was_cut_gets_no_events_and_its_session_lives_on(
    zookeeper: ExpiringZooKeeper, connection: ExpiringConnection, seen: _Seen
) -> None:
    connection.run(rq.create("/a", b"", ephemeral=True))
    connection.run(rq.exists("/a", watch=True))
    connection.drop()
    zookeeper.write(rq.SetData("/a", b"changed"))
    again = zookeeper.reconnect(connection.session_id, seen.watch)

    assert again is not None
    assert seen == []
    assert again.run(rq.get("/a"))[0] == b"changed"
    with pytest.raises(ZooKeeperUnavailableError):
        connection.run(rq.exists("/a"))


def test_wipe_takes_nodes_and_sessions(zookeeper: ExpiringZooKeeper, connection: ExpiringConnection) -> None:
    connection.run(rq.create("/a", b""))
    zookeeper.wipe()

    with pytest.raises(ZooKeeperUnavailableError):
        connection.run(rq.exists("/a"))
    fresh = zookeeper.connect(lambda _path, _gone: None, _TIMEOUT)
    assert fresh.session_id != connection.session_id
    assert fresh.run(rq.get_children("/")) == []


def test_new_ensemble_leader_gives_all_sessions_their_full_time(
    zookeeper: ExpiringZooKeeper, clock: VirtualClock, connection: ExpiringConnection
) -> None:
    clock.advance(_TIMEOUT * 0.9)
    zookeeper.start_anew()
    clock.advance(_TIMEOUT * 0.9)

    assert connection.ping()


def test_sequence_numbers_wrap_as_zookeepers_do() -> None:
    assert sequence(7) == "0000000007"
    assert sequence(2**31 - 1) == "2147483647"
    assert sequence(2**31) == "-2147483648"
    assert sequence(2**32 - 1) == "-000000001"
    assert sequence(2**32) == "0000000000"


def test_clock_does_what_is_due_in_order_and_never_twice_at_one_moment(clock: VirtualClock) -> None:
    done: list[tuple[str, timedelta]] = []

    def note(name: str) -> None:
        done.append((name, clock()))

    start = clock()
    clock.call_later(2 * _S, note, "later")
    clock.call_later(_S, note, "first")
    clock.call_later(_S, note, "second")
    clock.advance(3 * _S)

    assert [name for name, _ in done] == ["first", "second", "later"]
    assert len({at for _, at in done}) == 3
    assert clock() == start + 3 * _S
