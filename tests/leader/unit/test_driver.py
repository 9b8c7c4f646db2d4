"""The driver of an election, with a core that the test controls."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from queue import SimpleQueue

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession
from leader.clock import boottime
from leader.core.latch import model as latch_m
from leader.journal import DeferredJournal, Entry, Granted, LogJournal
from leader.protocol.requests import Steps
from leader.runtime.driver import Driver
from leader.zookeeper.session import SessionState
from tests.forked import exit_code_of_child

WITHIN = timedelta(seconds=10)
WITHIN_S = WITHIN.total_seconds()


class ScriptedCore:
    """A core that ends when the test calls `end`, and records its timer and `abort`."""

    def __init__(self) -> None:
        self.ended = False
        self.due_at: timedelta | None = None
        self.due = threading.Event()
        self.aborted: list[str] = []

    def end(self) -> Steps[None]:
        self.ended = True
        yield from ()

    def expired(self) -> Steps[None]:
        self.due_at = None
        self.due.set()
        yield from ()

    def watch_fired(self, path: str, gone: bool) -> Steps[None]:
        yield from ()

    def link(self, event: latch_m.LinkEvent) -> Steps[None]:
        yield from ()

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)
        self.ended = True


class Epochs(LogJournal):
    """A journal that records the epochs of its entries."""

    def __init__(self) -> None:
        super().__init__()
        self.told: SimpleQueue[int] = SimpleQueue()

    def record(self, entry: Entry) -> None:
        assert isinstance(entry, Granted)
        self.told.put(entry.epoch)


class Stage:
    """A driver with a `ScriptedCore`, and methods that post work to it."""

    def __init__(self) -> None:
        self.core, self.journal = ScriptedCore(), Epochs()
        self.deferred = DeferredJournal(self.journal)
        self.at_end = threading.Event()
        self.driver = Driver(
            self.core,
            ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1", session_timeout=3 * WITHIN)),
            lambda _on_watch: _to_the_end,
            clock=boottime,
            journal=self.deferred,
            name="driver-of-a-test",
            on_end=self.at_end.set,
        )

    def do(self, work: Callable[[], object]) -> None:
        """Post `work` to the driver."""

        def steps() -> Steps[None]:
            work()
            yield from ()

        self.driver.post(steps)

    def done(self) -> threading.Event:
        """Return an event that the driver sets when all work posted before is done."""
        event = threading.Event()
        self.do(event.set)
        return event

    def end(self) -> bool:
        self.driver.post(self.core.end)
        return self.driver.stop(WITHIN) and self.driver.join(WITHIN)


def _to_the_end(steps: Steps[None]) -> None:
    for _ in steps:
        pass


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.driver.start()
    yield made
    made.end()


def test_a_timer_runs_out_and_work_goes_on(stage: Stage) -> None:
    def work() -> None:
        stage.core.due_at = boottime() + timedelta(milliseconds=20)

    stage.do(work)

    assert stage.core.due.wait(WITHIN_S)
    assert stage.done().wait(WITHIN_S)


def test_the_journal_is_told_when_nothing_else_happens_and_before_the_end(stage: Stage) -> None:
    stage.do(lambda: stage.deferred.record(Granted(1, timedelta(0))))
    assert stage.journal.told.get(timeout=WITHIN_S) == 1

    stage.do(lambda: stage.deferred.record(Granted(2, timedelta(0))))
    stage.end()

    assert stage.journal.told.get_nowait() == 2


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(3), MemoryError()])
def test_a_core_that_raises_is_aborted_and_the_thread_ends_in_order(
    stage: Stage, raised: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)

    def work() -> None:
        raise raised

    stage.do(work)

    assert stage.at_end.wait(WITHIN_S)
    assert stage.core.aborted[0] == "the election's driver failed"
    assert stage.driver.stop(WITHIN)
    assert stage.driver.join(WITHIN)
    assert died == []


def test_a_core_whose_timer_cannot_be_read_is_aborted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error occurs between two pieces of work, not in one."""
    died = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _args: died.set())

    def broken() -> None:
        stage.core.due_at = "soon"  # type: ignore[assignment]

    stage.do(broken)

    assert stage.at_end.wait(WITHIN_S)
    assert died.wait(WITHIN_S), "and not in silence"
    assert stage.core.aborted == ["the election's driver ended"]


