"""Laws of digests of blobs: the digest does not depend on how the bytes are split."""

from __future__ import annotations

import hashlib
import random

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from blobsync.publishing.hashing import BlobDigest
from blobsync.release.manifest import CHUNK_BYTES, PACKED_BYTES, Blob, chunk_count, chunks_digest
from tests.thorough import examples

BYTES = random.Random(4).randbytes(2 * CHUNK_BYTES + 7)
"""Two whole chunks and a short one."""

sizes = st.sampled_from([0, 1, PACKED_BYTES, PACKED_BYTES + 1, len(BYTES)]) | st.integers(-2, 2).flatmap(
    lambda by: st.sampled_from([CHUNK_BYTES + by, 2 * CHUNK_BYTES + by])
)


@settings(max_examples=examples(15), deadline=None)
@given(size_bytes=sizes, seed=st.integers(0, 1000), cut_count=st.integers(0, 30))
def test_digest_is_that_of_hashlib_and_blake3_in_whatever_parts_the_bytes_come(
    size_bytes: int, seed: int, cut_count: int
) -> None:
    data = memoryview(BYTES)[:size_bytes]
    chance = random.Random(seed)
    cuts = sorted(chance.randint(0, size_bytes) for _ in range(cut_count))

    digest = BlobDigest()
    for start, end in zip([0, *cuts], [*cuts, size_bytes], strict=True):
        digest.update(data[start:end])
    blob = digest.blob()

    assert blob.sha256 == hashlib.sha256(data).hexdigest()
    assert blob.size_bytes == size_bytes
    chunks = [data[start : start + CHUNK_BYTES] for start in range(0, size_bytes, CHUNK_BYTES)]
    wanted = tuple(blake3(chunk).hexdigest() for chunk in chunks) if size_bytes > CHUNK_BYTES else ()
    assert blob.chunks == wanted
    assert len(blob.chunks) == chunk_count(size_bytes)


def test_byte_by_byte_over_the_end_of_a_chunk() -> None:
    digest = BlobDigest()
    digest.update(BYTES[: CHUNK_BYTES - 2])
    for at in range(CHUNK_BYTES - 2, CHUNK_BYTES + 3):
        digest.update(bytearray(BYTES[at : at + 1]))

    first, second = BYTES[:CHUNK_BYTES], BYTES[CHUNK_BYTES : CHUNK_BYTES + 3]
    assert digest.blob().chunks == (blake3(first).hexdigest(), blake3(second).hexdigest())


def test_view_of_larger_items_counts_bytes() -> None:
    digest = BlobDigest()
    digest.update(memoryview(bytes(8)).cast("I"))

    assert digest.blob() == Blob(hashlib.sha256(bytes(8)).hexdigest(), 8)


def test_chunked_blob_does_not_bear_a_sha256_as_its_name() -> None:
    blob = Blob("ab" * 32, CHUNK_BYTES + 1, ("01" * 32, "23" * 32))

    assert blob.name == "b3-" + blake3(bytes.fromhex("01" * 32 + "23" * 32)).hexdigest()
    assert Blob("ab" * 32, CHUNK_BYTES).name == "ab" * 32


@pytest.mark.parametrize(
    "chunks",
    [("23" * 32, "01" * 32), ("01" * 32,), ("01" * 32, "23" * 32, "23" * 32), ("01" * 32, "24" * 32)],
)
def test_other_chunks_have_another_name(chunks: tuple[str, ...]) -> None:
    assert chunks_digest(chunks) != chunks_digest(("01" * 32, "23" * 32))


@pytest.mark.parametrize(
    ("size_bytes", "count"),
    [(0, 0), (CHUNK_BYTES, 0), (CHUNK_BYTES + 1, 2), (2 * CHUNK_BYTES, 2), (2 * CHUNK_BYTES + 1, 3)],
)
def test_blob_above_one_chunk_has_a_digest_for_each(size_bytes: int, count: int) -> None:
    assert chunk_count(size_bytes) == count
