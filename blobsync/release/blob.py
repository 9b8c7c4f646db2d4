"""The content of a file, and its name. Pure.

A file of up to 16 MiB is named and verified by its SHA-256. A larger one also has a BLAKE3 digest for each
chunk of 16 MiB, so that its chunks can be fetched in parallel, verified one by one, and kept when others
fail. To verify the chunks does not verify the SHA-256, so such a blob is named by the digest of its chunk
digests: no bytes can be stored under the SHA-256 of others.

A reader that verifies the SHA-256 must verify the chunk digests, too: bytes that match only the SHA-256 of a
manifest may not be those of the name, and would replace other bytes under it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from blake3 import blake3

CHUNK_BYTES = 16 << 20
"""Size of the chunks of a large blob; the last one is shorter."""

PACKED_BYTES = 4 << 20
"""Blobs up to this size are stored in packs, larger ones as objects of their own."""

_CHUNKED_PREFIX = "b3-"


@dataclass(frozen=True, slots=True)
class Blob:
    """The content of a file.

    Args:
        sha256: Of all bytes.
        size_bytes: Of all bytes.
        chunks: BLAKE3 of each chunk, in order, if there is more than one; else empty.
    """

    sha256: str
    size_bytes: int
    chunks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the object store and on disk."""
        return _CHUNKED_PREFIX + chunks_digest(self.chunks) if self.chunks else self.sha256

    @property
    def is_packed(self) -> bool:
        """True if it is stored in a pack."""
        return self.size_bytes <= PACKED_BYTES


def chunks_digest(chunks: tuple[str, ...]) -> str:
    """One BLAKE3 digest of a list of BLAKE3 digests."""
    return blake3(b"".join(bytes.fromhex(chunk) for chunk in chunks)).hexdigest()


def chunk_count(size_bytes: int) -> int:
    """How many chunk digests a blob of that size has."""
    return 0 if size_bytes <= CHUNK_BYTES else -(-size_bytes // CHUNK_BYTES)


class BlobDigest:
    """Computes the digests of a blob, piece by piece.

    Args:
        chunks: Compute the digests of chunks. False: the blob is too small to have any.
        sha256: Of the whole, if it need not be computed: chunks take a quarter of the time.
    """

    def __init__(self, *, chunks: bool = True, sha256: str | None = None) -> None:
        self._has_chunks = chunks
        self._known_sha256 = sha256
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0
        self._chunk = blake3()
        self._chunk_bytes = 0
        self._chunks: list[str] = []

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(data).cast("B")
        if self._known_sha256 is None:
            self._sha256.update(view)
        self._size_bytes += len(view)
        if not self._has_chunks:
            return
        while view:
            part = view[: CHUNK_BYTES - self._chunk_bytes]
            self._chunk.update(part)
            self._chunk_bytes += len(part)
            view = view[len(part) :]
            if self._chunk_bytes == CHUNK_BYTES:
                self._end_chunk()

    def blob(self) -> Blob:
        """The blob. `update` must not be called afterwards."""
        if self._chunk_bytes:
            self._end_chunk()
        chunks = tuple(self._chunks) if self._size_bytes > CHUNK_BYTES else ()
        return Blob(self._known_sha256 or self._sha256.hexdigest(), self._size_bytes, chunks)

    def _end_chunk(self) -> None:
        self._chunks.append(self._chunk.hexdigest())
        self._chunk, self._chunk_bytes = blake3(), 0