def test_without_room_for_a_thread_it_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    unlucky = Stage()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            unlucky.driver.start()

    assert not unlucky.done().is_set()
    assert unlucky.driver._thread._jobs.empty()
    assert unlucky.end()


def test_a_forked_child_has_nobody_to_wait_for(stage: Stage) -> None:
    assert stage.done().wait(WITHIN_S)

    def child() -> int:
        limit = timedelta(seconds=30)
        began = boottime()
        stopped = stage.driver.stop(limit) and stage.driver.join(limit)
        return 0 if stopped and boottime() - began < limit / 2 else 1

    assert exit_code_of_child(child) == 0


def test_the_end_leaves_no_thread(stage: Stage) -> None:
    stage.driver.post(stage.core.end)

    assert stage.driver.stop(WITHIN)
    assert stage.driver.join(WITHIN)
    assert stage.at_end.is_set()
    assert stage.core.aborted == ["the election's driver ended"]
    assert "driver-of-a-test" not in {thread.name for thread in threading.enumerate()}


def test_a_timer_that_is_due_for_ever_does_not_keep_the_thread_from_its_end(stage: Stage) -> None:
    def last() -> None:
        stage.core.due_at = timedelta(0)
        stage.core.ended = True

    stage.do(last)

    assert stage.driver.stop(WITHIN)
    assert stage.driver.join(WITHIN)


def test_a_core_that_does_not_end_is_ended(stage: Stage) -> None:
    assert not stage.driver.stop(timedelta(milliseconds=50))
    assert stage.core.aborted
    assert stage.driver.join(WITHIN)


def test_the_driver_does_not_wait_for_its_own_end(stage: Stage) -> None:
    answers: SimpleQueue[bool] = SimpleQueue()

    stage.do(lambda: answers.put(stage.driver.stop(WITHIN) and stage.driver.join(WITHIN)))

    assert answers.get(timeout=WITHIN_S / 2)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_done_twice_or_done_out_of_order(stage: Stage, seed: int) -> None:
    dice, pause = random.Random(seed), threading.Event()
    posters, works = 3, 300
    done: SimpleQueue[tuple[int, int, str]] = SimpleQueue()

    def work(poster: int, number: int) -> None:
        done.put((poster, number, threading.current_thread().name))

    def post_all(poster: int) -> None:
        for number in range(works):
            stage.do(partial(work, poster, number))
            if dice.random() < 0.2:
                pause.wait(dice.random() / 1000)

    threads = [threading.Thread(target=post_all, args=(poster,)) for poster in range(posters)]
    for thread in threads:
        thread.start()
    heard = [done.get(timeout=WITHIN_S) for _ in range(posters * works)]
    for thread in threads:
        thread.join()

    assert stage.end()
    assert {where for _, _, where in heard} == {"driver-of-a-test"}
    for poster in range(posters):
        assert [number for who, number, _ in heard if who == poster] == list(range(works))
    assert done.empty()


def test_what_comes_after_the_end_is_not_kept_and_the_session_tells_nothing_more() -> None:
    session, core = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1")), ScriptedCore()
    driver = Driver(
        core,
        session,
        lambda _on_watch: _to_the_end,
        clock=boottime,
        journal=DeferredJournal(LogJournal()),
        name="driver-of-a-test",
    )
    driver.post(core.end)  # work posted before the start is kept
    driver.start()
    assert driver.stop(WITHIN)
    assert driver.join(WITHIN)
    assert core.ended
    jobs = driver._thread._jobs
    before = jobs.qsize()

    for _ in range(1_000):
        driver.post(core.end)
        driver._on_watch("/x", False)
        driver._on_session(SessionState.SUSPENDED)

    assert jobs.qsize() == before
    assert session._states._listeners == []


def test_a_session_without_a_connection_is_healed_before_the_core_hears_of_its_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, core = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1")), ScriptedCore()
    done: list[str] = []
    monkeypatch.setattr(session, "heal", lambda: done.append("healed"))
    monkeypatch.setattr(core.due, "set", lambda: done.append("heard"))
    driver = Driver(
        core,
        session,
        lambda _on_watch: _to_the_end,
        clock=boottime,
        journal=DeferredJournal(LogJournal()),
        name="driver-of-a-test",
    )
    core.due_at = boottime()
    driver.start()
    driver.post(core.end)

    assert driver.stop(WITHIN)
    assert driver.join(WITHIN)
    assert done == ["healed", "heard"]
