"""The cost of `is_leader()`, and of the fence of a write. Runs inside our host process."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from statistics import median
from typing import Any

from leader import LeaderLockQueue, Leadership, ZooKeeperSession, fenced_transaction
from tests.benchmark.leader.clock import now_ns
from tests.benchmark.leader.figures import percentile

_CALLS = 20_000
_REPEATS = 15
_DATA = b"x" * 100


def call_cost(
    session: ZooKeeperSession, queue: LeaderLockQueue, leadership: Leadership, path: str, pairs: int
) -> dict[str, float]:
    """Measure `is_leader()` in ns, and the same write in ms, plain and fenced, in turns.

    Args:
        path: The node to create and write. Its parent must exist.
        pairs: Number of writes of each kind.
    """
    took = timeit.repeat(queue.is_leader, number=_CALLS, repeat=_REPEATS)
    per_call_ns = [seconds / _CALLS * 1e9 for seconds in took]
    return {
        # The best of the repeats is the cost. Other processes on the machine cause the rest.
        "is_leader_ns_best": round(min(per_call_ns), 1),
        "is_leader_ns_p50": round(median(per_call_ns), 1),
        **_writes(session, leadership, path, pairs),
    }


def _writes(session: ZooKeeperSession, leadership: Leadership, path: str, pairs: int) -> dict[str, float]:
    session.call(session.client.create_async, path, _DATA)

    def plain() -> None:
        session.call(session.client.set_async, path, _DATA)

    def transaction() -> None:
        unfenced = session.client.transaction()
        unfenced.set_data(path, _DATA)
        session.call(unfenced.commit_async)

    def write(transaction: Any) -> None:
        transaction.set_data(path, _DATA)

    def fenced() -> None:
        fenced_transaction(session, leadership.token, write)

    ways: dict[str, Callable[[], None]] = {"plain": plain, "transaction": transaction, "fenced": fenced}
    found: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(pairs + 50):
        first = turn % len(names)  # the first write of a turn may pay for a cold cache
        for name in [*names[first:], *names[:first]]:
            before = now_ns()
            ways[name]()
            if turn >= 50:
                found[name].append((now_ns() - before) / 1e6)
    session.call(session.client.delete_async, path)
    return {
        f"{name}_write_ms_{point}": round(percentile(values, share), 4)
        for name, values in found.items()
        for point, share in (("p50", 0.5), ("p99", 0.99))
    }
