"""A stored sample of each format in a bucket and on a disk is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from blobsync import CollectionPolicy, LocalStore, ReleaseRef, ReplicaBoard, collect_garbage, fetch_manifest
from blobsync.bucket import keys, leases, tombstones
from blobsync.bucket.releases import fetch_layout, list_releases, published
from blobsync.local.disk import FileIdentity
from blobsync.local.gc import gc
from blobsync.local.index import VerifiedIndex
from blobsync.local.tree_check import TreeRecord
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.local_store_samples import contents

REF = ReleaseRef("p", "93d81844ce130cc5fe876b95117d2571d36785b5d0b02739f6f5001b2923a745")
PACK_NAME = "1698dcede2e99ecc6884a6975bc056238a9fa418b655223f72e7db31aa06c8ed"
BLOB_NAME = "b3-f9c047e375b6200b686af762515636b5df1b8e22efe5173b602509e643e5db20"
LARGE = bytes((16 << 20) + 1)
FILES = {"a.py": b"print(1)\n", "large": LARGE, "run.sh": b"#!/bin/sh\n", 'ä "q".txt': b""}
MANIFEST = """
{"artifacts":[{"chunks":[],"executable":false,"path":"a.py","role":"code",
"sha256":"cc42155088fca5730758db72b2a5bca33112a941dfaa2d43098ec422ce4ea213","size_bytes":9},{"chunks":[
"b4834959bc889fed1abf3c45d5da0e384134386a4b2786cc5dbb9fe8fa853bbb",
"2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"],"executable":false,"path":"large",
"role":"code","sha256":"1003b1b5dc078189799a1216ce0f9fbcebb94e8b6b83c58c4b03345f07f94ced",
"size_bytes":16777217},{"chunks":[],"executable":true,"path":"run.sh","role":"code",
"sha256":"a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf","size_bytes":10},{"chunks":[],
"executable":false,"path":"ä \\"q\\".txt","role":"code",
"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size_bytes":0}],"name":"p",
"schema":2}""".replace("\n", "").encode()
LAYOUT = (
    b'{"packs":[{"name":"1698dcede2e99ecc6884a6975bc056238a9fa418b655223f72e7db31aa06c8ed","size_bytes":167}],'
    b'"published_at":"2026-11-24T13:10:23Z","published_by":"ci@host","schema":1}'
)
RECORD = (
    b"812e4a2caf3a6ce66a36b1af68f646f234a4ee43cf76798e49e9f79ce1995394\n"
    b'{"blobs":[["1003b1b5dc078189799a1216ce0f9fbcebb94e8b6b83c58c4b03345f07f94ced",16777217,'
    b'["b4834959bc889fed1abf3c45d5da0e384134386a4b2786cc5dbb9fe8fa853bbb",'
    b'"2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"]]],"files":4,'
    b'"layout":"f71f4cb0a0c70335e4eaf0efa525c59762428dc8278ddf5b79cc7389eff7a962","manifest_bytes":796,'
    b'"release":"93d81844ce130cc5fe876b95117d2571d36785b5d0b02739f6f5001b2923a745","schema":1,'
    b'"size_bytes":16777236}\n'
)
PACK = bytes.fromhex(
    "42535041434b310a7072696e742831290a23212f62696e2f73680a13000000130000000300000000000000cc42155088fca573"
    "0758db72b2a5bca33112a941dfaa2d43098ec422ce4ea21309000000a8076d3d28d21e02012b20eaf7dbf75409a6277134439"
    "025f282e368e3305abf0a000000e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8550000000003"
    "0000000100000042535041434b310a"
)
TREE = bytes.fromhex(
    "425354524545310a8f9ed3bf09ba674388b42c312bd61bf04ed7c5336c5e7be12f2c7201bb8cc79c0400000001000000446024"
    "000000000071602400000000003b4624000000000081602400000000009160240000000000f72ea34e39fdea18f72ea34e39fd"
    "ea18f43b334839fdea18f72ea34e39fdea18f72ea34e39fdea18cc42155088fca5730758db72b2a5bca33112a941dfaa2d4309"
    "8ec422ce4ea2131003b1b5dc078189799a1216ce0f9fbcebb94e8b6b83c58c4b03345f07f94ceda8076d3d28d21e02012b20ea"
    "f7dbf75409a6277134439025f282e368e3305abfe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8"
    "550a612e70790a6c617267650a72756e2e73680ac3a4202271222e747874"
)
VERIFIED = (
    b"37b5df21 167 1795525823875753300 2377276 "
    b"1698dcede2e99ecc6884a6975bc056238a9fa418b655223f72e7db31aa06c8ed "
    b"packs/16/1698dcede2e99ecc6884a6975bc056238a9fa418b655223f72e7db31aa06c8ed\n"
)
LEASE = (
    b'{"expires":"2026-03-01T12:30:00Z","holder":"ci@host","schema":1,"started":"2026-03-01T12:00:00Z",'
    b'"subject":"p","ttl_s":1800}'
)
TOMBSTONE = (
    b'{"condemned":[["packs/1698dcede2e99ecc6884a6975bc056238a9fa418b655223f72e7db31aa06c8ed",167,'
    b'"2026-03-01T12:00:00+00:00","2026-03-01T12:00:00+00:00"]],"schema":1,'
    b'"written":"2026-03-01T12:00:00+00:00"}'
)
REPLICA = (
    b'{"at":"2026-03-01T12:00:00Z",'
    b'"digests":["93d81844ce130cc5fe876b95117d2571d36785b5d0b02739f6f5001b2923a745"],"host":"h1","schema":1}'
)


@pytest.fixture
def bucket() -> MemoryObjectStore:
    store = MemoryObjectStore()
    for key, data in {
        f"packs/{PACK_NAME}": PACK,
        f"blobs/{BLOB_NAME}": LARGE,
        f"layouts/p/{REF.digest}.json": LAYOUT,
        f"publications/p/20261124T131023Z-{REF.digest}": b"",
        f"releases/p/{REF.digest}.json": MANIFEST,
        "leases/publish/00000000000000000000000000000001": LEASE,
        "gc/runs/20260301T120000Z-00000000000000000000000000000002": TOMBSTONE,
        "gc/clock": b"",
        "replicas/h1": REPLICA,
    }.items():
        store.write(key, data)
    return store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A local store that had the release, as a process left it that was killed."""
    for place, data in {
        f"packs/16/{PACK_NAME}": PACK,
        f"blobs/f9/{BLOB_NAME}": LARGE,
        f"releases/p/{REF.digest}.json": MANIFEST,
        f"releases/p/{REF.digest}.layout": LAYOUT,
        f"releases/p/{REF.digest}.record": RECORD,
        f"trees/{REF.digest}.files": TREE,
        f"partial/{BLOB_NAME}": LARGE[:9],
        f"quarantine/{PACK_NAME}.1795524715730028787": b"damaged",
        "sessions/3e4f4af51a2a978ca2fffb8dc5164cbf/lock": b"",
        "sessions/3e4f4af51a2a978ca2fffb8dc5164cbf/holds.json": b'["%s"]' % REF.digest.encode(),
        "gc.json": b'{"packs/00/unknown 1795524714999491542": 1795524715.1635535}',
        "scrub": b"0000001795525137.932",
        "verified": VERIFIED,
    }.items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if place.startswith(("packs/", "blobs/", "releases/")):
            path.chmod(0o444)
    return tmp_path


