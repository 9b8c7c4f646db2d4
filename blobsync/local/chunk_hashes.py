"""The chunks of one blob that is being received: which are verified, and the SHA-256 of the whole, if wanted.

`verify` may be called on several threads. Each byte is hashed once with either digest: by one read for both
where a chunk comes in its turn, else by a second one when those before it are here.
"""

from __future__ import annotations

import hashlib
import threading

from blobsync.local.verification import hash_range, verify_chunk
from blobsync.release.blob import CHUNK_BYTES, Blob
from blobsync.storage.ports import go_on


class ChunkHashes:
    """See the module.

    Args:
        fd: The file.
        blob: What it will be; with chunks.
        also_sha256: Compute that of the whole, too.
    """

    def __init__(self, fd: int, blob: Blob, *, also_sha256: bool) -> None:
        self._fd, self._blob = fd, blob
        self._good: set[int] = set()
        self._sha256 = hashlib.sha256() if also_sha256 else None
        self._hashed_chunks = 0
        self._hashing = threading.Lock()

    @property
    def missing(self) -> list[int]:
        """Numbers of the chunks that are not verified, in order."""
        return [number for number in range(len(self._blob.chunks)) if number not in self._good]

    def range(self, number: int) -> tuple[int, int]:
        """Where a chunk begins, and its size."""
        start = number * CHUNK_BYTES
        return start, min(CHUNK_BYTES, self._blob.size_bytes - start)

    def verify(self, number: int) -> None:
        """Hash a chunk.

        Raises:
            CorruptBlobError: it has other bytes.
            OSError: the disk failed.
        """
        whole = None
        in_order = self._sha256 is not None and self._hashing.acquire(blocking=False)
        try:
            if in_order and number == self._hashed_chunks and self._sha256 is not None:
                whole = self._sha256.copy()  # the bytes may be wrong
            verify_chunk(self._fd, self._blob, number, whole)
            self._good.add(number)
            if whole is not None:
                self._sha256, self._hashed_chunks = whole, number + 1
            if in_order:
                self._hash_what_follows()
        finally:
            if in_order:
                self._hashing.release()

    def finish(self) -> str | None:
        """Verify what was not yet, and say the SHA-256 of the whole, if it was wanted.

        Raises:
            CorruptBlobError, OSError: as of `verify`.
        """
        for number in self.missing:
            self.verify(number)
        with self._hashing:
            self._hash_what_follows()
        return None if self._sha256 is None else self._sha256.hexdigest()

    def _hash_what_follows(self) -> None:
        """Feed the SHA-256 of the whole with the good chunks that are next. Our caller has the lock."""
        while self._sha256 is not None and self._hashed_chunks in self._good:
            hash_range(self._fd, *self.range(self._hashed_chunks), go_on, self._sha256)
            self._hashed_chunks += 1
