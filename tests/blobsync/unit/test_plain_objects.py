"""Releases of plain objects, which an earlier version made, are refused; publishing repairs them (ADR 43)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blobsync import (
    GcRefusedError,
    LocalStore,
    ReleaseCorruptError,
    ReleaseRef,
    ReleaseState,
    collect,
    publish,
)
from blobsync.bucket import keys
from blobsync.bucket.releases import fetch_layout, fetch_manifest, read_file
from blobsync.collection.collector import collect_garbage
from blobsync.errors import InvalidLayoutError
from tests.blobsync.local_store_samples import Sample, fill, sample
from tests.blobsync.sync_samples import SOON, Rig, state_of

Eventually = Callable[..., None]
WHAT_TO_DO = "Publish the same files again"


def of_plain_objects(release: Sample) -> bytes:
    """The layout of the release in the form of the earlier version."""
    document = json.loads(release.layout.encode())
    return json.dumps({**document, "schema": 2, "loose": "data/v1/"}).encode()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def adopted(rig: Rig) -> ReleaseRef:
    release = sample({"a": b"1"})
    ref = rig.put(release)
    rig.store.write(keys.layout(ref.name, ref.digest), of_plain_objects(release))
    rig.store.write("data/v1/a", b"1")
    return ref


def test_release_of_plain_objects_is_told_as_corrupt_with_what_to_do(
    rig: Rig, adopted: ReleaseRef, eventually: Eventually
) -> None:
    syncer = rig.syncer(adopted)

    eventually(lambda: state_of(syncer, adopted) is ReleaseState.CORRUPT)
    assert WHAT_TO_DO in syncer.readiness().releases[adopted].reason
    with pytest.raises(ReleaseCorruptError, match=f"cannot be used as the.*{WHAT_TO_DO}"):
        syncer.ensure(adopted, SOON)


def test_file_of_plain_objects_is_not_read_from_the_bucket(rig: Rig, adopted: ReleaseRef) -> None:
    manifest = fetch_manifest(rig.store, adopted.name, adopted.digest)

    with pytest.raises(InvalidLayoutError, match=WHAT_TO_DO):
        list(read_file(rig.store, manifest, fetch_layout(rig.store, adopted.name, adopted.digest), "a"))


def test_collection_that_must_keep_plain_objects_deletes_nothing(rig: Rig, adopted: ReleaseRef) -> None:
    with pytest.raises(GcRefusedError, match=WHAT_TO_DO):
        collect_garbage(rig.store, frozenset({adopted}))

    assert b"".join(rig.store.read("data/v1/a")) == b"1"


def test_publishing_the_same_files_mends_a_release_of_plain_objects(
    rig: Rig, adopted: ReleaseRef, eventually: Eventually, tmp_path: Path
) -> None:
    syncer = rig.syncer(adopted)
    eventually(lambda: state_of(syncer, adopted) is ReleaseState.CORRUPT)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_bytes(b"1")

    made = publish(rig.store, name=adopted.name, files=collect(tmp_path / "source", include=["*"]))

    assert made.digest == adopted.digest
    syncer.retry_now()
    assert (syncer.ensure(adopted, SOON) / "a").read_bytes() == b"1"


def test_kept_release_of_plain_objects_does_not_count_as_kept(tmp_path: Path) -> None:
    release = sample({"a": b"1"})
    ref = release.manifest.ref
    with LocalStore(tmp_path / "local") as local:
        fill(local, release)
        assert local.kept(ref) is not None

        path = tmp_path / "local" / "releases" / ref.name / f"{ref.digest}.layout"
        path.unlink()
        path.write_bytes(of_plain_objects(release))

        assert local.kept(ref) is None