def test_release_in_a_bucket_is_listed_and_read(bucket: MemoryObjectStore) -> None:
    manifest = fetch_manifest(bucket, REF.name, REF.digest)
    layout = fetch_layout(bucket, REF.name, REF.digest)

    assert list_releases(bucket, "p") == [REF.digest]
    assert [entry.digest for entry in published(bucket, "p")] == [REF.digest]
    assert {item.path: item.size_bytes for item in manifest.artifacts} == {
        path: len(data) for path, data in FILES.items()
    }
    assert (manifest.digest, manifest.canonical, layout.encode()) == (REF.digest, MANIFEST, LAYOUT)
    assert [pack.name for pack in layout.packs] == [PACK_NAME]


def test_leases_tombstones_and_replicas_in_a_bucket_count(bucket: MemoryObjectStore) -> None:
    now = leases.store_time(bucket, "gc/clock")
    (live,) = leases.live_leases(bucket, keys.PUBLISH_LEASES, now)

    assert live.lease == leases.Lease(
        "p", "ci@host", datetime(2026, 3, 1, 12, tzinfo=UTC), timedelta(minutes=30)
    )
    assert tombstones.condemned(bucket) == {f"packs/{PACK_NAME}"}
    assert ReplicaBoard(bucket).read(REF.digest).holders == ("h1",)
    bucket.delete(live.key)
    policy = CollectionPolicy(max_share=1.0)
    assert not collect_garbage(bucket, {REF}, policy=policy).deleted, "what was condemned is wanted"


def test_local_store_is_opened_with_its_releases_and_without_a_download(root: Path) -> None:
    with LocalStore(root) as local:
        kept = local.kept(REF)
        assert kept is not None
        assert kept.is_recorded
        assert (local.releases(), local.is_here(REF)) == ([REF], True)
        tree = local.materialise(REF)
        assert contents(tree) == FILES
        assert (tree / "run.sh").stat().st_mode & 0o111
        local.hold({REF.digest})

        assert gc(local, {REF.digest}, grace=timedelta(0)).removed == ()
        assert [path.name for path in (root / "sessions").iterdir()] != ["3e4f4af51a2a978ca2fffb8dc5164cbf"]


def test_notes_about_verified_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "verified").write_bytes(VERIFIED)
    index = VerifiedIndex(tmp_path / "verified", tmp_path / "part")
    found = FileIdentity(167, 1795525823875753300, 2377276)

    assert index.digest(f"packs/16/{PACK_NAME}", found) == PACK_NAME
    index.close()
    tree = TreeRecord.parse(TREE)
    assert tree is not None
    assert [file.path for file in tree.files] == list(FILES)
