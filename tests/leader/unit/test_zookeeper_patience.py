"""How long one server may take to accept a session."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession, ZooKeeperUnreachableError
from leader.zookeeper.link import Patience
from nimbus.localstack.ports import free_port

S = timedelta(seconds=1)


def test_a_round_of_all_servers_fits_into_the_third_of_the_session_that_is_left() -> None:
    patience = Patience(configured=None, servers=3, session_timeout=9 * S)

    assert 3 * patience.limit() == 9 * S / 3


def test_limit_doubles_with_each_round_in_vain_up_to_an_equal_share_of_the_session() -> None:
    patience = Patience(configured=None, servers=3, session_timeout=9 * S)
    limits = []
    for _ in range(100):
        limits.append(patience.limit())
        patience.timed_out()

    assert limits[:8] == [S, S, S, 2 * S, 2 * S, 2 * S, 3 * S, 3 * S]
    assert set(limits[8:]) == {3 * S}
    patience.succeeded()
    assert patience.limit() == S


def test_limit_follows_the_session_timeout_that_was_granted() -> None:
    patience = Patience(configured=None, servers=1, session_timeout=30 * S)
    patience.granted(6 * S)

    assert patience.limit() == 2 * S


def test_many_servers_still_get_time_to_answer() -> None:
    patience = Patience(configured=None, servers=50, session_timeout=6 * S)

    assert patience.limit() == S / 4


def test_configured_limit_is_the_first_one_even_when_it_is_above_an_equal_share() -> None:
    patience = Patience(configured=4 * S, servers=3, session_timeout=9 * S)
    for _ in range(9):
        assert patience.limit() == 4 * S
        patience.timed_out()


def test_no_server_gets_more_than_two_seconds_at_first_however_long_a_session_lasts() -> None:
    assert Patience(configured=None, servers=1, session_timeout=60 * S).limit() == 2 * S


def test_servers_that_refuse_at_once_do_not_make_us_wait_longer_for_the_next() -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=f"127.0.0.1:{free_port()}", session_timeout=60 * S))
    first = session._connector._patience.limit()
    with pytest.raises(ZooKeeperUnreachableError):
        session.start(S)

    assert session._connector._patience.limit() == first
