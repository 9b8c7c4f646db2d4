"""Parts of the syncer that need neither a store nor a network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import (
    BlobSyncConfigError,
    LocalStore,
    NoThreadError,
    RetryPolicy,
    Syncer,
    SyncerClosedError,
)
from blobsync.listeners import Listeners
from blobsync.progress import Arrivals, Throttle
from blobsync.sync.pool import DaemonPool, Lane, Lanes
from blobsync.sync.scrubber import ScrubTurn
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.sync_samples import Rig

Eventually = Callable[..., None]


def drained(lanes: Lanes[str]) -> Iterator[str]:
    while lanes:
        yield lanes.take()


def test_lower_rank_comes_first_and_of_equal_ones_the_older() -> None:
    lanes: Lanes[str] = Lanes()
    for name, rank in (("late", (2, 0)), ("second", (1, 0)), ("first", (0, 5)), ("third", (1, 0))):
        lanes.put(name, Lane.SMALL, rank)

    assert list(drained(lanes)) == ["first", "second", "third", "late"]


@pytest.mark.parametrize(("first", "other"), [(Lane.LARGE, Lane.SMALL), (Lane.SMALL, Lane.LARGE)])
def test_neither_lane_waits_for_the_other_for_ever(first: Lane, other: Lane) -> None:
    lanes: Lanes[str] = Lanes()
    for _ in range(100):
        lanes.put("first", first, (0, 0))
    for _ in range(10):
        lanes.put("other", other, (7, 0))

    order = list(drained(lanes))

    assert order[:8] == ["first"] * 3 + ["other"] + ["first"] * 3 + ["other"]
    assert order.count("first") == 100


def test_pool_runs_all_calls_on_no_more_threads_than_it_has_and_hands_errors_on(
    eventually: Eventually,
) -> None:
    pool, names = DaemonPool(3, "blobsync-test"), set[str]()
    futures = [pool.submit(lambda: names.add(threading.current_thread().name)) for _ in range(200)]
    failing = pool.submit(lambda: 1 // 0)
    try:
        for future in futures:
            future.result(60)
        assert isinstance(failing.exception(20), ZeroDivisionError)
        assert 1 <= len(names) <= 3
    finally:
        assert pool.close(60)
    with pytest.raises(SyncerClosedError):
        pool.submit(lambda: None)


def no_more_threads(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_pool_without_any_thread_fails_the_call_and_works_when_threads_are_allowed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = DaemonPool(2, "blobsync-test")
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", no_more_threads)
        assert isinstance(pool.submit(lambda: 1).exception(0), NoThreadError)

    assert pool.submit(lambda: 2).result(60) == 2
    assert pool.close(60)


def test_pool_that_may_start_no_second_thread_uses_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, gate = DaemonPool(2, "blobsync-test"), threading.Event()
    first = pool.submit(lambda: gate.wait(60))
    monkeypatch.setattr(threading.Thread, "start", no_more_threads)

    second = pool.submit(lambda: 2)

    gate.set()
    assert first.result(60)
    assert second.result(60) == 2
    assert pool.close(60)


def test_syncer_outlives_a_moment_without_threads(
    tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = threading.Thread.start, set[str]()

    def start(thread: threading.Thread) -> None:
        kind = thread.name.rpartition("-")[0]
        if kind in {"blobsync-look", "blobsync-fetch"} and kind not in failed:
            failed.add(kind)
            no_more_threads(thread)
        real(thread)

    rig = Rig(tmp_path)
    try:
        p = rig.publish("p", a="some data")
        monkeypatch.setattr(threading.Thread, "start", start)
        syncer = rig.syncer(p)

        eventually(lambda: syncer.readiness().is_ready(p))
        assert failed == {"blobsync-look", "blobsync-fetch"}
    finally:
        rig.stop()


def test_closed_pool_cancels_what_has_not_begun() -> None:
    pool, gate, begun = DaemonPool(1, "blobsync-test"), threading.Event(), threading.Event()

    def run() -> bool:
        begun.set()
        return gate.wait(60)

    running = pool.submit(run)
    waiting = pool.submit(lambda: None)
    assert begun.wait(60)
    threading.Timer(0.05, gate.set).start()

    assert pool.close(60)

    assert running.result(0)
    assert waiting.cancelled()


class NeverStops(threading.Event):
    """Each wait returns at once."""

    def wait(self, timeout: float | None = None) -> bool:
        return False


def test_throttle_lets_a_rate_through_and_makes_up_for_a_pause_only_a_little() -> None:
    now = [0.0]
    throttle = Throttle(100, NeverStops(), lambda: now[0])

    assert throttle.take(10) == 0  # at the start, the bytes of 0.1 s are allowed
    assert throttle.take(50) == pytest.approx(0.5)
    assert throttle.take(50) == pytest.approx(1.0)  # another thread at the same time waits longer
    now[0] = 1.0
    assert throttle.take(100) == pytest.approx(1.0)
    now[0] = 1000
    assert throttle.take(110) == pytest.approx(1.0)


def test_throttle_gives_what_comes_the_rate_in_the_long_run() -> None:
    now = [0.0]
    throttle = Throttle(1000, NeverStops(), lambda: now[0])
    for _ in range(500):
        now[0] += throttle.take(37)

    assert now[0] == pytest.approx(500 * 37 / 1000, abs=0.2)


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_limit_that_lets_nothing_through_is_refused(rate: float) -> None:
    with pytest.raises(BlobSyncConfigError, match="None for no limit"):
        Throttle(rate, threading.Event())


def test_throttle_ends_its_wait_when_told_to_stop() -> None:
    stopping = threading.Event()
    throttle = Throttle(1, stopping)
    threading.Timer(0.05, stopping.set).start()
    began = time.monotonic()

    with pytest.raises(SyncerClosedError):
        throttle.take(3600)

    assert time.monotonic() - began < 60


def test_throttle_without_a_limit_never_waits() -> None:
    assert Throttle(None, threading.Event()).take(1 << 40) == 0


def test_listener_that_fails_does_not_keep_the_news_from_others() -> None:
    listeners: Listeners[int] = Listeners()
    told: list[int] = []

    def broken(_value: int) -> None:
        raise RuntimeError("a defect of the listener")

    listeners.subscribe(broken)
    end = listeners.subscribe(told.append)
    listeners.tell(1)
    end()
    listeners.tell(2)

    assert told == [1]


def test_arrivals_count_partial_bytes_once_however_often_they_come() -> None:
    arrivals = Arrivals()
    arrivals.begin("a", 5)
    arrivals.came("a", 10)
    arrivals.came("a", -10)  # discarded, so they are fetched again
    arrivals.came("a", 10)
    arrivals.begin("b", 0)

    assert (arrivals.partial_bytes, arrivals.fetched_bytes) == (15, 20)
    arrivals.end("a", good=True)
    arrivals.end("b", good=False)
    assert (arrivals.partial_bytes, arrivals.fetched_objects) == (0, 1)


def test_scrub_is_due_an_interval_after_the_last_round_began_also_after_a_restart(tmp_path: Path) -> None:
    now = [1000.0]
    path = tmp_path / "scrub"
    assert ScrubTurn(path, 60, lambda: now[0]).due_in_s() == 60
    now[0] = 1050
    turn = ScrubTurn(path, 60, lambda: now[0])
    assert turn.due_in_s() == 10
    with turn.taken() as ours:
        assert not ours, "too early"
    now[0] = 1070
    assert turn.due_in_s() < 0
    with turn.taken() as ours:
        now[0] = 1090
        assert ours
        with ScrubTurn(path, 60, lambda: now[0]).taken() as theirs:
            assert not theirs, "one at a time"
    assert ScrubTurn(path, 60, lambda: now[0]).due_in_s() == 40


def test_round_that_was_broken_off_is_due_at_once_again(tmp_path: Path) -> None:
    now = [0.0]
    turn = ScrubTurn(tmp_path / "scrub", 60, lambda: now[0])
    now[0] = 61

    def broken_off() -> None:
        with turn.taken() as ours:
            assert ours
            raise SyncerClosedError("told to stop")

    with pytest.raises(SyncerClosedError):
        broken_off()

    assert turn.due_in_s() < 0


def test_clock_that_was_set_back_costs_an_early_round_and_no_late_one(tmp_path: Path) -> None:
    now = [1e9]
    turn = ScrubTurn(tmp_path / "scrub", 60, lambda: now[0])

    now[0] = 5.0

    assert turn.due_in_s() == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": 0},
        {"scrub_interval": timedelta(0)},
        {"look_interval": timedelta(0)},
        {"bandwidth_bytes_per_s": 0},
        {"scrub_bytes_per_s": -1.0},
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, wrong: dict[str, float]) -> None:
    with LocalStore(tmp_path) as local, pytest.raises(BlobSyncConfigError):
        Syncer(MemoryObjectStore(), local, retry=RetryPolicy(), **wrong)  # type: ignore[arg-type]
