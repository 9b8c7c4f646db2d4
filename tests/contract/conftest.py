"""What contract suites share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.elector_bench import Bench


@pytest.fixture
def bench(request: pytest.FixtureRequest, zk_root: str) -> Iterator[Bench]:
    hosts = request.getfixturevalue("zookeeper").hosts if request.param == "zookeeper" else ""
    """Electors of the kind that the test is parametrized with."""
    bench = Bench(request.param, zk_root, hosts)
    yield bench
    bench.end()
