"""Our election as a contender: several LeaderLockQueues on one session, each with a guard that agrees."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Callable
from datetime import timedelta

import structlog

from leader import (
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from tests.benchmark.leader.call_cost import call_cost
from tests.benchmark.leader.clock import now_ns

Lead = Callable[[int, int, int], None]
_LIMIT = timedelta(seconds=15)


class OurSide:
    """See the module. One thread calls `join` and `close`.

    Args:
        note: Called when the guard is asked, for a profile.
    """

    def __init__(
        self,
        hosts: str,
        root: str,
        session_timeout: timedelta,
        lead: Lead,
        note: Callable[[str], None] | None = None,
    ) -> None:
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),  # standard output is for answers
        )
        self._root, self._lead, self._note = root, lead, note
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=session_timeout))
        self.session.start(_LIMIT)
        self.queues: dict[int, LeaderLockQueue] = {}
        self.leaderships: dict[int, Leadership] = {}

    def join(self, participant: int) -> None:
        queue = LeaderLockQueue(
            session=self.session,
            config=ElectionConfig(root=self._root),
            participant=Participant(
                id=str(participant), host="127.0.0.1", port=1024 + participant, boot_id=uuid.uuid4().hex
            ),
            guard=self._guard,
            electable=_Electable(participant, self._told),
        )
        self.queues[participant] = queue
        queue.add_to_leader_lock_queue()

    def close(self, participant: int) -> tuple[int, int]:
        queue = self.queues.pop(participant)
        self.leaderships.pop(participant, None)
        called = now_ns()
        queue.close(_LIMIT)
        return called, now_ns()

    def cost(self, participant: int, pairs: int) -> dict[str, float]:
        """See `call_cost`; the participant must lead."""
        leadership, queue = self.leaderships[participant], self.queues[participant]
        return call_cost(self.session, queue, leadership, f"{self._root}/written", pairs)

    def end(self) -> None:
        for queue in self.queues.values():
            queue.close(timedelta(0))
        self.session.close(_LIMIT)

    def _guard(self) -> Verdict:
        if self._note is not None:
            self._note("guard asked, answers")
        return Verdict(True)

    def _told(self, participant: int, at_ns: int, leadership: Leadership) -> None:
        # Only real hand-overs may be counted: leadership is confirmed, and still held at this moment.
        if not self.queues[participant].is_leader():
            raise RuntimeError(f"participant {participant} was elected and does not lead")
        self.leaderships[participant] = leadership
        self._lead(participant, at_ns, leadership.epoch)


class _Electable:
    def __init__(self, participant: int, told: Callable[[int, int, Leadership], None]) -> None:
        self._participant, self._told = participant, told

    def elected(self, leadership: Leadership) -> None:
        self._told(self._participant, now_ns(), leadership)

    def revoked(self, leadership: Leadership, reason: str) -> None:
        pass
