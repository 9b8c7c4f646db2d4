"""The threads of an election, with a core that does what a test tells it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from queue import SimpleQueue

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession, crew
from leader import loop as under_test
from leader.clock import Countdown, boottime
from leader.errand import Afterwards
from leader.journal import DeferredJournal, LogJournal
from leader.session_loop import SessionLoop
from leader.zookeeper.session import SessionState
from tests.forked import exit_code_of_child
from tests.loop_stage import WITHIN, WITHIN_S, ScriptedCore, Stage

Eventually = Callable[..., None]


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.loop.start(errands=True)
    yield made
    made.end()


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stands by comes when it is called, and only then."""
    monkeypatch.setattr(crew, "LOOK_S", 2 * WITHIN_S)


def here() -> str:
    return threading.current_thread().name


@pytest.mark.usefixtures("nobody_looks")
def test_foreign_code_and_what_follows_from_it_wake_no_other_thread(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: SimpleQueue[str] = SimpleQueue()
    called: list[str] = []
    monkeypatch.setattr(stage.loop._crew, "call", lambda: called.append(here()))

    def errand() -> Afterwards:
        where.put(here())
        return lambda: stage.do(lambda: where.put(here()))

    def work() -> None:
        where.put(here())
        stage.loop.send(errand)

    stage.do(work)
    threads = {where.get(timeout=WITHIN_S) for _ in range(3)}
    for _ in range(10):
        assert stage.done().wait(WITHIN_S)

    assert len(threads) == 1
    assert called == []
    monkeypatch.undo()


@pytest.mark.usefixtures("nobody_looks")
def test_work_goes_on_while_foreign_code_hangs(stage: Stage) -> None:
    where: SimpleQueue[str] = SimpleQueue()
    stage.do(lambda: stage.loop.send(stage.hang))
    hanging = stage.held_up_thread()

    stage.do(lambda: where.put(here()))

    assert where.get(timeout=WITHIN_S) != hanging


@pytest.mark.usefixtures("nobody_looks")
def test_what_was_posted_before_foreign_code_began_to_hang_is_done_too(stage: Stage) -> None:
    """More of it than is done before foreign code is called."""
    done: SimpleQueue[int] = SimpleQueue()

    def work() -> None:
        stage.loop.send(stage.hang)
        for number in range(20):
            stage.do(partial(done.put, number))

    stage.do(work)

    assert [done.get(timeout=WITHIN_S) for _ in range(20)] == list(range(20))
    assert stage.held_up_thread()


def test_some_of_what_is_in_the_inbox_is_done_before_foreign_code_is_called_but_not_all(stage: Stage) -> None:
    order: SimpleQueue[str] = SimpleQueue()

    def work() -> None:
        stage.loop.send(lambda: order.put("foreign code"))
        for number in range(under_test._FIRST + 1):
            stage.do(partial(order.put, f"work {number}"))

    stage.do(work)
    heard = [order.get(timeout=WITHIN_S) for _ in range(under_test._FIRST + 2)]

    assert heard[: under_test._FIRST] == [f"work {number}" for number in range(under_test._FIRST)]
    assert set(heard[under_test._FIRST :]) == {"foreign code", f"work {under_test._FIRST}"}


def test_foreign_code_is_called_however_much_there_is_to_do(stage: Stage) -> None:
    called = threading.Event()

    def work() -> None:
        if not called.is_set():
            stage.do(work)

    stage.do(work)
    stage.do(lambda: stage.loop.send(called.set))

    assert called.wait(WITHIN_S)


@pytest.mark.usefixtures("nobody_looks")
@pytest.mark.parametrize("how_many", [2, 5])
def test_work_goes_on_while_several_pieces_of_foreign_code_hang(
    stage: Stage, how_many: int, eventually: Eventually
) -> None:
    def work() -> None:
        for _ in range(how_many):
            stage.loop.send(stage.hang)

    stage.do(work)

    assert len({stage.held_up_thread() for _ in range(how_many)}) == how_many
    assert stage.done().wait(WITHIN_S)
    stage.go_on.set()
    eventually(lambda: len(stage.loop._crew._threads) == 2, what="the threads that are too many have ended")
    assert stage.done().wait(WITHIN_S)


@pytest.mark.usefixtures("nobody_looks")
def test_a_timer_that_is_near_runs_out_in_time_while_foreign_code_hangs(stage: Stage) -> None:
    def work() -> None:
        stage.core.due_at = boottime() + under_test._SOON / 2
        stage.loop.send(stage.hang)

    stage.do(work)

    assert stage.core.due.wait(WITHIN_S)
    assert not stage.go_on.is_set()


def test_a_timer_that_is_not_near_runs_out_too(stage: Stage, eventually: Eventually) -> None:
    eventually(lambda: stage.loop._crew._standing_by, what="nobody is on its way")

    def work() -> None:
        stage.core.due_at = boottime() + 2 * under_test._SOON
        stage.loop.send(stage.hang)

    stage.do(work)

    assert stage.core.due.wait(WITHIN_S)
    assert not stage.go_on.is_set()


@pytest.mark.usefixtures("nobody_looks")
@pytest.mark.parametrize("held_up", [False, True], ids=["other stands by", "other is held up"])
def test_foreign_code_is_called_while_who_drives_waits_for_zookeeper(stage: Stage, held_up: bool) -> None:
    if held_up:
        stage.do(lambda: stage.loop.send(stage.hang))
        stage.held_up_thread()
    called = threading.Event()
    stage.core.while_waiting = lambda: stage.loop.send(called.set)

    def request() -> None:
        stage.loop.sent()
        assert called.wait(WITHIN_S)

    stage.do(request)

    assert stage.done().wait(WITHIN_S)
    assert not stage.core.aborted


def test_foreign_code_that_raises_all_the_same_ends_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = threading.Event()
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)

    def errand() -> None:
        raise SystemExit(3)

    stage.do(lambda: stage.loop.send(errand))
    stage.do(lambda: stage.loop.send(called.set))

    assert called.wait(WITHIN_S)
    assert stage.end()
    assert died == []


