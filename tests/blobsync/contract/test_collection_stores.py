"""Collections on the shipped fake and on two real servers over HTTP, with real publishes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import ObjectStore, ReleaseRef, S3Config, S3ObjectStore, Secret, collect, publish
from blobsync.bucket import keys
from blobsync.bucket.tombstones import condemned
from blobsync.collection.collector import CollectionReport, collect_garbage
from blobsync.collection.decision import CollectionPolicy
from blobsync.collection.inventory import Kind
from blobsync.testing.memory import MemoryObjectStore
from nimbus.localstack.s3 import S3Server
from tests.blobsync.collection_samples import DAY, digest
from tests.blobsync.release_reader import read_release
from tests.blobsync.travelled_store import TravelledStore

POLICY = CollectionPolicy(keep_age=DAY, keep_newest=1, max_share=1.0, patience=timedelta(0))


@pytest.fixture(params=["memory", "rclone", "moto"])
def store(
    request: pytest.FixtureRequest, moto_endpoint: str, s3_server: S3Server
) -> Iterator[TravelledStore]:
    if request.param == "memory":
        yield TravelledStore(MemoryObjectStore())
        return
    bucket = f"b-{uuid.uuid4().hex}"
    if request.param == "rclone":
        config = S3Config(
            endpoint_url=s3_server.endpoint_url,
            bucket=bucket,
            prefix="some/prefix",
            access_key_id=s3_server.access_key,
            secret_access_key=Secret(s3_server.secret_key),
        )
    else:
        config = S3Config(
            endpoint_url=moto_endpoint,
            bucket=bucket,
            access_key_id="any",
            secret_access_key=Secret("thing"),
        )
    s3 = S3ObjectStore(config)
    s3.ensure_bucket()
    yield TravelledStore(s3)
    s3.close()


def release(store: ObjectStore, folder: Path, content: str) -> ReleaseRef:
    folder.mkdir(exist_ok=True)
    (folder / "small.txt").write_text(content)
    (folder / "large.bin").write_bytes(content.encode() * (5 << 20))
    made = publish(store, name="p", files=collect(folder, include=["*"]))
    return ReleaseRef("p", made.digest)


def gather(store: TravelledStore, *keep: ReleaseRef) -> CollectionReport:
    return collect_garbage(store, frozenset(keep), policy=POLICY, allow_empty=True, clock=store.now)


def test_orphans_are_gone_after_two_periods_and_what_is_kept_can_be_read(
    store: TravelledStore, tmp_path: Path
) -> None:
    old = release(store, tmp_path, "o")
    store.write("foreign/file", b"x")
    store.passed += timedelta(seconds=2)
    new = release(store, tmp_path, "n")
    store.passed += 2 * DAY

    first = gather(store, new)
    assert first.due == {}
    assert not first.clock_trouble
    assert keys.manifest("p", old.digest) in condemned(store)
    store.passed += DAY
    report = gather(store, new)

    assert report.deleted == report.due
    assert {kind: tally.count for kind, tally in report.deleted.items()} == {
        kind: 1 for kind in Kind if kind is not Kind.LEASE
    }
    assert not report.failed_count
    assert not report.missing_count
    assert report.foreign.count == 1
    assert read_release(store, "p", new.digest)["small.txt"] == b"n"
    left = {info.key for info in store.list("")}
    assert not [key for key in left if old.digest in key]
    assert not [key for key in left if key.startswith("leases/")]
    assert {"foreign/file", keys.COLLECTION_CLOCK} <= left
    assert len([key for key in left if key.startswith((keys.PACKS, keys.BLOBS))]) == 2


def test_release_that_is_published_again_within_the_grace_stays_whole(
    store: TravelledStore, tmp_path: Path
) -> None:
    old = release(store, tmp_path, "o")
    store.passed += timedelta(seconds=2)
    new = release(store, tmp_path, "n")
    store.passed += 2 * DAY
    gather(store, new)
    store.passed += DAY - timedelta(minutes=1)
    assert release(store, tmp_path, "o") == old
    store.passed += timedelta(minutes=1)
    gather(store, old, new)
    store.passed += DAY
    gather(store, old, new)
    for ref, content in ((old, b"o"), (new, b"n")):
        assert read_release(store, "p", ref.digest)["small.txt"] == content


@pytest.mark.parametrize("store", ["memory", "rclone"], indirect=True)
def test_more_tombstones_than_fit_in_the_clear_are_read_back(store: TravelledStore) -> None:
    orphans = {keys.blob(digest(f"{number}")) for number in range(400)}
    for key in orphans:
        store.write(key, b"x")
    store.passed += 2 * DAY
    gather(store)
    assert condemned(store) == orphans
    (tombstone,) = store.list(keys.TOMBSTONES)
    assert tombstone.size_bytes < 64 << 10
    store.passed += DAY
    assert gather(store).deleted[Kind.BLOB].count == len(orphans)
