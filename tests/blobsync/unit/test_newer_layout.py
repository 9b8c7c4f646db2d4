"""Releases whose layout is of a newer version are refused; publishing their files again repairs them."""

from __future__ import annotations

import json
from collections.abc import Callable
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
WHAT_TO_DO = "update blobsync"


def of_a_newer_version(release: Sample) -> bytes:
    """The layout of the release in the form of a newer version."""
    document = json.loads(release.layout.encode())
    return json.dumps({**document, "schema": 2, "more": "data/v1/"}).encode()


@pytest.fixture
def written(rig: Rig) -> ReleaseRef:
    release = sample({"a": b"1"})
    ref = rig.put(release)
    rig.store.write(keys.layout(ref.name, ref.digest), of_a_newer_version(release))
    rig.store.write("data/v1/a", b"1")
    return ref


def test_release_of_a_newer_version_is_told_as_corrupt_with_what_to_do(
    rig: Rig, written: ReleaseRef, eventually: Eventually
) -> None:
    syncer = rig.syncer(written)

    eventually(lambda: state_of(syncer, written) is ReleaseState.CORRUPT)
    assert WHAT_TO_DO in syncer.readiness().releases[written].reason
    with pytest.raises(ReleaseCorruptError, match=f"cannot be used as the.*{WHAT_TO_DO}"):
        syncer.ensure(written, SOON)


def test_file_of_a_newer_version_is_not_read_from_the_bucket(rig: Rig, written: ReleaseRef) -> None:
    manifest = fetch_manifest(rig.store, written.name, written.digest)

    with pytest.raises(InvalidLayoutError, match=WHAT_TO_DO):
        list(read_file(rig.store, manifest, fetch_layout(rig.store, written.name, written.digest), "a"))


def test_collection_that_must_keep_a_newer_layout_deletes_nothing(rig: Rig, written: ReleaseRef) -> None:
    with pytest.raises(GcRefusedError, match=WHAT_TO_DO):
        collect_garbage(rig.store, frozenset({written}))

    assert b"".join(rig.store.read("data/v1/a")) == b"1"


def test_publishing_the_same_files_mends_a_release_of_a_newer_version(
    rig: Rig, written: ReleaseRef, eventually: Eventually, tmp_path: Path
) -> None:
    syncer = rig.syncer(written)
    eventually(lambda: state_of(syncer, written) is ReleaseState.CORRUPT)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_bytes(b"1")

    made = publish(rig.store, name=written.name, files=collect(tmp_path / "source", include=["*"]))

    assert made.digest == written.digest
    syncer.retry_now()
    assert (syncer.ensure(written, SOON) / "a").read_bytes() == b"1"


def test_kept_release_of_a_newer_version_does_not_count_as_kept(tmp_path: Path) -> None:
    release = sample({"a": b"1"})
    ref = release.manifest.ref
    with LocalStore(tmp_path / "local") as local:
        fill(local, release)
        assert local.kept(ref) is not None

        path = tmp_path / "local" / "releases" / ref.name / f"{ref.digest}.layout"
        path.unlink()
        path.write_bytes(of_a_newer_version(release))

        assert local.kept(ref) is None
