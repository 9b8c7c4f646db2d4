"""Collections that overlap: with others, with publishes, and with slow requests.

A collection reads the condemned objects at its beginning, and deletes much later. It must respect what other
processes do in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

import pytest

from blobsync import BlobNotFoundError, BucketUnavailableError, GcRefusedError
from blobsync.bucket import keys
from blobsync.bucket.leases import Lease
from blobsync.bucket.ports import OnProgress, ignore_progress
from blobsync.bucket.tombstones import condemned, tombstones
from blobsync.collection.collector import CollectionReport
from blobsync.collection.decision import Reason
from blobsync.collection.inventory import Kind, Tally
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.collection_samples import DAY, HOUR, Sample, World, a_lease, digest, publishing, sample


class Interrupted(MemoryObjectStore):
    """Runs an action once, before the first call of a kind for a key with a prefix."""

    def __init__(self, now: Callable[[], object]) -> None:
        super().__init__(now=now)  # type: ignore[arg-type]
        self._meanwhile: dict[tuple[str, str], Callable[[], object]] = {}

    def before(self, call: str, prefix: str, act: Callable[[], object]) -> None:
        self._meanwhile[call, prefix] = act

    def _act(self, call: str, key: str) -> None:
        for known in list(self._meanwhile):
            if known[0] == call and key.startswith(known[1]):
                self._meanwhile.pop(known)()

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        self._act("read", key)
        return super().read(key, start=start, size_bytes=size_bytes)

    def write(self, key: str, data: object, *, on_progress: OnProgress = ignore_progress) -> None:
        self._act("write", key)
        super().write(key, data, on_progress=on_progress)  # type: ignore[arg-type]

    def delete(self, key: str) -> None:
        self._act("delete", key)
        super().delete(key)


@pytest.fixture
def world() -> World:
    made = World()
    made.store = Interrupted(made.clock)
    return made


def interrupted(world: World) -> Interrupted:
    assert isinstance(world.store, Interrupted)
    return world.store


def due_release(world: World) -> Sample:
    """A release that was condemned a grace period ago. Only publishes of the same release keep it."""
    release = world.put("p", ["a"], ["b"])
    world.put("p", ["newer"])
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(DAY)
    return release


def test_lease_whose_first_write_takes_long_postpones_the_deletion(world: World) -> None:
    release = due_release(world)
    interrupted(world).before("write", keys.COLLECT_LEASES, lambda: world.clock.forward(timedelta(minutes=5)))

    report = world.collect()
    assert "could not renew its lease for 300 s" in report.postponed
    assert report.deleted == {}
    assert not report.is_stopped
    assert release.keys <= world.names()
    assert not [key for key in world.names() if key.startswith(keys.COLLECT_LEASES)]
    assert world.collect().deleted[Kind.BLOB] == Tally(1, 1)


def test_lease_of_a_collection_that_the_store_lost_at_once_is_written_again() -> None:
    """A publish that looks for collections must see it before anything is deleted."""

    class Losing(MemoryObjectStore):
        def write(self, key: str, data: object, *, on_progress: OnProgress = ignore_progress) -> None:
            super().write(key, data, on_progress=on_progress)  # type: ignore[arg-type]
            if key.startswith(keys.COLLECT_LEASES) and self.writes.count(key) == 1:
                super().delete(key)

        def delete_many(self, names: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
            listed.extend(info.key for info in self.list(keys.COLLECT_LEASES))
            super().delete_many(names, before_each)

    world, listed = World(), list[str]()
    world.store = Losing(now=world.clock)
    due_release(world)

    assert world.collect().deleted[Kind.BLOB] == Tally(1, 1)
    assert listed


@pytest.mark.parametrize("moment", [keys.COLLECT_LEASES, keys.COLLECTION_CLOCK, keys.TOMBSTONES])
def test_what_another_collection_pardoned_meanwhile_is_not_deleted(world: World, moment: str) -> None:
    """Before the tombstone is written, or before the lease. The other collection's decision is newer."""
    release = due_release(world)
    interrupted(world).before("write", moment, lambda: world.collect(release))

    assert world.collect().deleted == {}
    assert release.keys <= world.names()
    world.clock.forward(DAY - timedelta(minutes=1))
    assert world.collect().deleted == {}
    world.clock.forward(timedelta(minutes=1) + DAY)
    assert world.collect().deleted[Kind.BLOB] == Tally(1, 1)


def test_what_two_collections_at_once_condemn_is_deleted(world: World) -> None:
    """Otherwise two collections that start at the same time every day would never delete anything."""
    due_release(world)
    reports: list[CollectionReport] = []
    interrupted(world).before(
        "write", keys.TOMBSTONES, lambda: reports.append(world.collect(may_delete=lambda: False))
    )
    assert world.collect().deleted[Kind.BLOB] == Tally(1, 1)
    assert reports[0].deleted == {}


