"""The catalog follower: the releases that it wants, and its reactions to changes and failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from blobsync import ReleaseRef
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.ports import Enqueue, StoreUnavailableError
from nimbus.scheduler.followers import CatalogFollower
from tests.nimbus.definitions import active

Eventually = Callable[..., None]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
OLD, NEW = ReleaseDigest("a" * 64), ReleaseDigest("b" * 64)


def record(name: str = "p", release: ReleaseDigest | None = OLD) -> PipelineRecord:
    spec = PipelineSpec(name=PipelineName(name))
    state = PipelineState.ACTIVE if release else PipelineState.INACTIVE
    return active(spec, published=NEW, state=state, release=release, updated_at=NOW)


class World:
    def __init__(self) -> None:
        self.records: tuple[PipelineRecord, ...] = (record(),)
        self.wanted: list[Sequence[ReleaseRef]] = []
        self.changes = self.reads = 0
        self.trouble: Exception | None = None
        self.refuse_want = False
        self.refused = 0
        self.watch: Enqueue | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.follower = CatalogFollower(self, self.want, self.changed)

    def read(self, changed: Enqueue | None = None) -> tuple[PipelineRecord, ...]:
        self.reads += 1
        self.gate.wait(60)
        if self.trouble is not None:
            raise self.trouble
        self.watch = changed
        return self.records

    def want(self, releases: Sequence[ReleaseRef]) -> None:
        if self.refuse_want:
            self.refused += 1
            raise RuntimeError("not now")
        self.wanted.append(releases)

    def changed(self) -> None:
        self.changes += 1


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.follower._pause_s = 60.0
    yield world
    world.gate.set()
    world.follower.stop(timedelta(seconds=30))


def test_it_wants_what_is_active_and_what_may_become_so(world: World, eventually: Eventually) -> None:
    assert world.follower.required is None, "nothing is known before the first poll"
    world.follower.start()
    eventually(lambda: world.changes == 1)

    assert world.wanted == [[ReleaseRef("p", OLD), ReleaseRef("p", NEW)]], "what leadership needs comes first"
    assert world.follower.required == frozenset({ReleaseOf(PipelineName("p"), OLD)})


def test_a_change_is_followed_and_none_is_not_told(world: World, eventually: Eventually) -> None:
    world.follower.start()
    eventually(lambda: world.changes == 1)
    world.follower.wake()
    eventually(lambda: world.reads == 2)
    world.records = (record(release=NEW),)
    assert world.watch is not None
    world.watch()
    eventually(lambda: world.changes == 2)

    assert len(world.wanted) == 2
    assert world.follower.required == frozenset({ReleaseOf(PipelineName("p"), NEW)})


def test_many_signals_that_came_together_cost_one_poll(world: World, eventually: Eventually) -> None:
    world.gate.clear()
    world.follower.start()
    eventually(lambda: world.reads == 1)
    for _ in range(100):  # like after the loss of a connection: each watch fires
        world.follower.wake()
    world.gate.set()
    eventually(lambda: world.changes == 1)
    world.records = (record(release=NEW),)
    world.follower.wake()
    eventually(lambda: world.changes == 2)

    assert world.reads <= 3


def test_an_outage_keeps_what_is_known_and_is_polled_again(world: World, eventually: Eventually) -> None:
    world.follower._pause_s = 0.02
    world.follower.start()
    eventually(lambda: world.changes == 1)
    world.trouble = StoreUnavailableError("down")
    reads = world.reads
    eventually(lambda: world.reads > reads + 1)
    assert world.follower.required == frozenset({ReleaseOf(PipelineName("p"), OLD)})
    world.records, world.trouble = (record(release=NEW),), None

    eventually(lambda: world.follower.required == frozenset({ReleaseOf(PipelineName("p"), NEW)}))


def test_a_catalog_that_could_not_be_handed_on_is_handed_on_later(
    world: World, eventually: Eventually
) -> None:
    world.refuse_want = True
    world.follower.start()
    eventually(lambda: world.refused == 1)
    world.refuse_want = False
    world.follower.wake()

    eventually(lambda: world.changes == 1)
    assert len(world.wanted) == 1