@pytest.mark.usefixtures("nobody_looks")
def test_without_room_for_a_thread_work_goes_on_and_foreign_code_waits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.do(lambda: stage.loop.send(stage.hang))
    stage.held_up_thread()
    called, start = threading.Event(), threading.Thread.start

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    stage.do(lambda: stage.loop.send(called.set))
    assert stage.done().wait(WITHIN_S)
    assert stage.done().wait(WITHIN_S)
    assert not called.is_set()
    monkeypatch.setattr(threading.Thread, "start", start)
    stage.done()

    assert called.wait(WITHIN_S)


@pytest.mark.usefixtures("nobody_looks")
def test_a_thread_that_dies_after_it_has_let_go_does_not_end_what_another_drives(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    eventually(lambda: stage.loop._crew._standing_by)
    died, called = threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _args: died.set())

    def fails() -> bool:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(stage.loop._crew, "somebody_stands_by", fails)
        stage.do(lambda: stage.loop.send(called.set))
        assert died.wait(WITHIN_S)

    assert stage.done().wait(WITHIN_S)
    assert called.wait(WITHIN_S)
    assert not stage.core.aborted


def test_without_room_for_any_thread_it_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    unlucky = Stage()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            unlucky.loop.start(errands=True)

    assert not unlucky.done().is_set()
    assert unlucky.loop._inbox.empty()
    assert unlucky.end()


def test_a_thread_that_is_just_being_started_is_not_waited_for(stage: Stage) -> None:
    assert stage.end()
    stage.loop._crew._threads.append(threading.Thread(target=here))

    assert stage.loop.join(Countdown(timedelta(0)))


def test_a_forked_child_has_nobody_to_wait_for(stage: Stage) -> None:
    assert stage.done().wait(WITHIN_S)

    def child() -> int:
        limit = timedelta(seconds=30)
        countdown = Countdown(limit)
        stopped = stage.loop.stop(limit) and stage.loop.join(countdown)
        return 0 if stopped and countdown.remaining() > limit / 2 else 1

    assert exit_code_of_child(child) == 0


