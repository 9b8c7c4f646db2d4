"""The process of the workers, which share one thread: see `simulated_workers`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from leader import ZooKeeperConfig, ZooKeeperSession
from tests.benchmark.engine.floor import floor
from tests.benchmark.engine.shapes import place_of
from tests.benchmark.engine.simulated_workers import SimulatedWorkers
from tests.benchmark.engine.usage import usage

LONG = timedelta(seconds=30)


class WorkersRole:
    """See the module. The main thread calls its public methods."""

    def __init__(self, hosts: str, root: str) -> None:
        config = ZooKeeperConfig(hosts=hosts, session_timeout=timedelta(seconds=60))
        self.session = ZooKeeperSession(config)
        self.session.start(LONG)
        self.workers = SimulatedWorkers(self.session, root)

    def register(self, prefix: str, count: int, slots: int, holding: bool) -> None:
        """Add workers."""
        self.workers.register(prefix, count, slots, holding=holding)

    def forget(self) -> None:
        """Begin a new tally."""
        self.workers.forget()

    def await_held(self, count: int, within_s: float) -> int:
        """Wait until `count` attempts are claimed and held. Returns how many are."""
        self.workers.wait_for(lambda: len(self.workers.held) >= count, within_s)
        return len(self.workers.held)

    def end_held(self, count: int) -> int:
        """Write END for `count` of the held attempts."""
        return self.workers.end_held(count)

    def release_held(self) -> None:
        """Write END for all held attempts."""
        self.workers.release_held()

    def await_closed(self, count: int, within_s: float) -> dict[str, Any]:
        """Wait until the leader has processed `count` ENDs since `forget`. Returns the tally."""
        self.workers.wait_for(lambda: self.workers.tally.closed >= count, within_s)
        tally = self.workers.tally
        return {
            "closed": tally.closed,
            "refused": tally.refused,
            "first_seen_ns": tally.first_seen_ns,
            "last_closed_ns": tally.last_closed_ns,
            "busy_s": tally.busy_s,
        }

    def gaps_ms(self, run: str) -> list[float]:
        """For a chain: times from the END of a task until the order for its successor was seen."""
        tally = self.workers.tally
        ends = {place_of(a.task): ns for a, ns in tally.end_ns.items() if a.run == run}
        seen = {place_of(a.task): ns for a, ns in tally.seen_ns.items() if a.run == run}
        return [(seen[place] - ends[place - 1]) / 1e6 for place in sorted(seen) if place]

    def floor(self, sizes: dict[str, int], tasks: int, batch: int) -> float:
        """See `floor`."""
        return floor(self.session.client, sizes, tasks, batch)

    def session_id(self) -> int:
        """The session's id in the transaction log."""
        return self.session.session_id or 0

    def usage(self) -> dict[str, float]:
        """CPU and memory of this process."""
        return usage()

    def close(self) -> None:
        """End the thread and the session."""
        self.workers.close()
        self.session.close(LONG)
