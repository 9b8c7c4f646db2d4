"""Fixtures of the contract suites."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.leader.elector_bench import Bench
from tests.leader.zookeeper_bench import Bench as ZooKeeperBench


@pytest.fixture
def bench(request: pytest.FixtureRequest, zk_root: str) -> Iterator[Bench]:
    """Electors of the kind that the test is parametrized with."""
    hosts = request.getfixturevalue("zookeeper").hosts if request.param == "zookeeper" else ""
    bench = Bench(request.param, zk_root, hosts)
    yield bench
    bench.end()


@pytest.fixture(params=["memory", "real"])
def zookeeper_bench(request: pytest.FixtureRequest) -> Iterator[ZooKeeperBench]:
    """Makes clients: of a ZooKeeper in memory, and of a real one."""
    hosts: str | None = None
    root = "/election"
    if request.param == "real":
        hosts, root = request.getfixturevalue("zookeeper").hosts, request.getfixturevalue("zk_root")
    made = ZooKeeperBench(root, hosts)
    try:
        yield made
    finally:
        made.end()
