"""When garbage is collected; only the leader collects in the bucket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.scheduler import collector as collector_module
from nimbus.scheduler.collector import Collector

Eventually = Callable[..., None]
HOUR = timedelta(hours=1)
STOP = timedelta(seconds=30)


class HeldClock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC)

    def elapsed_s(self) -> float:
        return self.time_s


class World:
    """A collector with a clock that the test moves, with one task for leaders and one for all."""

    def __init__(self) -> None:
        self.clock = HeldClock()
        self.leads = True
        self.rounds = self.in_bucket = self.on_disk = 0
        self.fail = False
        self.defect: Exception | None = None
        """Raised by the question whether it leads."""
        self.collector = Collector(self.clock, first_delay=timedelta(minutes=5))
        self.collector.add(self._bucket, 6 * HOUR, self._may)
        self.collector.add(self._disk, timedelta(minutes=1))

    def _may(self) -> bool:
        self.rounds += 1
        if self.defect is not None:
            raise self.defect
        return self.leads

    def _bucket(self, _stopping: threading.Event) -> None:
        self.in_bucket += 1
        if self.fail:
            raise RuntimeError("a defect")

    def _disk(self, _stopping: threading.Event) -> None:
        self.on_disk += 1


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(collector_module, "ASK_EVERY_S", 0.001)
    world = World()
    yield world
    world.collector.stop(STOP)


def rounds(world: World, eventually: Eventually, count: int = 3) -> None:
    """Let it check a few times."""
    until = world.rounds + count
    eventually(lambda: world.rounds >= until)


def test_leader_collects_soon_after_it_began_to_lead_and_then_at_even_intervals(
    world: World, eventually: Eventually
) -> None:
    world.collector.start()
    rounds(world, eventually)
    assert world.in_bucket == 0, "it has just begun to lead"

    world.clock.time_s += 301
    eventually(lambda: world.in_bucket == 1)
    rounds(world, eventually)
    assert world.in_bucket == 1

    world.clock.time_s += 6 * 3600
    eventually(lambda: world.in_bucket == 2)


def test_follower_does_not_collect_in_the_bucket_but_on_its_disk(
    world: World, eventually: Eventually
) -> None:
    world.leads = False
    world.collector.start()
    rounds(world, eventually)

    world.clock.time_s += 100 * 3600
    eventually(lambda: world.on_disk == 1)
    rounds(world, eventually)

    assert world.in_bucket == 0


def test_time_before_a_lost_leadership_does_not_count(world: World, eventually: Eventually) -> None:
    world.collector.start()
    rounds(world, eventually)
    world.leads = False
    rounds(world, eventually)
    world.clock.time_s += 6 * 3600
    world.leads = True
    rounds(world, eventually)
    assert world.in_bucket == 0

    world.clock.time_s += 301
    eventually(lambda: world.in_bucket == 1)


def test_collection_that_fails_holds_up_no_other(world: World, eventually: Eventually) -> None:
    world.fail = True
    world.collector.start()
    rounds(world, eventually)

    world.clock.time_s += 301
    eventually(lambda: (world.in_bucket, world.on_disk) == (1, 1))
    world.clock.time_s += 6 * 3600
    eventually(lambda: (world.in_bucket, world.on_disk) == (2, 2))


def test_election_that_fails_once_does_not_end_collections(world: World, eventually: Eventually) -> None:
    """The election may be one of the operator's own."""
    world.defect = RuntimeError("a defect")
    world.collector.start()
    rounds(world, eventually)
    world.defect = None

    world.clock.time_s += 301
    rounds(world, eventually)
    world.clock.time_s += 301
    eventually(lambda: (world.in_bucket, world.on_disk) >= (1, 1))


def test_nothing_to_do_needs_no_thread() -> None:
    collector = Collector(HeldClock())

    collector.start()

    assert "nimbus-collector" not in {thread.name for thread in threading.enumerate()}
    collector.stop(STOP)


def test_collection_under_way_is_told_to_stop(
    eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "ASK_EVERY_S", 0.001)
    begun, ended = threading.Event(), threading.Event()

    def collect(stopping: threading.Event) -> None:
        begun.set()
        if stopping.wait(60):
            ended.set()

    collector = Collector(HeldClock(), first_delay=timedelta(0))
    collector.add(collect, HOUR)
    collector.start()
    eventually(begun.is_set)
    collector.stop_soon()
    collector.stop(STOP)

    assert ended.is_set()
