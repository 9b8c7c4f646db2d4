"""Simulates many workers with one session and one thread. They claim and end many attempts in one request."""

from __future__ import annotations

import functools
import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from leader import ZooKeeperSession
from nimbus import records
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeRegistrations
from nimbus.adapters.store.paths import Paths
from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.ids import AttemptId, HostId, WorkerId
from nimbus.domain.runs.task_run import Outcome
from tests.benchmark.engine.shapes import failures_of
from tests.benchmark.leader.clock import now_ns

BATCH = 20
"""Number of attempts that one transaction claims or ends."""
_ANSWER_S = 60.0
_HOST = HostId("bench")


@dataclass
class Tally:
    """Counts and times since it was created, on the clock that all processes share."""

    ended: int = 0
    closed: int = 0
    refused: int = 0
    first_seen_ns: int = 0
    last_closed_ns: int = 0
    busy_s: float = 0.0
    seen_ns: dict[AttemptId, int] = field(default_factory=dict)
    """When an attempt's order was seen."""
    end_ns: dict[AttemptId, int] = field(default_factory=dict)
    """When its END was acknowledged."""


class SimulatedWorkers:
    """See the module. `register`, `end_held` and the tally's readers may be called from another thread."""

    def __init__(self, session: ZooKeeperSession, root: str) -> None:
        self._client, self._paths = session.client, Paths(root)
        self._registrations = TreeRegistrations(calls_on(session), root)
        self._dirty: queue.SimpleQueue[WorkerId | None] = queue.SimpleQueue()
        self._known: dict[WorkerId, set[str]] = {}
        self._holding: set[WorkerId] = set()
        self.held: list[AttemptId] = []
        self.tally = Tally()
        self.changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="bench-workers", daemon=True)
        self._thread.start()

    def register(self, prefix: str, count: int, slots: int, *, holding: bool) -> None:
        """Add workers. Holding workers claim their attempts and write beats, but do not end them."""
        for number in range(count):
            worker = WorkerId(f"{prefix}-{number}")
            now = datetime.now(UTC)
            info = WorkerInfo(
                id=worker, host=_HOST, hostname="bench", pid=1, slots=slots, version="1",
                started_at=now, reported_at=now,
            )  # fmt: skip
            self._known[worker] = set()
            if holding:
                self._holding.add(worker)
            self._registrations.publish_worker(info)
            self._dirty.put(worker)

    def end_held(self, count: int) -> int:
        """Write END for `count` of the held attempts, spread evenly. Returns how many were ended."""
        step = max(1, len(self.held) // count)
        chosen = self.held[::step][:count]
        gone = set(chosen)
        with self.changed:
            self.held = [attempt for attempt in self.held if attempt not in gone]
        self._end(chosen)
        return len(chosen)

    def release_held(self) -> None:
        """Write END for all held attempts. From now on, no worker holds attempts."""
        self._holding.clear()
        self._end(self.held)

    def forget(self) -> None:
        """Begin a new tally."""
        with self.changed:
            self.tally = Tally()

    def wait_for(self, reached: Callable[[], bool], within_s: float) -> None:
        """Wait until `reached` is true, or until the timeout. RuntimeError if the thread has ended."""
        with self.changed:
            self.changed.wait_for(lambda: reached() or self._ended, within_s)
            if self._ended and not reached():
                raise RuntimeError("the workers' thread has ended; see its log")

    def close(self) -> None:
        self._dirty.put(None)
        self._thread.join(_ANSWER_S)

    # Called by the workers' thread.

    def _work(self) -> None:
        try:
            while (dirty := self._collect()) is not None:
                began = time.perf_counter()
                self._look(dirty)
                self.tally.busy_s += time.perf_counter() - began
        finally:  # also if the connection to ZooKeeper is lost
            with self.changed:
                self._ended = True
                self.changed.notify_all()

    def _collect(self) -> set[WorkerId] | None:
        """Wait for workers whose orders have changed; None: the thread must end."""
        found = [self._dirty.get()]
        while not self._dirty.empty():
            found.append(self._dirty.get_nowait())
        return None if None in found else {worker for worker in found if worker is not None}

    def _look(self, dirty: Iterable[WorkerId]) -> None:
        asked = [
            (
                worker,
                self._client.get_children_async(
                    self._paths.orders(worker), watch=functools.partial(_put, self._dirty.put, worker)
                ),
            )
            for worker in dirty
        ]
        new: dict[bool, list[tuple[WorkerId, str]]] = {True: [], False: []}
        for worker, answer in asked:
            names = set(answer.get(timeout=_ANSWER_S))
            new[worker in self._holding] += [(worker, name) for name in sorted(names - self._known[worker])]
            self._note_closed(len(self._known[worker] - names))
            self._known[worker] = names
        self._read(new[True] + new[False])
        now = now_ns()
        self._hold([(worker, AttemptId.parse(name)) for worker, name in new[True]])
        mine = [(worker, AttemptId.parse(name)) for worker, name in new[False]]
        if mine and not self.tally.first_seen_ns:
            self.tally.first_seen_ns = now
        self.tally.seen_ns |= {attempt: now for _, attempt in mine}
        for some in _chunks(mine):
            self._claim(some, beating=False)
            self._end([attempt for _, attempt in some])

    def _read(self, orders: Iterable[tuple[WorkerId, str]]) -> None:
        """Read orders as a worker does. Their content is not used."""
        asked = [self._client.get_async(f"{self._paths.orders(worker)}/{name}") for worker, name in orders]
        for answer in asked:
            answer.wait(_ANSWER_S)

    def _hold(self, attempts: Sequence[tuple[WorkerId, AttemptId]]) -> None:
        for some in _chunks(attempts):
            self._claim(some, beating=True)
            with self.changed:
                self.held += [attempt for _, attempt in some]
                self.changed.notify_all()

    def _claim(self, attempts: Sequence[tuple[WorkerId, AttemptId]], *, beating: bool) -> None:
        transaction = self._client.transaction()
        for worker, attempt in attempts:
            claim = Claim(
                attempt=str(attempt), worker=worker, host=_HOST, pid=1, start_ticks=1,
                claimed_at=datetime.now(UTC),
            )  # fmt: skip
            transaction.create(self._paths.claim(attempt), records.CLAIM.encode(claim))
            if beating:
                beat = json.dumps({"schema": records.SCHEMA, "progress": {}}).encode()
                transaction.create(self._paths.heartbeat(attempt), beat, ephemeral=True)
        self._note_refused(transaction.commit_async().get(timeout=_ANSWER_S))

    def _end(self, attempts: Sequence[AttemptId]) -> None:
        for some in _chunks(attempts):
            transaction = self._client.transaction()
            for attempt in some:
                transaction.create(self._paths.end(attempt), records.END.encode(_end_of(attempt)))
            self._note_refused(transaction.commit_async().get(timeout=_ANSWER_S))
            now = now_ns()
            self.tally.end_ns |= dict.fromkeys(some, now)
            self.tally.ended += len(some)

    def _note_closed(self, count: int) -> None:
        if count:
            with self.changed:
                self.tally.closed += count
                self.tally.last_closed_ns = now_ns()
                self.changed.notify_all()

    def _note_refused(self, results: Iterable[object]) -> None:
        self.tally.refused += any(isinstance(result, Exception) for result in results)


def _put(put: Callable[[WorkerId | None], None], worker: WorkerId, _event: object) -> None:
    put(worker)


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def _end_of(attempt: AttemptId) -> End:
    now = datetime.now(UTC)
    failed = attempt.number <= failures_of(attempt.task)
    return End(
        attempt=str(attempt),
        outcome=Outcome.FAILED if failed else Outcome.SUCCEEDED,
        written_by="runner",
        started_at=now - timedelta(milliseconds=1),
        ended_at=now,
        exit_code=int(failed),
        output=None if failed else f"{attempt.run}/{attempt.task}/{attempt.number}",
    )
