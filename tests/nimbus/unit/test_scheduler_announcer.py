"""A scheduler's replica records in the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from blobsync import (
    BucketUnavailableError,
    Readiness,
    ReleaseReadiness,
    ReleaseRef,
    ReleaseState,
    ReplicaBoard,
    ReplicaRecord,
)
from blobsync.bucket import keys
from blobsync.testing.memory import MemoryObjectStore
from nimbus.scheduler import announcer as announcer_module
from nimbus.scheduler.announcer import MAX_NAMED, ReplicaAnnouncer

Eventually = Callable[..., None]
STOP = timedelta(seconds=30)
A, B = "a" * 64, "b" * 64


class HeldClock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC)

    def elapsed_s(self) -> float:
        return self.time_s


class CountingBoard(ReplicaBoard):
    """A real board with a store in memory, which counts."""

    def __init__(self, store: MemoryObjectStore) -> None:
        super().__init__(store)
        self.tries = self.said = 0

    def announce(self, record: ReplicaRecord) -> None:
        self.tries += 1
        super().announce(record)
        self.said += 1


class World:
    def __init__(self) -> None:
        self.clock, self.store = HeldClock(), MemoryObjectStore()
        self.board = CountingBoard(self.store)
        self.states: dict[str, ReleaseState] = {}
        self.polls = 0
        self.announcer = ReplicaAnnouncer(
            board=self.board, me="s1", readiness=self.readiness, clock=self.clock
        )

    def readiness(self) -> Readiness:
        self.polls += 1
        return Readiness(
            {
                (ref := ReleaseRef("p", digest)): ReleaseReadiness(
                    ref=ref, state=state, missing=(), missing_bytes=0, reason=""
                )
                for digest, state in self.states.items()
            }
        )

    def set(self, **states: ReleaseState) -> None:
        self.states = {letter * 64: state for letter, state in states.items()}
        self.announcer.wake()

    def passes(self, seconds: float) -> None:
        """Advance the time, and wake the thread, which waits with a clock that the test cannot move."""
        self.clock.time_s += seconds
        self.announcer.wake()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(announcer_module, "LEAST_PAUSE_S", 0.005)
    world = World()
    yield world
    world.announcer.stop(STOP)


def test_what_is_verified_is_said_and_what_only_comes_is_not(world: World, eventually: Eventually) -> None:
    world.states = {A: ReleaseState.READY, B: ReleaseState.SYNCING}
    world.announcer.start()

    eventually(lambda: world.board.read(A).holders == ("s1",))

    assert world.board.read(B).lacking == ("s1",)


def test_change_is_said_soon_in_both_directions(world: World, eventually: Eventually) -> None:
    world.announcer.start()
    eventually(lambda: world.board.read(A).lacking == ("s1",))
    world.set(a=ReleaseState.READY)
    eventually(lambda: world.board.read(A).holders == ("s1",))
    world.set(a=ReleaseState.CORRUPT)
    eventually(lambda: world.board.read(A).holders == ())


def test_same_is_not_said_again_before_it_is_due(world: World, eventually: Eventually) -> None:
    world.announcer.start()
    eventually(lambda: world.board.said == 1)
    for _ in range(3):
        polls = world.polls
        world.announcer.wake()
        eventually(lambda polls=polls: world.polls > polls)
    assert world.board.said == 1
    world.set(a=ReleaseState.READY)
    eventually(lambda: world.board.read(A).holders == ("s1",))
    assert world.board.said == 2

    world.passes(121)
    eventually(lambda: world.board.said == 3)


def test_bucket_that_is_away_is_tried_again_when_the_pause_is_over(
    world: World, eventually: Eventually
) -> None:
    world.store.unavailable = True
    world.announcer.start()
    eventually(lambda: world.board.tries == 1)
    world.store.unavailable = False
    world.set(a=ReleaseState.READY)  # not before the end of the pause, for any changes

    world.passes(31)
    eventually(lambda: world.board.read(A).holders == ("s1",))


def test_record_is_taken_back_at_the_end(world: World, eventually: Eventually) -> None:
    world.announcer.start()
    eventually(lambda: world.board.said == 1)

    world.announcer.stop(STOP)

    assert world.store.size(keys.replica("s1")) is None


def test_end_does_not_fail_without_the_bucket(world: World, eventually: Eventually) -> None:
    world.announcer.start()
    eventually(lambda: world.board.said == 1)
    world.store.unavailable = True

    world.announcer.stop(STOP)

    with pytest.raises(BucketUnavailableError):
        world.board.withdraw("s1")
    assert not world.announcer._thread.is_alive()


def test_end_does_not_wait_for_a_bucket_that_is_known_to_be_away(
    world: World, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(world.board, "withdraw", asked.append)
    world.store.unavailable = True
    world.announcer.start()
    eventually(lambda: world.board.tries == 1)

    world.announcer.stop(STOP)

    assert asked == []


def test_more_releases_than_a_record_may_name_are_cut(world: World, eventually: Eventually) -> None:
    world.states = {f"{number:064x}": ReleaseState.READY for number in range(MAX_NAMED + 1)}
    world.announcer.start()

    eventually(lambda: world.board.read(f"{0:064x}").holders == ("s1",))

    assert world.board.read(f"{MAX_NAMED:064x}").lacking == ("s1",)


def test_announcer_that_never_started_can_be_stopped(world: World) -> None:
    world.announcer.stop(STOP)

    assert world.board.tries == 0
