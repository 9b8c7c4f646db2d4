"""Impossible settings are refused, with both values and a solution."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from leader import ElectionConfig, ElectionConfigError, ZooKeeperConfig, ZooKeeperSession
from leader.core.lease import check_margin

S = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"root": "nimbus"}, "'nimbus' must be an absolute"),
        ({"root": "/nimbus/"}, "without a slash at the end"),
        ({"root": "/"}, "without a slash at the end"),
        ({"root": "/a//b"}, "absolute ZooKeeper path"),
        ({"guard_timeout": 0 * S}, "guard_timeout .* must be above 0"),
        ({"requeue_backoff_min": -S}, "requeue_backoff_min"),
        ({"retry_max": 0 * S}, "retry_max"),
        ({"step_down_margin": 0 * S}, "step_down_margin"),
        ({"handover_timeout": -S}, "handover_timeout"),
        (
            {"requeue_backoff_min": 9 * S, "requeue_backoff_max": 3 * S},
            "0:00:03.* must not be below .*0:00:09",
        ),
        ({"guard_timeout": 9 * S, "forced_takeover_after": 8 * S}, "0:00:08.* must not be below .*0:00:09"),
    ],
)
def test_an_election_that_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ElectionConfigError, match=words):
        ElectionConfig(**{"root": "/nimbus", **settings})


def test_a_margin_of_half_the_session_is_refused_and_a_smaller_one_is_not() -> None:
    config = ElectionConfig(root="/nimbus", step_down_margin=2 * S)

    check_margin(config.step_down_margin, 5 * S)
    with pytest.raises(ElectionConfigError, match=r"0:00:02.*0:00:04"):
        check_margin(config.step_down_margin, 4 * S)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hosts": " "}, "at least one host:port"),
        ({"session_timeout": 0 * S}, "session_timeout"),
        ({"call_timeout": 0 * S}, "call_timeout"),
        ({"connect_timeout": 10 * S}, "connect_timeout .*0:00:10.* below session_timeout .*0:00:10"),
        ({"auth": ("digest", "nopassword")}, "user:password"),
    ],
)
def test_a_session_that_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ElectionConfigError, match=words):
        ZooKeeperConfig(**{"hosts": "127.0.0.1:2181", **settings})


def test_hosts_with_a_port_that_is_no_number_are_refused_with_their_text() -> None:
    with pytest.raises(ElectionConfigError, match="zk1:port"):
        ZooKeeperSession(ZooKeeperConfig(hosts="zk1:port"))
