"""The distinct bytes of files, and what names them. Pure.

A file of up to 16 MiB is named and verified by its SHA-256. A larger one has a BLAKE3 digest for each
chunk of 16 MiB too, so that its chunks can be fetched side by side, verified one by one, and kept when the
rest fails. Whoever verified the chunks has not computed the SHA-256, so such a blob bears the digest of its
chunk digests as its name: nobody can pass bytes off under a SHA-256 that is not theirs.

Nor can whoever wants SHA-256 leave the chunk digests out: that bytes have the SHA-256 of a manifest does not
show that they are those of the name, and kept under it they would take the place of other bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from blake3 import blake3

CHUNK_BYTES = 16 << 20
"""Size of the chunks of a large blob; the last one is shorter."""

PACKED_BYTES = 4 << 20
"""Blobs up to this size travel in packs, larger ones alone."""

_CHUNKED_PREFIX = "b3-"


@dataclass(frozen=True, slots=True)
class Blob:
    """Some file's bytes.

    Args:
        sha256: Of all bytes.
        size_bytes: How many they are.
        chunks: BLAKE3 of each chunk, in order, if there is more than one; else empty.
    """

    sha256: str
    size_bytes: int
    chunks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called in the object store and on disk."""
        return _CHUNKED_PREFIX + chunks_digest(self.chunks) if self.chunks else self.sha256

    @property
    def is_packed(self) -> bool:
        """Whether it travels in a pack."""
        return self.size_bytes <= PACKED_BYTES


def chunks_digest(chunks: tuple[str, ...]) -> str:
    """One BLAKE3 digest for a list of them."""
    return blake3(b"".join(bytes.fromhex(chunk) for chunk in chunks)).hexdigest()


def chunk_count(size_bytes: int) -> int:
    """How many chunk digests a blob of that size has."""
    return 0 if size_bytes <= CHUNK_BYTES else -(-size_bytes // CHUNK_BYTES)


class BlobDigest:
    """Takes bytes as they come and says which blob they are.

    Args:
        chunks: Compute the digests of chunks. False: the blob is small enough to have none.
        sha256: That of the whole, if it need not be computed: chunks take a quarter of the time.
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
        """What it was. Nothing may be added afterwards."""
        if self._chunk_bytes:
            self._end_chunk()
        chunks = tuple(self._chunks) if self._size_bytes > CHUNK_BYTES else ()
        return Blob(self._known_sha256 or self._sha256.hexdigest(), self._size_bytes, chunks)

    def _end_chunk(self) -> None:
        self._chunks.append(self._chunk.hexdigest())
        self._chunk, self._chunk_bytes = blake3(), 0
