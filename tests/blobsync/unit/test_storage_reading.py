"""A file that is read from the bucket: each piece is verified before it is returned."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from blobsync import CorruptBlobError, ReleaseAbsentError
from blobsync.bucket import keys
from blobsync.bucket.releases import read_file
from blobsync.release.manifest import CHUNK_BYTES
from tests.blobsync.local_store_samples import Sample, sample
from tests.blobsync.sync_samples import Rig

FILES = {
    "packed": b"1" * 1000,
    "alone": random.Random(1).randbytes(5 << 20),
    "chunked": random.Random(2).randbytes(2 * CHUNK_BYTES + 77),
}


@pytest.fixture
def release() -> Sample:
    return sample({**FILES, "other": b"2" * 1000}, members=2, compress=False)


def read(rig: Rig, release: Sample, file: str) -> list[bytes]:
    return list(read_file(rig.store, release.manifest, release.layout, file))


@pytest.mark.parametrize("file", FILES)
def test_file_is_read_whole(tmp_path: Path, release: Sample, file: str) -> None:
    rig = Rig(tmp_path)
    rig.put(release)

    assert b"".join(read(rig, release, file)) == FILES[file]


@pytest.mark.parametrize(
    ("file", "at", "given"), [("packed", 500, 0), ("alone", 9, 0), ("chunked", 17 << 20, 1)]
)
def test_no_piece_with_other_bytes_is_given(
    tmp_path: Path, release: Sample, file: str, at: int, given: int
) -> None:
    rig = Rig(tmp_path)
    ref = rig.put(release)
    key = keys.pack(release.packs[0].name) if file == "packed" else rig.key(ref, file)
    rig.store.corrupt(key, at)
    pieces = read_file(rig.store, release.manifest, release.layout, file)

    assert [next(pieces) for _ in range(given)] == [FILES[file][:CHUNK_BYTES]] * given
    with pytest.raises(CorruptBlobError):
        next(pieces)


def test_object_that_is_cut_short_is_not_given(tmp_path: Path, release: Sample) -> None:
    rig = Rig(tmp_path)
    ref = rig.put(release)
    rig.store.write(rig.key(ref, "alone"), FILES["alone"][:-1])

    with pytest.raises(CorruptBlobError, match="bytes, not"):
        read(rig, release, "alone")


def test_file_that_the_release_does_not_have_is_absent(tmp_path: Path, release: Sample) -> None:
    rig = Rig(tmp_path)
    rig.put(release)

    with pytest.raises(ReleaseAbsentError, match="`ls` lists"):
        read(rig, release, "nothing")
