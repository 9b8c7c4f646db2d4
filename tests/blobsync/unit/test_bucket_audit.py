"""Audits of releases in a bucket name each object that is missing, truncated or damaged, and no other."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import BucketUnavailableError, PublishedRelease, ReleaseRef, RetryPolicy, collect, publish
from blobsync.bucket import keys
from blobsync.bucket.audit import Auditor, Fault, Flaw
from blobsync.bucket.releases import fetch_layout, fetch_manifest
from blobsync.release.manifest import CHUNK_BYTES, PACKED_BYTES
from blobsync.testing.memory import MemoryObjectStore

QUICK = RetryPolicy(
    first_wait=timedelta(milliseconds=1), max_wait=timedelta(milliseconds=2), deadline=timedelta(seconds=0.2)
)


def put(store: MemoryObjectStore, folder: Path, files: dict[str, bytes]) -> ReleaseRef:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    made: PublishedRelease = publish(
        store, name="p", files=collect(folder, include=["**"]), retry=QUICK, published_by="test"
    )
    return ReleaseRef("p", made.digest)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def ref(store: MemoryObjectStore, tmp_path: Path) -> ReleaseRef:
    """A release of two small files, a large one, and one in chunks."""
    files = {
        "a": b"1",
        "b/c": b"22",
        "large": b"x" * (PACKED_BYTES + 1),
        "chunked": os.urandom(CHUNK_BYTES + 9),
    }
    return put(store, tmp_path / "first", files)


def pack_key(store: MemoryObjectStore, ref: ReleaseRef) -> str:
    return keys.pack(fetch_layout(store, ref.name, ref.digest).packs[0].name)


def blob_key(store: MemoryObjectStore, ref: ReleaseRef, path: str) -> str:
    manifest = fetch_manifest(store, ref.name, ref.digest)
    return keys.blob(next(item.blob.name for item in manifest.artifacts if item.path == path))


def flaws(store: MemoryObjectStore, ref: ReleaseRef, *, deep: bool = False) -> tuple[Flaw, ...]:
    return Auditor(store, retry=QUICK, deep=deep).audit(ref).flaws


@pytest.mark.parametrize("deep", [False, True])
def test_audit_finds_nothing_wrong_with_a_whole_release_and_writes_nothing(
    store: MemoryObjectStore, ref: ReleaseRef, deep: bool
) -> None:
    written = len(store.writes)

    audit = Auditor(store, retry=QUICK, deep=deep).audit(ref)

    assert audit.flaws == ()
    assert audit.objects == 3
    assert audit.size_bytes > PACKED_BYTES + CHUNK_BYTES
    assert len(store.writes) == written
    assert store.deletes == [] or all("leases" in key for key in store.deletes)


def test_audit_names_a_pack_and_a_large_file_that_are_gone(store: MemoryObjectStore, ref: ReleaseRef) -> None:
    lost = [pack_key(store, ref), blob_key(store, ref, "large"), blob_key(store, ref, "chunked")]
    for key in lost:
        store.lose(key)

    assert {(flaw.key, flaw.fault) for flaw in flaws(store, ref)} == {(key, Fault.MISSING) for key in lost}


def test_audit_says_that_a_release_is_absent_when_its_manifest_is_gone(
    store: MemoryObjectStore, ref: ReleaseRef
) -> None:
    store.lose(keys.manifest(ref.name, ref.digest))

    audit = Auditor(store, retry=QUICK).audit(ref)

    assert audit.is_absent
    assert [flaw.fault for flaw in audit.flaws] == [Fault.MISSING]


def test_audit_names_a_layout_that_is_gone_and_goes_on_with_the_large_files(
    store: MemoryObjectStore, ref: ReleaseRef
) -> None:
    store.lose(keys.layout(ref.name, ref.digest))
    store.lose(blob_key(store, ref, "large"))

    found = Auditor(store, retry=QUICK).audit(ref)

    assert {flaw.key for flaw in found.flaws} == {
        keys.layout(ref.name, ref.digest),
        blob_key(store, ref, "large"),
    }
    assert not found.is_absent


def test_audit_finds_an_object_of_another_size_without_reading_it(
    store: MemoryObjectStore, ref: ReleaseRef
) -> None:
    key = blob_key(store, ref, "large")
    store.write(key, b"short")

    assert [(flaw.key, flaw.fault) for flaw in flaws(store, ref)] == [(key, Fault.DAMAGED)]
    assert store.reads[key] == 0


@pytest.mark.parametrize("path", ["large", "chunked"])
def test_deep_audit_finds_a_flipped_byte_of_a_large_file_which_a_quick_one_does_not(
    store: MemoryObjectStore, ref: ReleaseRef, path: str
) -> None:
    key = blob_key(store, ref, path)
    store.corrupt(key, at=PACKED_BYTES)

    assert flaws(store, ref) == ()
    assert [(flaw.key, flaw.fault) for flaw in flaws(store, ref, deep=True)] == [(key, Fault.DAMAGED)]


def test_deep_audit_finds_a_flipped_byte_of_a_pack(store: MemoryObjectStore, ref: ReleaseRef) -> None:
    key = pack_key(store, ref)
    store.corrupt(key, at=9)

    assert flaws(store, ref) == ()
    assert [(flaw.key, flaw.fault) for flaw in flaws(store, ref, deep=True)] == [(key, Fault.DAMAGED)]


def test_audit_finds_a_layout_whose_packs_lack_small_files(store: MemoryObjectStore, tmp_path: Path) -> None:
    one = put(store, tmp_path / "one", {"a": b"1"})
    other = put(store, tmp_path / "other", {"b": b"2"})
    store.write(
        keys.layout(one.name, one.digest), b"".join(store.read(keys.layout(other.name, other.digest)))
    )

    found = flaws(store, one)

    assert [(flaw.key, flaw.fault) for flaw in found] == [(keys.layout(one.name, one.digest), Fault.DAMAGED)]


def test_auditor_looks_at_what_releases_share_once(
    store: MemoryObjectStore, ref: ReleaseRef, tmp_path: Path
) -> None:
    second = put(store, tmp_path / "first", {"d": b"new"})
    key, auditor = blob_key(store, ref, "large"), Auditor(store, retry=QUICK, deep=True)
    store.reads.clear()

    assert auditor.audit(ref).flaws == auditor.audit(second).flaws == ()
    assert store.reads[key] == 1


def test_audit_says_nothing_of_a_release_while_the_store_cannot_be_reached(
    store: MemoryObjectStore, ref: ReleaseRef
) -> None:
    store.unavailable = True

    with pytest.raises(BucketUnavailableError):
        flaws(store, ref)


def test_deep_audit_reads_what_is_damaged_once_more_and_no_oftener(
    store: MemoryObjectStore, ref: ReleaseRef
) -> None:
    key = blob_key(store, ref, "large")
    store.corrupt(key, at=0)

    assert len(flaws(store, ref, deep=True)) == 1
    assert store.reads[key] == 2


class Crowded(MemoryObjectStore):
    """Answers a request for a size only when three of them wait at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.together = threading.Barrier(3)

    def size(self, key: str) -> int | None:
        self.together.wait(timeout=60)
        return super().size(key)


def test_sizes_are_asked_for_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjectStore()
    ref = put(store, tmp_path, {f"large{n}": bytes([n]) * (PACKED_BYTES + 1) for n in range(6)})
    crowded = Crowded()
    for info in store.list(""):
        crowded.write(info.key, b"".join(store.read(info.key)))
    before = threading.active_count()

    looked: list[int] = []
    audit = Auditor(crowded, retry=QUICK, on_progress=looked.append).audit(ref)

    assert audit.flaws == ()
    assert audit.objects == 6
    assert sum(looked) == audit.size_bytes
    assert threading.active_count() == before


def test_audit_that_is_stopped_asks_for_nothing_more(store: MemoryObjectStore, tmp_path: Path) -> None:
    ref = put(store, tmp_path, {f"large{n}": bytes([n]) * (PACKED_BYTES + 1) for n in range(3)})

    def stop(_size_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Auditor(store, retry=QUICK, on_progress=stop).audit(ref)
