"""When a collection is refused: nothing is kept, a release or listing is unreliable, too much would go."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from blobsync import (
    BucketUnavailableError,
    GcRefusedError,
    ObjectInfo,
    ReleaseRef,
)
from blobsync.bucket import keys
from blobsync.collection.decision import CollectionPolicy
from blobsync.collection.inventory import Kind, Tally
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.collection_samples import (
    DAY,
    HOUR,
    World,
    digest,
    put,
    sample,
)


def test_empty_set_of_releases_is_refused_unless_it_is_said() -> None:
    world = World()
    world.put("p", ["a"])
    world.clock.forward(100 * DAY)
    with pytest.raises(GcRefusedError, match="allow_empty"):
        world.collect(allow_empty=False)
    assert world.tombstones() == []


def test_release_to_keep_that_is_not_there_refuses_the_run() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(2 * DAY)
    with pytest.raises(GcRefusedError, match="cannot be read"):
        world.collect(sample("elsewhere", ["a"]))
    assert keys.blob(digest("x")) in world.names()


def damaged_manifest(world: World, ref: ReleaseRef) -> None:
    world.store.corrupt(keys.manifest(ref.name, ref.digest), 5)


def lost_layout(world: World, ref: ReleaseRef) -> None:
    world.store.lose(keys.layout(ref.name, ref.digest))


def rubbish_layout(world: World, ref: ReleaseRef) -> None:
    world.store.write(keys.layout(ref.name, ref.digest), b"{}")


def empty_layout(world: World, ref: ReleaseRef) -> None:
    world.store.write(keys.layout(ref.name, ref.digest), sample("p").layout.encode())


@pytest.mark.parametrize("damage", [damaged_manifest, lost_layout, rubbish_layout, empty_layout])
@pytest.mark.parametrize("named", [True, False])
def test_kept_release_that_cannot_be_read_refuses_the_run(damage: object, named: bool) -> None:
    world = World()
    release = world.put("p", ["a"])
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(2 * DAY)
    damage(world, release.ref)  # type: ignore[operator]
    before = world.names()
    with pytest.raises(GcRefusedError, match="cannot be read"):
        world.collect(*([release] if named else []))
    assert world.names() == before


def test_release_that_nobody_keeps_need_not_be_readable() -> None:
    world = World()
    old, new = world.put("p", ["old"]), world.put("p", ["new"])
    world.clock.forward(2 * DAY)
    damaged_manifest(world, old.ref)
    rubbish_layout(world, old.ref)
    world.clock.forward(2 * DAY)
    world.twice(new)
    assert not (old.keys - new.keys) & world.names()


class Listing(MemoryObjectStore):
    """Its listings have the faults that a test sets."""

    hide: frozenset[str] = frozenset()
    stop_after: str | None = None
    reverse = False
    fail_after: int | None = None

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        found = [info for info in super().list(prefix, start_after) if prefix or info.key not in self.hide]
        if not prefix and start_after is None:
            if self.stop_after is not None:
                found = [info for info in found if info.key <= self.stop_after]
            found = found[::-1] if self.reverse else found
        for count, info in enumerate(found):
            if not prefix and count == self.fail_after:
                raise BucketUnavailableError("the listing broke off")
            yield info


def listing_world() -> tuple[World, Listing, list[str]]:
    world = World()
    world.store = store = Listing(now=world.clock)
    for name in ("old", "new"):
        world.put("p", [name])
        world.clock.forward(HOUR)
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(DAY)
    return world, store, sorted(world.names())


def test_listing_that_ends_early_refuses_the_run() -> None:
    world, store, before = listing_world()
    for key in before[:-1]:
        store.stop_after = key
        with pytest.raises(GcRefusedError, match="ended after"):
            world.collect()
    store.stop_after = None
    assert sorted(world.names()) == before


def test_listing_out_of_order_or_broken_off_refuses_the_run() -> None:
    world, store, before = listing_world()
    store.reverse = True
    with pytest.raises(GcRefusedError, match="out of order"):
        world.collect()
    store.reverse = False
    for count in range(len(before)):
        store.fail_after = count
        with pytest.raises(BucketUnavailableError):
            world.collect()
    store.fail_after = None
    assert sorted(world.names()) == before


def test_listing_that_lacks_a_manifest_its_history_tells_of_or_a_needed_object_refuses_the_run() -> None:
    world, store, before = listing_world()
    refused = 0
    for key in before:
        store.hide = frozenset({key})
        deletes = len(store.deletes)
        try:
            report = world.collect(dry_run=True)
        except GcRefusedError as exc:
            assert "listing lacks it" in str(exc)
            refused += 1
        else:
            # No kept release needs this object. Without its history entry, a release may be kept longer.
            assert report.due or key.startswith(keys.PUBLICATIONS)
        assert len(store.deletes) == deletes
    store.hide = frozenset()
    assert refused == 4  # for both manifests, and for the layout and the pack of the newest release


def test_what_came_during_the_listing_is_no_reason_to_refuse() -> None:
    world = World()

    class Growing(MemoryObjectStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            yield from super().list(prefix, start_after)
            if not prefix and start_after is None:
                put(self, sample("zz", ["late"]), world.clock.now)

    world.store = Growing(now=world.clock)
    world.put("p", ["a"])
    world.clock.forward(5 * DAY)
    assert not world.collect().is_stopped


def test_needed_object_that_is_lost_is_told_and_the_rest_is_collected() -> None:
    world = World()
    release = world.put("p", ["a"], ["b"])
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.store.lose(keys.blob(digest("b")))
    report = world.twice(release)
    assert report.missing == (keys.blob(digest("b")),)
    assert report.missing_count == 1
    assert report.deleted == {Kind.BLOB: Tally(1, 1)}


@pytest.mark.parametrize(("orphans", "refused"), [(2, False), (3, True)])
def test_more_than_the_share_is_refused(orphans: int, refused: bool) -> None:
    world = World()
    release = world.put("p", [f"{number}" for number in range(13 - orphans)])  # and three documents
    for number in range(orphans):
        world.store.write(keys.blob(digest(f"orphan {number}")), b"")
    world.clock.forward(2 * DAY)
    policy = CollectionPolicy(max_share=2 / 16, patience=timedelta(0))
    world.collect(release, policy=policy)
    world.clock.forward(DAY)
    before = world.names()
    if refused:
        with pytest.raises(GcRefusedError, match="max_share"):
            world.collect(release, policy=policy)
        assert world.names() == before
        assert "max_share" in world.collect(release, policy=policy, dry_run=True).postponed
    else:
        assert world.collect(release, policy=policy).deleted == {Kind.BLOB: Tally(2, 0)}


def test_more_than_the_share_of_bytes_is_refused() -> None:
    world = World()
    release = world.put("p", [f"{number}" for number in range(20)])
    world.store.write(keys.blob(digest("large")), bytes(100_000))
    world.clock.forward(2 * DAY)
    with pytest.raises(GcRefusedError, match="max_share"):
        world.twice(release, policy=CollectionPolicy(patience=timedelta(0)))
