"""Garbage collection in the bucket: which objects are deleted, which stay, when a collection is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import (
    BlobSyncConfigError,
    GcRefusedError,
    ObjectInfo,
    ReleaseRef,
    StoreAccessDeniedError,
    StoreUnavailableError,
    collect,
    publish,
)
from blobsync.bucket import keys
from blobsync.bucket.leases import Lease, live_leases
from blobsync.bucket.tombstones import condemned
from blobsync.collection import deletion as deletion_module
from blobsync.collection.decision import CollectionPolicy, Reason, roots
from blobsync.collection.inventory import Kind, Tally, inventory
from blobsync.progress import Phase, Progress
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.collection_samples import DAY, HOUR, POLICY, START, World, digest, publishing, put, sample
from tests.blobsync.release_reader import read_release

MINUTE = timedelta(minutes=1)


def test_collection_deletes_what_no_release_needs_after_the_grace_and_keeps_the_rest() -> None:
    world = World()
    old, new = world.put("p", ["shared", "old"], ["old"]), world.put("p", ["shared", "new"], ["new"])
    world.clock.forward(2 * DAY)
    everything = world.names()

    first = world.collect(new)
    assert world.names() == everything
    assert first.due == {}
    assert first.kept[Kind.BLOB][Reason.CONDEMNED_NOW] == Tally(1, 3)

    world.clock.forward(DAY - MINUTE)
    assert world.collect(new).kept[Kind.BLOB][Reason.GRACE] == Tally(1, 3)
    assert world.names() == everything

    world.clock.forward(MINUTE)
    report = world.collect(new)
    assert old.keys - new.keys == everything - world.names() - {
        key for key in everything if key.startswith("publications/p/") and key.endswith(old.ref.digest)
    }
    assert world.names() >= new.keys
    assert report.deleted == report.due
    assert report.deleted[Kind.PACK] == Tally(1, 50)
    assert {kind for kind, _ in report.deleted.items()} == set(Kind) - {Kind.LEASE}
    assert report.failed_count == 0
    assert not report.postponed
    assert not report.is_stopped
    assert world.collect(new).due == {}
    assert condemned(world.store) == frozenset()


def test_visible_release_is_deleted_before_what_it_needs() -> None:
    world = World()
    old, new = world.put("p", ["old"], ["old"]), world.put("p", ["new"])
    world.clock.forward(2 * DAY)
    world.twice(new)

    gone = [key for key in world.store.deletes if key in old.keys]
    assert gone[0] == keys.manifest("p", old.ref.digest)
    assert gone[1] == keys.layout("p", old.ref.digest)


def test_newest_and_recent_releases_are_kept_though_nobody_names_them() -> None:
    world = World()
    policy = CollectionPolicy(keep_age=30 * DAY, keep_newest=2, max_share=1.0, patience=timedelta(0))
    made = []
    for number in range(5):
        made.append(world.put("p", [f"{number}"]))
        world.clock.forward(20 * DAY)
    other = world.put("q", ["q"])
    world.clock.forward(15 * DAY)  # the newest release of p is 35 days old, that of q 15 days

    report = world.twice(policy=policy)
    assert {key for key in world.names() if key.startswith(keys.RELEASES)} == {
        keys.manifest(item.ref.name, item.ref.digest) for item in [made[3], made[4], other]
    }
    assert report.kept[Kind.RELEASE] == {
        Reason.NEWEST: Tally(3, report.kept[Kind.RELEASE][Reason.NEWEST].size_bytes)
    }
    recent = CollectionPolicy(keep_age=40 * DAY, keep_newest=0, max_share=1.0, patience=timedelta(0))
    assert Reason.RECENT in world.collect(policy=recent).kept[Kind.RELEASE]


def test_newest_of_a_copied_bucket_are_the_newest_by_the_publishers_clocks_too() -> None:
    world = World()
    one, other = sample("p", ["one"]), sample("p", ["other"])
    put(world.store, one, START)  # copied in this order, but published in the reverse order
    world.clock.forward(MINUTE)
    put(world.store, other, START - DAY)
    world.clock.forward(5 * DAY)

    world.twice()
    assert one.keys | other.keys <= world.names()


def test_release_that_was_published_again_is_young_again() -> None:
    world = World()
    old, _ = world.put("p", ["old"]), world.put("p", ["new"])
    world.clock.forward(5 * DAY)
    world.collect()
    put(world.store, old, world.clock.now)  # a rollback writes the same objects again
    world.clock.forward(DAY)
    world.collect()
    assert old.keys <= world.names()


def test_object_that_was_written_again_after_it_was_condemned_is_left() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    assert condemned(world.store) == {keys.blob(digest("x"))}
    world.clock.forward(HOUR)
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(DAY)

    report = world.collect()  # an older object with this key was condemned, not the present one
    assert report.due == {}
    assert report.kept[Kind.BLOB] == {Reason.CONDEMNED_NOW: Tally(1, 1)}
    world.clock.forward(DAY)
    assert world.collect().deleted == {Kind.BLOB: Tally(1, 1)}


def test_condemned_object_that_is_needed_again_is_pardoned_for_good() -> None:
    world = World()
    release, other = world.put("p", ["a"]), world.put("p", ["b"])
    world.clock.forward(2 * DAY)
    world.collect(other, policy=POLICY)
    world.clock.forward(DAY)
    world.collect(release, other)
    assert condemned(world.store) == frozenset()
    report = world.collect(other)
    assert report.due == {}  # the grace period starts again
    assert release.keys <= world.names()


def test_young_objects_are_never_condemned() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(DAY - MINUTE)
    assert world.collect().kept == {Kind.BLOB: {Reason.YOUNG: Tally(1, 1)}}
    assert condemned(world.store) == frozenset()


@pytest.mark.parametrize(
    "key",
    [
        "blobs/readme.txt",
        "blobs/" + "A" * 64,
        "packs/b3-" + "0" * 64,
        "packs/" + "0" * 64 + "/x",
        "releases/p/" + "0" * 64,
        "releases/p/q/" + "0" * 64 + ".json",
        "releases/.p/" + "0" * 64 + ".json",
        "publications/p/20260101T000000Z-x",
        "leases/publish/x",
        "leases/other/" + "0" * 32,
        "history/runs/1.json",
        "replicas/host",
        "gc.txt",
        "zzz",
    ],
)
def test_foreign_keys_are_never_touched_but_counted(key: str) -> None:
    world = World()
    world.store.write(key, b"four")
    world.clock.forward(100 * DAY)
    report = world.twice()
    assert world.names() == {key}
    assert report.foreign == Tally(1, 4)
    assert report.kept == {}


@pytest.mark.parametrize(
    "key", ["", "blobs/", "leases/", "leases/publish/", "leases/collect/", "gc/runs/", "a//b"]
)
def test_key_that_no_store_of_ours_takes_is_counted_and_stops_no_collection_and_no_publish(
    key: str, tmp_path: Path
) -> None:
    world = World()
    world.put("p", ["old"])
    new = world.put("p", ["new"])
    world.store.plant(key)
    world.clock.forward(100 * DAY)
    world.store.plant(key)  # young: a lease of this age counts

    report = world.twice(new)

    assert report.foreign == Tally(1, 0)
    assert report.deleted
    world.store.plant(key)
    (tmp_path / "f").write_bytes(b"1")
    release = publish(world.store, name="q", files=collect(tmp_path, include=["f"]))
    assert release.digest


@pytest.mark.parametrize("prefix", [keys.PUBLISH_LEASES, keys.COLLECT_LEASES])
def test_object_below_leases_whose_name_is_none_of_a_lease_is_no_lease(prefix: str) -> None:
    world = World()
    world.store.plant(prefix)
    world.store.write(f"{prefix}notes.txt", b"?")

    assert live_leases(world.store, prefix, world.clock.now) == []


def test_leases_of_the_dead_are_collected() -> None:
    world = World()
    world.store.write(keys.publish_lease("0" * 32), b"rubbish")
    world.clock.forward(2 * DAY)
    world.twice(policy=CollectionPolicy(max_share=0.01, patience=timedelta(0)))
    assert world.names() == set()


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


def test_objects_condemned_long_ago_stay_while_a_release_that_took_them_up_is_visible() -> None:
    world = World()
    release = sample("p", ["a"], ["b"])
    for key, data in release.objects.items():
        world.store.write(key, data)
    world.clock.forward(2 * DAY)
    world.collect()
    for _ in publishing(world.store, release, world.clock, "a" * 32):  # it reuses condemned objects
        pass
    world.clock.forward(2 * DAY)
    policy = CollectionPolicy(keep_age=DAY, keep_newest=0, max_share=1.0, patience=timedelta(0))
    assert world.collect(policy=policy).due == {}  # the manifest was condemned just now
    assert release.keys <= world.names()
    world.clock.forward(DAY)
    world.collect(policy=policy)
    assert world.names() == set()


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
                raise StoreUnavailableError("the listing broke off")
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
        with pytest.raises(StoreUnavailableError):
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


def test_dry_run_writes_and_deletes_nothing_and_says_what_would_go() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    writes = len(world.store.writes)
    assert world.collect(dry_run=True).kept == {Kind.BLOB: {Reason.CONDEMNED_NOW: Tally(1, 1)}}
    assert (len(world.store.writes), world.store.deletes) == (writes, [])
    world.collect()
    world.clock.forward(DAY)
    writes = len(world.store.writes)
    report = world.collect(dry_run=True)
    assert report.due == {Kind.BLOB: Tally(1, 1)}
    assert report.deleted == {}
    assert report.dry_run
    assert (len(world.store.writes), world.store.deletes) == (writes, [])


def test_dry_run_of_a_collector_whose_clock_is_wrong_says_the_same() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    wrong = {"clock": lambda: world.clock.now - 400 * DAY}
    world.collect(**wrong)
    world.clock.forward(DAY)
    assert world.collect(dry_run=True, **wrong).due == {Kind.BLOB: Tally(1, 1)}
    assert world.collect(**wrong).deleted == {Kind.BLOB: Tally(1, 1)}


def a_lease(world: World, subject: str) -> str:
    key, now = keys.publish_lease("a" * 32), world.clock.now
    world.store.write(key, Lease(subject, "ci@host", now, 30 * MINUTE).encode(now))
    return key


def test_publish_under_way_postpones_the_deletion() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(DAY)
    lease = keys.publish_lease("a" * 32)
    world.store.write(
        lease, Lease("flights", "ci@host", world.clock.now, 30 * MINUTE).encode(world.clock.now)
    )

    report = world.collect()
    assert "flights by ci@host" in report.postponed
    assert report.due == {Kind.BLOB: Tally(1, 1)}
    assert report.deleted == {}
    assert keys.blob(digest("x")) in world.names()
    assert not [key for key in world.names() if key.startswith(keys.COLLECT_LEASES)]
    world.clock.forward(30 * MINUTE)  # the lease expires: its publisher has died
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


def test_lease_is_lost_when_the_host_slept_and_nothing_more_is_deleted() -> None:
    world = World()

    class Sleepy(MemoryObjectStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            yield from super().list(prefix, start_after)
            if not prefix and any(key.startswith(keys.COLLECT_LEASES) for key in self.writes[-1:]):
                world.clock.forward(timedelta(minutes=11))

    world.store = Sleepy(now=world.clock)
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    report = world.twice()
    assert "lease" in report.postponed
    assert report.deleted == {}
    assert world.names() == {keys.blob(digest("x"))}


def test_lease_is_renewed_while_the_look_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    class Slow(MemoryObjectStore):
        def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
            if key.startswith("layouts/"):
                world.clock.forward(timedelta(minutes=4))
            return super().read(key, start=start, size_bytes=size_bytes)

    world.store = Slow(now=world.clock)
    for number in range(2):
        world.put(f"p{number}", ["a"])
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    report = world.twice(policy=CollectionPolicy(max_share=1, patience=timedelta(0)))
    assert report.deleted == {Kind.BLOB: Tally(1, 1)}
    assert sum(key.startswith(keys.COLLECT_LEASES) for key in world.store.writes) > 1


def test_tombstone_from_the_future_restarts_the_grace() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(5 * DAY)
    world.collect()
    world.clock.forward(-2 * DAY)  # the store and the collector use this clock; it is set back
    report = world.collect()
    assert "future" in report.clock_trouble
    assert report.kept == {Kind.BLOB: {Reason.CONDEMNED_NOW: Tally(1, 1)}}
    assert len(world.tombstones()) == 1
    world.clock.forward(DAY - MINUTE)
    assert world.collect().due == {}
    world.clock.forward(MINUTE)
    assert world.collect().deleted == {Kind.BLOB: Tally(1, 1)}


@pytest.mark.parametrize("jump", [2 * DAY, -2 * DAY, 11 * MINUTE])
def test_clocks_that_moved_against_each_other_restart_the_grace(jump: timedelta) -> None:
    world = World()
    offset = timedelta(0)
    world.store = MemoryObjectStore(now=lambda: world.clock.now + offset)
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(5 * DAY)
    world.collect()
    offset = jump  # the store's clock is set
    world.clock.forward(DAY)
    report = world.collect()
    assert report.clock_trouble
    assert report.due == {}
    world.clock.forward(DAY)
    assert world.collect().deleted == {Kind.BLOB: Tally(1, 1)}


@pytest.mark.parametrize(
    "rubbish",
    [
        b"rubbish",
        b'{"condemned":[],"schema":1,"written":"0001-01-01T00:00:00+23:00"}',
        b'{"condemned":[7],"schema":1,"written":"2026-01-01T00:00:00+00:00"}',
    ],
)
def test_unreadable_tombstone_condemns_nothing_and_is_left_and_told(rubbish: bytes) -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    (key,) = world.tombstones()
    world.store.write(key, rubbish)
    world.clock.forward(2 * DAY)
    report = world.collect()
    assert report.unreadable_tombstones == (key,)
    assert report.due == {}
    assert key in world.tombstones()
    assert condemned(world.store) == {keys.blob(digest("x"))}


def test_two_tombstones_condemn_what_both_do_since_the_later_time() -> None:
    world = World()
    for name in ("both", "one"):
        world.store.write(keys.blob(digest(name)), b"")
        world.clock.forward(2 * DAY)
    world.collect()  # condemns both; its tombstone is written back below
    (kept,) = [(info.key, b"".join(world.store.read(info.key))) for info in world.store.list(keys.TOMBSTONES)]
    world.store.write(keys.blob(digest("one")), b"again")
    world.clock.forward(timedelta(0))
    world.collect()
    world.store.write(*kept)
    world.clock.forward(DAY)
    report = world.collect()
    assert report.deleted == {Kind.BLOB: Tally(1, 0)}
    assert len(world.tombstones()) == 1


class Failing(MemoryObjectStore):
    """Refuses all batches, and some single deletes."""

    refuse: frozenset[str] = frozenset()
    refuse_all = False

    def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
        raise StoreAccessDeniedError("no batches")

    def delete(self, key: str) -> None:
        if key in self.refuse or (self.refuse_all and not key.startswith(("gc/", "leases/"))):
            raise StoreAccessDeniedError(f"{key} may not be deleted")
        super().delete(key)


def failing_world(orphans: int) -> tuple[World, Failing]:
    world = World()
    world.store = store = Failing(now=world.clock)
    for number in range(orphans):
        store.write(keys.blob(digest(f"{number}")), b"x")
    world.clock.forward(2 * DAY)
    return world, store


def test_failed_delete_does_not_stop_the_rest() -> None:
    world, store = failing_world(30)
    store.refuse = frozenset(keys.blob(digest(f"{number}")) for number in range(10))
    report = world.twice()
    assert report.deleted == {Kind.BLOB: Tally(20, 20)}
    assert report.failed_count == 10
    assert {key for key, _ in report.failed} == store.refuse == world.names()
    store.refuse = frozenset()
    assert world.collect().deleted == {Kind.BLOB: Tally(10, 10)}


def test_deletion_asks_whether_it_may_before_each_request() -> None:
    class OneByOne(MemoryObjectStore):
        """Like a server without batch deletion: one request for each object, and each takes five minutes."""

        def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
            assert before_each is not None
            for key in keys:
                before_each()
                world.clock.forward(timedelta(minutes=5))
                self.delete(key)

    world = World()
    world.store = store = OneByOne(now=world.clock)
    for number in range(4):
        store.write(keys.blob(digest(f"{number}")), b"x")
    world.clock.forward(2 * DAY)
    written: list[str] = []
    write = store.write
    store.write = lambda key, *args, **kwargs: (written.append(key), write(key, *args, **kwargs))[1]  # type: ignore[method-assign]

    report = world.twice()

    assert report.deleted == {Kind.BLOB: Tally(4, 4)}
    assert sum(key.startswith(keys.COLLECT_LEASES) for key in written) >= 4


def test_store_that_takes_no_deletes_at_all_ends_the_run_soon() -> None:
    world, store = failing_world(60)
    store.refuse_all = True
    report = world.twice()
    assert report.failed_count == deletion_module.MAX_FAILURES_IN_A_ROW
    assert "may not be deleted" in report.postponed


@pytest.mark.parametrize("readable", [True, False])
def test_release_whose_manifest_cannot_be_deleted_keeps_what_it_needs(readable: bool) -> None:
    world = World()
    world.store = store = Failing(now=world.clock)
    old, new = world.put("p", ["old"], ["old"]), world.put("p", ["new"])
    store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    store.refuse = frozenset({keys.manifest("p", old.ref.digest)})
    if not readable:
        rubbish_layout(world, old.ref)
        world.clock.forward(2 * DAY)
    world.twice(new)
    assert old.keys <= world.names()
    assert (keys.blob(digest("x")) in world.names()) is not readable  # else it may be needed


def test_stale_uploads_are_abandoned_after_the_grace() -> None:
    world = World()
    world.store = MemoryObjectStore(now=world.clock, multipart_bytes=10)

    class StopError(Exception):
        pass

    def stop(_size_bytes: int) -> None:
        raise StopError

    for key in (keys.blob(digest("x")), "others/" + digest("x")):
        with pytest.raises(StopError):
            world.store.write(key, bytes(100), on_progress=stop)
    world.clock.forward(DAY - MINUTE)
    assert world.collect().abandoned_uploads == 0
    world.clock.forward(MINUTE)
    assert world.collect(dry_run=True).abandoned_uploads == 1
    lease = a_lease(world, "p")
    assert world.collect().abandoned_uploads == 0  # a publisher may continue it
    world.store.delete(lease)
    assert world.collect().abandoned_uploads == 1
    assert [upload.key for upload in world.store.unfinished_uploads("")] == ["others/" + digest("x")]


def test_server_that_lists_no_uploads_is_collected_all_the_same() -> None:
    class Plain(MemoryObjectStore):
        def unfinished_uploads(self, prefix: str) -> Iterator[object]:  # type: ignore[override]
            raise StoreAccessDeniedError("ListMultipartUploads")

    world = World()
    world.store = Plain(now=world.clock)
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    assert world.twice().deleted == {Kind.BLOB: Tally(1, 1)}


def test_collection_that_is_told_to_stop_stops_and_says_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "BATCH", 3)
    stopping, world = threading.Event(), World()
    for number in range(10):
        world.store.write(keys.blob(digest(f"{number}")), b"x")
    world.clock.forward(2 * DAY)

    def stop(progress: Progress) -> None:
        if progress.phase is Phase.DELETING:
            assert progress.total_count == 10
            stopping.set()

    report = world.twice(stopping=stopping, progress=stop)
    assert report.is_stopped
    assert report.deleted == {Kind.BLOB: Tally(3, 3)}
    assert len(world.names()) == 7
    assert world.collect(stopping=stopping).is_stopped
    assert world.collect().deleted == {Kind.BLOB: Tally(7, 7)}


def test_deletion_lets_publishes_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "BATCH", 1)
    monkeypatch.setattr("blobsync.collection.run.PAUSE_S", 0.0)
    world = World()

    class Slow(MemoryObjectStore):
        def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
            super().delete_many(keys, before_each)
            world.clock.forward(timedelta(seconds=deletion_module.HOLD_S + 1))

    world.store = Slow(now=world.clock)
    for number in range(3):
        world.store.write(keys.blob(digest(f"{number}")), b"x")
    world.clock.forward(2 * DAY)
    report = world.twice()
    assert report.deleted == {Kind.BLOB: Tally(3, 3)}
    assert sum(key.startswith(keys.COLLECT_LEASES) for key in world.store.writes) == 3


def test_collection_tells_how_far_it_is() -> None:
    world, told = World(), []
    world.put("p", ["a"])
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.twice(progress=told.append)
    assert {item.phase for item in told} == {Phase.LISTING, Phase.READING, Phase.DELETING}
    assert Progress(Phase.READING, 1, 1) in told
    assert Progress(Phase.DELETING, 1, 1) in told


def test_nothing_is_deleted_when_whoever_collects_may_not_delete_any_more() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(DAY)

    report = world.collect(may_delete=lambda: False)

    assert report.is_stopped
    assert report.deleted == {}
    assert world.names() == {keys.blob(digest("x"))}, "neither the object nor a lease of ours"
    assert world.collect(may_delete=lambda: True).deleted[Kind.BLOB].count == 1


def test_right_to_delete_is_asked_for_before_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "BATCH", 1)
    world = World()
    for name in ("x", "y", "z"):
        world.store.write(keys.blob(digest(name)), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(DAY)
    answers = iter([True, True, True, False])  # one answer before the lease, then one before each batch

    report = world.collect(may_delete=lambda: next(answers))

    assert report.is_stopped
    assert report.deleted[Kind.BLOB].count == 2
    assert len(world.names()) == 1


def test_report_is_plain_data() -> None:
    world = World()
    world.put("p", ["a"])
    world.clock.forward(2 * DAY)
    data = world.collect().as_data()
    assert data["kept"]["pack"] == {"newest": {"count": 1, "size_bytes": 50}}
    assert data["foreign"] == {"count": 0, "size_bytes": 0}
    assert set(data) == set(world.collect().__dataclass_fields__)


@pytest.mark.parametrize(
    "options",
    [
        {"grace": 59 * MINUTE},
        {"min_age": timedelta(0)},
        {"keep_age": 23 * HOUR},
        {"keep_newest": -1},
        {"max_share": 0},
        {"max_share": 1.1},
        {"patience": -MINUTE},
    ],
)
def test_policy_that_cannot_be_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(BlobSyncConfigError, match=next(iter(options))):
        CollectionPolicy(**options)  # type: ignore[arg-type]


def test_history_without_a_manifest_makes_no_root() -> None:
    entry = keys.history("p", START, digest("x"))
    found = inventory([ObjectInfo(entry, 0, START)])
    assert roots(found, frozenset(), frozenset({"p"}), START, POLICY) == {}


def test_publish_writes_again_what_is_condemned(tmp_path: Path) -> None:
    world = World()
    (tmp_path / "small").write_text("small")
    (tmp_path / "large").write_bytes(bytes(5 << 20))
    files = collect(tmp_path, include=["*"])
    first = publish(world.store, name="p", files=files)
    assert len(first.packs_written) == 1
    assert publish(world.store, name="p", files=files).uploaded_count == 0
    world.clock.forward(2 * DAY)
    nothing_kept = CollectionPolicy(keep_age=DAY, keep_newest=0, max_share=1.0, patience=timedelta(0))
    world.collect(policy=nothing_kept)
    assert {keys.pack(pack.name) for pack in first.packs_written} <= condemned(world.store)

    again = publish(world.store, name="p", files=files)
    assert again.uploaded_count == 2
    assert again.packs_written == first.packs_written
    world.clock.forward(DAY)
    world.collect(policy=nothing_kept)
    assert read_release(world.store, "p", again.digest)["small"] == b"small"