def test_the_end_leaves_no_thread_and_no_foreign_code_uncalled(stage: Stage) -> None:
    called = threading.Event()
    before = set(threading.enumerate())

    def last() -> None:
        stage.loop.send(called.set)
        stage.core.ended = True

    stage.do(last)

    assert stage.loop.stop(WITHIN)
    assert stage.loop.join(Countdown(WITHIN))
    assert called.is_set()
    assert stage.core.aborted == ["the election's loop ended"]
    assert not {thread for thread in before if thread.name.startswith("loop-of-a-test")} & set(
        threading.enumerate()
    )


def test_the_end_does_not_wait_for_ever_for_foreign_code(stage: Stage) -> None:
    stage.do(lambda: stage.loop.send(stage.hang))
    stage.held_up_thread()
    stage.loop.post(stage.core.end)

    assert stage.loop.stop(WITHIN)
    assert not stage.loop.join(Countdown(timedelta(milliseconds=50)))


def test_a_core_that_does_not_end_is_ended(stage: Stage) -> None:
    assert not stage.loop.stop(timedelta(milliseconds=50))
    assert stage.core.aborted


def test_foreign_code_may_wait_for_the_end_and_who_drives_may_not(stage: Stage) -> None:
    answers: SimpleQueue[tuple[str, bool]] = SimpleQueue()

    def errand() -> None:
        stage.loop.post(stage.core.end)
        answers.put(("foreign code", stage.loop.stop(WITHIN) and stage.loop.join(Countdown(WITHIN))))

    def work() -> None:
        answers.put(("who drives", stage.loop.stop(WITHIN)))
        stage.loop.send(errand)

    stage.do(work)

    assert answers.get(timeout=WITHIN_S) == ("who drives", True)
    assert answers.get(timeout=WITHIN_S) == ("foreign code", True)


class Busy:
    """Work from several threads, which sends foreign code, quick or slow, which posts work in turn."""

    POSTERS, WORKS = 3, 300

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._dice, self._clock = stage, random.Random(seed), threading.Event()
        self._at_work = threading.Lock()
        self.done: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self.answered: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self.sent: list[tuple[int, int]] = []
        self.overlaps: list[str] = []

    def post_all(self, poster: int) -> None:
        for number in range(self.WORKS):
            self._stage.do(partial(self._work, poster, number))
            self._pause(0.2)

    def _work(self, poster: int, number: int) -> None:
        if not self._at_work.acquire(blocking=False):
            self.overlaps.append(here())
            return
        if self._dice.random() < 0.5:
            self.sent.append((poster, number))
            self._stage.loop.send(partial(self._errand, poster, number))
        self.done.put((poster, number))
        self._at_work.release()

    def _errand(self, poster: int, number: int) -> Afterwards:
        self._pause(0.3)
        return lambda: self._stage.do(lambda: self.answered.put((poster, number)))

    def _pause(self, chance: float) -> None:
        if self._dice.random() < chance:
            self._clock.wait(self._dice.random() / 1000)


@pytest.mark.usefixtures("nobody_looks")
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_done_twice_or_done_by_two_at_once(stage: Stage, seed: int) -> None:
    busy = Busy(stage, seed)
    posters = [threading.Thread(target=busy.post_all, args=(poster,)) for poster in range(busy.POSTERS)]
    for thread in posters:
        thread.start()
    done = [busy.done.get(timeout=WITHIN_S) for _ in range(busy.POSTERS * busy.WORKS)]
    answered = [busy.answered.get(timeout=WITHIN_S) for _ in busy.sent]
    for thread in posters:
        thread.join()

    assert stage.end()
    assert not busy.overlaps
    for poster in range(busy.POSTERS):
        assert [number for who, number in done if who == poster] == list(range(busy.WORKS))
    assert sorted(answered) == sorted(busy.sent)
    assert busy.answered.empty()


def test_what_comes_after_the_end_is_not_kept() -> None:
    session, core = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1")), ScriptedCore()
    loop = SessionLoop(
        core, session, clock=boottime, journal=DeferredJournal(LogJournal()), name="loop-of-a-test"
    )
    loop.post(core.end)  # what comes before the start is kept
    loop.start(errands=False)
    assert loop.join(Countdown(WITHIN))
    assert core.ended

    for _ in range(1_000):
        loop.post(core.end)
        loop._on_watch("/x", False)
        loop._on_session(SessionState.SUSPENDED)

    assert loop._inbox.qsize() == 0
    assert loop.stop(WITHIN)
