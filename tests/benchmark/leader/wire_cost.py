"""Counts requests and bytes of each join and leave. Each host process has a proxy that counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from kazoo.client import KazooClient

from tests.benchmark.leader.bench_server import BenchServer
from tests.benchmark.leader.contenders import HOSTS, Contender
from tests.benchmark.leader.handover import Queue
from tests.fault_proxy.proxy import FaultProxy, Op

_PING_BYTES_TO_SERVER = 12
_PING_BYTES_TO_CLIENT = 20
_QUIET_S = 0.08
"""After this time, all requests of a join or a leave have been answered."""


@dataclass(frozen=True)
class Traffic:
    """Requests, and bytes in both directions with their length prefixes, without pings."""

    requests: int
    bytes: int

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.requests - other.requests, self.bytes - other.bytes)


def wire_cost(
    found: Sequence[Contender], bench: BenchServer, participants: int, rounds: int
) -> dict[str, object]:
    """Medians for each contender: of a join, and of the leave of a leader, for each process."""
    return {contender.name: _one(contender, bench, participants, rounds) for contender in found}


def _one(contender: Contender, bench: BenchServer, participants: int, rounds: int) -> dict[str, object]:
    with ExitStack() as stack:
        target = ("127.0.0.1", bench.server.port)
        proxies = [stack.enter_context(FaultProxy([target])) for _ in range(HOSTS)]
        observer = KazooClient(bench.server.hosts)
        observer.start(timeout=15)
        stack.callback(observer.close)
        stack.callback(observer.stop)
        group = contender.start([proxy.hosts for proxy in proxies], bench.folder)
        stack.callback(group.close)
        queue = Queue(contender, group, observer, pause_s=_QUIET_S)
        queue.grow(participants)
        return _counted(queue, proxies, rounds)


def _counted(queue: Queue, proxies: Sequence[FaultProxy], rounds: int) -> dict[str, object]:
    parts: dict[str, list[Traffic]] = {"join": [], "leave": [], "take over": [], "others": []}
    for _ in range(rounds):
        old, new = queue.order[0], queue.order[1]
        left = _during(proxies, queue.hand_over)
        joined = _during(proxies, lambda number=old: queue.join(number))  # type: ignore[misc]
        roles = {old % HOSTS: "leave", new % HOSTS: "take over"}
        for number, traffic in enumerate(left):
            parts[roles.get(number, "others")].append(traffic)
        parts["join"].append(Traffic(sum(t.requests for t in joined), sum(t.bytes for t in joined)))
    return {
        part: {"requests": median(t.requests for t in all_of), "bytes": median(t.bytes for t in all_of)}
        for part, all_of in parts.items()
    }


def _during(proxies: Sequence[FaultProxy], act: Callable[[], object]) -> list[Traffic]:
    before = [_passed(proxy) for proxy in proxies]
    act()
    time.sleep(_QUIET_S)
    return [_passed(proxy) - earlier for proxy, earlier in zip(proxies, before, strict=True)]


def _passed(proxy: FaultProxy) -> Traffic:
    seen = proxy.traffic()
    pings = seen.requests.get(Op.PING, 0)
    both_ways = seen.bytes_to_server + seen.bytes_to_client
    return Traffic(
        requests=sum(seen.requests.values()) - pings,
        bytes=both_ways - pings * (_PING_BYTES_TO_SERVER + _PING_BYTES_TO_CLIENT),
    )
