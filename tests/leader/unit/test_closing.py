"""Two threads close the same object at the same time: the second waits, within its own limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from leader import (
    ElectionConfig,
    LeaderElectionService,
    LeaderError,
    LogJournal,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from leader.clock import boottime
from leader.journal import Entry
from leader.latch import CloseMode, LatchConfig, LeaderLatch
from leader.local.memory import MemoryElection, MemoryElector
from leader.local.zookeeper import MemoryZooKeeper
from leader.protocol.requests import Steps
from leader.zookeeper.executor import SessionExecutor

Eventually = Callable[..., None]
LONG = timedelta(seconds=10)
A_WHILE = timedelta(seconds=0.3)


def _second_waits(end: Callable[[timedelta], None], hangs: threading.Event, go_on: threading.Event) -> None:
    """Call `end` from three threads at once. The first call hangs, and sets `hangs`, until `go_on` is set."""
    first, second = (threading.Thread(target=end, args=(LONG,), name="ends") for _ in range(2))
    try:
        first.start()
        assert hangs.wait(LONG.total_seconds())
        second.start()
        end(A_WHILE)
        second.join(A_WHILE.total_seconds())
        assert first.is_alive()
        assert second.is_alive()
    finally:
        go_on.set()
        for thread in (first, second):
            thread.join(LONG.total_seconds())
    assert not first.is_alive()
    assert not second.is_alive()
    end(LONG)


class Hanging(LogJournal):
    """A journal that blocks the latch's thread at its first entry, until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.go_on = threading.Event(), threading.Event()

    def record(self, entry: Entry) -> None:
        self.hangs.set()
        self.go_on.wait(LONG.total_seconds())


def test_a_second_close_of_a_latch_waits_for_the_first() -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1"))
    journal = Hanging()
    latch = LeaderLatch(session, LatchConfig(path="/q"), journal=journal)
    latch.start()

    _second_waits(lambda timeout: latch.close(timeout=timeout), journal.hangs, journal.go_on)


class Heard:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.leads, self.lost = threading.Event(), threading.Event()

    def is_leader(self) -> None:
        self.leads.set()

    def not_leader(self) -> None:
        self.lost.set()


def test_a_latch_that_is_ended_by_force_tells_its_listeners_if_its_close_mode_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, heard = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1")), Heard()
    connection = MemoryZooKeeper(boottime).connect(lambda _path, _gone: None)
    session.liveness.attached(connection.session_id, boottime(), LONG)
    monkeypatch.setattr(SessionExecutor, "answer", lambda _self, request: connection.answer(request))
    latch = LeaderLatch(session, LatchConfig(path="/q", close_mode=CloseMode.NOTIFY_LEADER))
    latch.add_listener(heard)
    hangs, go_on = threading.Event(), threading.Event()

    def hang() -> Steps[None]:
        hangs.set()
        go_on.wait(LONG.total_seconds())
        yield from ()

    latch.start()
    try:
        assert heard.leads.wait(LONG.total_seconds())
        latch._driver.post(hang)
        assert hangs.wait(LONG.total_seconds())
        monkeypatch.setattr(ZooKeeperSession, "answer_limit", timedelta(0))

        latch.close(timeout=A_WHILE)
        assert not heard.lost.is_set(), "the driver has not come to its end"
    finally:
        go_on.set()

    assert heard.lost.wait(LONG.total_seconds())
    assert latch._driver.join(LONG)


class Slow:
    """A contender whose `revoke` is slow."""

    description = "slow"

    def __init__(self) -> None:
        self.leads, self.hangs, self.go_on = threading.Event(), threading.Event(), threading.Event()

    def grant(self, session: UUID) -> None:
        self.leads.set()

    def revoke(self) -> None:
        self.hangs.set()
        self.go_on.wait(60)

    def handle_error(self, error: LeaderError) -> None:
        return


def _leading(contender: Slow) -> LeaderElectionService:
    """A service of one participant, whose contender leads."""
    service = LeaderElectionService(
        elect=lambda electable: MemoryElector(
            MemoryElection(),
            config=ElectionConfig(root="/e"),
            participant=Participant("a"),
            guard=lambda: Verdict(True),
            electable=electable,
        ),
        root="/e",
    )
    service.election("c").start(contender)
    service.start()
    assert contender.leads.wait(LONG.total_seconds())
    return service


def test_a_second_stop_of_a_service_waits_for_the_first() -> None:
    slow = Slow()
    service = _leading(slow)

    _second_waits(service.stop, slow.hangs, slow.go_on)


def test_a_service_that_stops_while_a_contender_hangs_leaves_no_thread_of_the_election(
    eventually: Eventually,
) -> None:
    slow = Slow()
    service = _leading(slow)
    names = {"leader-election", "leader-callbacks"}
    electing = [one for one in threading.enumerate() if one.name in names]
    assert {one.name for one in electing} == names
    try:
        service.elector.abdicate("enough")
        assert slow.hangs.wait(LONG.total_seconds())

        service.stop(A_WHILE)

        eventually(lambda: not any(thread.is_alive() for thread in electing))
        assert not slow.go_on.is_set()
    finally:
        slow.go_on.set()


def test_a_second_close_of_a_session_waits_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1"))
    hangs, go_on = threading.Event(), threading.Event()

    def stop() -> None:
        hangs.set()
        go_on.wait(LONG.total_seconds())

    monkeypatch.setattr(session.client, "stop", stop)

    _second_waits(session.close, hangs, go_on)
