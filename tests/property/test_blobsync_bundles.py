"""Laws of bundles: each small content is in one, once, and none is too large."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from blobsync import Artifact, Manifest, Role
from blobsync.names import key_fault
from blobsync.release.blob import PACKED_BYTES
from blobsync.release.loose import BUNDLE_BYTES, BUNDLE_FILES, bundles_of, loose_blobs

sizes = st.sampled_from([0, 1, 8 << 10, PACKED_BYTES - 1, PACKED_BYTES, PACKED_BYTES + 1, 16 << 20])


def release(contents: list[tuple[int, int]]) -> Manifest:
    """Of files by number, whose content is told by a number and a size."""
    return Manifest(
        "p",
        tuple(
            Artifact(
                f"f{number:05}", size, hashlib.sha256(f"{size} {what}".encode()).hexdigest(), Role.CODE, False
            )
            for number, (what, size) in enumerate(contents)
        ),
    )


@given(contents=st.lists(st.tuples(st.integers(0, 5), sizes), max_size=60))
def test_each_content_is_fetched_once_from_a_file_that_has_it(contents: list[tuple[int, int]]) -> None:
    manifest = release(contents)
    bundles, blobs = bundles_of(manifest, "d/"), loose_blobs(manifest, "d/")
    digests = {f"d/{item.path}": item.sha256 for item in manifest.artifacts}

    found = [(bundle.key(file), file.sha256) for bundle in bundles for file in bundle.files]
    found += [(blob.key, blob.sha256) for blob in blobs]

    assert sorted(sha256 for _, sha256 in found) == sorted(manifest.blobs)
    assert all(digests[key] == sha256 and key_fault(key) is None for key, sha256 in found)
    assert all(bundle.size_bytes <= BUNDLE_BYTES for bundle in bundles)
    assert len({bundle.name for bundle in bundles}) == len(bundles)


def test_bundle_has_no_more_than_so_many_files() -> None:
    bundles = bundles_of(release([(number, 1) for number in range(2 * BUNDLE_FILES + 1)]), "d/")

    assert [len(bundle.files) for bundle in bundles] == [BUNDLE_FILES, BUNDLE_FILES, 1]


def test_bundle_keeps_its_name_when_some_of_it_has_come_and_has_another_below_another_prefix() -> None:
    manifest = release([(number, 1) for number in range(3)])
    (bundle,), (elsewhere,) = bundles_of(manifest, "d/"), bundles_of(manifest, "e/")

    assert bundle.only(bundle.files[:1]).name == bundle.name != elsewhere.name
    assert bundle.only(bundle.files[:1]).size_bytes == 1
