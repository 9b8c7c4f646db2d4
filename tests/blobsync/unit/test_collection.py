"""Garbage collection in the bucket: which objects are condemned and deleted, and which stay."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import (
    BlobSyncConfigError,
    ObjectInfo,
    collect,
    publish,
)
from blobsync.bucket import keys
from blobsync.bucket.leases import live_leases
from blobsync.bucket.tombstones import condemned
from blobsync.collection.decision import CollectionPolicy, Reason, roots
from blobsync.collection.inventory import Kind, Tally, inventory
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.collection_samples import (
    DAY,
    HOUR,
    POLICY,
    START,
    World,
    digest,
    publishing,
    put,
    sample,
)
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
