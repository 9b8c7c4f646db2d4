"""The thread of an election, with a core that does nothing."""

from __future__ import annotations

from datetime import timedelta

from leader import ZooKeeperConfig, ZooKeeperSession
from leader.clock import boottime
from leader.journal import DeferredJournal, LogJournal
from leader.loop import LinkEvent, Loop
from leader.protocol.requests import Operation, Steps
from leader.zookeeper.session import SessionState

WITHIN = timedelta(seconds=10)


class Idle:
    """A core that ends when it is told to."""

    def __init__(self) -> None:
        self.ended = False
        self.due_at: timedelta | None = None
        self.foreseen: tuple[Operation, ...] = ()

    def end(self) -> Steps[None]:
        self.ended = True
        yield from ()

    def expired(self) -> Steps[None]:
        yield from ()

    def heard(self, path: str, gone: bool) -> Steps[None]:
        yield from ()

    def link(self, event: LinkEvent) -> Steps[None]:
        yield from ()

    def waits(self) -> None:
        return

    def abort(self, reason: str) -> None:
        self.ended = True


def test_what_comes_after_the_end_is_not_kept() -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1"))
    loop, core = Loop(session, boottime, DeferredJournal(LogJournal()), "loop-of-a-test"), Idle()
    loop.post(core.end)  # what comes before the start is kept
    loop.start(core)
    loop.thread.join(WITHIN.total_seconds())
    assert core.ended

    for _ in range(1_000):
        loop.post(core.end)
        loop._on_watch("/x", False)
        loop._on_session(SessionState.SUSPENDED)

    assert loop._inbox.qsize() == 0
    assert loop.stop(WITHIN)