def test_tombstone_that_is_replaced_while_it_is_read_is_looked_for_again(world: World) -> None:
    due_release(world)
    due = condemned(world.store)
    assert due
    interrupted(world).before("read", keys.TOMBSTONES, lambda: world.collect(may_delete=lambda: False))
    assert condemned(world.store) == due


def test_tombstones_that_are_listed_but_never_there_are_an_error() -> None:
    class Haunted(MemoryObjectStore):
        def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
            raise BlobNotFoundError(key)

    world = World()
    world.store = Haunted(now=world.clock)
    world.store.write(f"{keys.TOMBSTONES}20260101T000000Z-{'a' * 32}", b"{}")
    with pytest.raises(BucketUnavailableError, match="replaced"):
        tombstones(world.store)


def test_publish_that_waits_for_one_collection_and_is_seen_by_another_is_whole(world: World) -> None:
    """The other collection pardons objects that the first one deletes. The publish writes them again."""
    release = due_release(world)
    again = publishing(world.store, sample("p", ["a"], ["b"]), world.clock, "1" * 32)
    pardoned: list[frozenset[str]] = []

    def meanwhile() -> None:
        assert next(again) == "lease"
        world.collect()
        pardoned.append(condemned(world.store))
        assert next(again) == "wait"

    interrupted(world).before("delete", keys.RELEASES, meanwhile)
    report = world.collect()
    assert pardoned == [frozenset()]
    assert report.deleted[Kind.BLOB] == Tally(1, 1)
    assert not release.objects.keys() & world.names()
    assert "last" in list(again)
    assert release.keys <= world.names()


def test_collection_that_slept_for_a_grace_does_not_delete_what_it_condemned_itself(world: World) -> None:
    """Its tombstone has a time before the sleep, but other processes could not see it then."""
    old = due_release(world)
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(DAY)
    interrupted(world).before("read", keys.LAYOUTS, lambda: world.clock.forward(DAY))
    assert world.collect().deleted[Kind.BLOB] == Tally(1, 1)
    assert not old.keys & world.names()
    assert keys.blob(digest("x")) in world.names()


@pytest.mark.parametrize("is_wanted", [False, True])
def test_release_that_another_collection_deletes_during_the_look_needs_nothing(
    world: World, is_wanted: bool
) -> None:
    """It was kept for a publish that has died. A process that wants the release gets the error "deleted"."""
    release = due_release(world)
    lease = Lease("p", "me", world.clock.now, timedelta(minutes=30)).encode(world.clock.now)
    world.store.write(keys.publish_lease("1" * 32), lease)

    def meanwhile() -> None:
        world.clock.forward(timedelta(minutes=30))
        assert world.collect().deleted[Kind.BLOB] == Tally(1, 1)

    interrupted(world).before("read", keys.layout("p", release.ref.digest), meanwhile)
    if is_wanted:
        with pytest.raises(GcRefusedError, match=release.ref.digest):
            world.collect(release)
    else:
        assert world.collect().deleted == {}


def test_publish_under_way_postpones_the_deletion() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(DAY)
    a_lease(world, "flights")

    report = world.collect()
    assert "flights by ci@host" in report.postponed
    assert report.due == {Kind.BLOB: Tally(1, 1)}
    assert report.deleted == {}
    assert keys.blob(digest("x")) in world.names()
    assert not [key for key in world.names() if key.startswith(keys.COLLECT_LEASES)]
    world.clock.forward(HOUR / 2)  # the lease expires: its publisher has died
    assert world.collect().deleted == {Kind.BLOB: Tally(1, 1)}


def test_releases_of_a_name_that_is_being_published_are_kept() -> None:
    world = World()
    old, _ = world.put("p", ["old"]), world.put("p", ["new"])
    world.clock.forward(2 * DAY)
    a_lease(world, "p")
    assert Reason.LEASED in world.collect().kept[Kind.PACK]
    assert condemned(world.store) == frozenset()
    assert old.keys <= world.names()


def test_publish_that_begins_while_a_collection_deletes_waits_and_then_finds_what_is_left() -> None:
    world = World()
    release, steps = sample("p", ["a"], ["b"]), []

    class Interleaved(MemoryObjectStore):
        publish: Iterator[str] | None = None

        def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
            if self.publish is not None:
                steps.append(next(self.publish))
                steps.append(next(self.publish))
            super().delete_many(keys, before_each)

    world.store = store = Interleaved(now=world.clock)
    for key, data in release.objects.items():
        store.write(key, data)
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(DAY)
    store.publish = publishing(store, release, world.clock, "a" * 32)
    assert world.collect().deleted == {Kind.PACK: Tally(1, 50), Kind.BLOB: Tally(1, 1)}
    assert set(steps) == {"lease", "wait"}
    for _ in store.publish:
        pass
    assert release.keys <= world.names()
