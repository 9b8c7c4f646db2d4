"""A latch on a real session. The test sends its requests one by one.

So a test can run a race step by step, and act between two requests.
"""

from __future__ import annotations

import random
from collections import deque
from datetime import timedelta
from typing import Any

from leader.clock import boottime
from leader.core.latch import model as m
from leader.core.latch.core import LatchCore
from leader.core.latch.steps import PlainClaimant
from leader.core.lease import LeadershipLease
from leader.errors import LeaderError, ZooKeeperUnavailableError
from leader.journal import DeferredJournal, LogJournal
from leader.protocol.requests import Request, Steps
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import ZooKeeperSession

MARGIN = timedelta(milliseconds=500)


class HandDriven:
    """See the module. `woken` has events of watches that the latch has not handled yet."""

    def __init__(self, session: ZooKeeperSession, queue: str, name: str = "") -> None:
        self.session, self.queue = session, queue
        self.news: list[m.News] = []
        self.woken: deque[tuple[str, bool]] = deque()
        self.lease = LeadershipLease(session.liveness, boottime, MARGIN)
        self.core = LatchCore(
            session=session,
            queue=queue,
            data=name.encode(),
            claimant=PlainClaimant(queue),
            lease=self.lease,
            clock=boottime,
            uniform=random.uniform,
            retry_max=timedelta(seconds=1),
            tell=self.news.append,
            journal=DeferredJournal(LogJournal(name)),
        )
        self.asked: list[Request] = []
        self.pending: Request | None = None
        self._executor = SessionExecutor(session, lambda path, gone: self.woken.append((path, gone)))
        self._steps: Steps[None] | None = None

    @property
    def holds(self) -> bool:
        return isinstance(self.core.state, m.Holding) and self.lease.stands(self.lease.hold)

    @property
    def node(self) -> str:
        node = getattr(self.core.state, "node", None)
        assert isinstance(node, m.Node), self.core.state
        return node.name

    @property
    def words(self) -> list[str]:
        return [
            "is" if isinstance(one, m.Gained) else "not"
            for one in self.news
            if isinstance(one, m.Gained | m.LatchLost)
        ]

    @property
    def idle(self) -> bool:
        return self._steps is None

    def begin(self, event: m.Event) -> Request | None:
        """Handle `event`, and stop before the first request."""
        return self._begin(self.core.handle(event))

    def _begin(self, steps: Steps[None]) -> Request | None:
        assert self._steps is None, "it is still busy with the event before"
        self._steps = steps
        self._advance(None, None)
        return self.pending

    def answer_one(self, *, lose_reply: bool = False) -> None:
        """Send the pending request, and stop before the next one. Its reply may get lost."""
        assert self.pending is not None
        self.asked.append(self.pending)
        answer: Any = None
        error: LeaderError | None = None
        try:
            answer = self._executor.answer(self.pending)
        except LeaderError as exc:
            error = exc
        if lose_reply:
            error = ZooKeeperUnavailableError("the test lost the reply")
        self._advance(answer, error)

    def until(self, *kinds: type[object]) -> Request:
        """Continue until the next request is one of `kinds`. That one is not sent yet."""
        while self.pending is not None and not isinstance(self.pending, kinds):
            self.answer_one()
        assert self.pending is not None, f"it never asked for {kinds}"
        return self.pending

    def finish(self) -> None:
        """Continue to the end."""
        while self.pending is not None:
            self.answer_one()

    def do(self, event: m.Event) -> None:
        """Handle `event` completely."""
        self.begin(event)
        self.finish()

    def hear(self) -> bool:
        """Handle the oldest event of a watch. Returns False if there is none."""
        if not self.woken:
            return False
        self._hear(*self.woken.popleft())
        return True

    def hear_of_the_end_of(self, path: str) -> None:
        """Handle the event of a watch that a node is deleted."""
        self._hear(path, True)

    def begin_to_hear_of_the_end_of(self, path: str) -> None:
        """The same, but stop before the first request."""
        self._begin(self.core.watch_fired(path, True))

    def _hear(self, path: str, gone: bool) -> None:
        self._begin(self.core.watch_fired(path, gone))
        self.finish()

    def expire(self) -> None:
        """Its timer runs out."""
        self.core.due_at = None
        self.do(m.TimerDue())

    def _advance(self, answer: Any, error: LeaderError | None) -> None:
        assert self._steps is not None
        try:
            self.pending = self._steps.send(answer) if error is None else self._steps.throw(error)
        except StopIteration:
            self.pending, self._steps = None, None
