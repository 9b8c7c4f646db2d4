"""Our LeaderLatch as a contender. Like Curator's, it has no guard, epoch or fence."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta

import structlog

from leader import LatchConfig, LeaderLatch, ZooKeeperConfig, ZooKeeperSession
from tests.benchmark.leader.clock import now_ns
from tests.benchmark.leader.kazoo_side import Lead

_LIMIT = timedelta(seconds=15)


class LatchSide:
    """See the module. One thread calls `join` and `close`."""

    def __init__(self, hosts: str, path: str, session_timeout: timedelta, lead: Lead) -> None:
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),  # standard output is for answers
        )
        self._path, self._lead = path, lead
        self._session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=session_timeout))
        self._session.start(_LIMIT)
        self._latches: dict[int, LeaderLatch] = {}

    def join(self, participant: int) -> None:
        latch = LeaderLatch(self._session, LatchConfig(path=self._path, id=str(participant)))
        latch.add_listener(_Listener(participant, self._lead))
        self._latches[participant] = latch
        latch.start()

    def close(self, participant: int) -> tuple[int, int]:
        latch = self._latches.pop(participant)
        called = now_ns()
        latch.close()
        return called, now_ns()

    def cost(self, participant: int, pairs: int) -> dict[str, float]:
        raise NotImplementedError("a latch has no fence")

    def end(self) -> None:
        for latch in self._latches.values():
            latch.close(timeout=timedelta(0))
        self._session.close(_LIMIT)


class _Listener:
    def __init__(self, participant: int, lead: Lead) -> None:
        self._participant, self._lead = participant, lead

    def is_leader(self) -> None:
        self._lead(self._participant, now_ns(), 0)

    def not_leader(self) -> None:
        pass
