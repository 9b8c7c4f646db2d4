"""A store in memory that fails on demand: for tests of this package and of those who use it.

It passes the same contract suite as the real ones.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from blobsync.errors import BlobNotFoundError, BlobSyncError, StoreUnavailableError
from blobsync.storage.ports import CHUNK_BYTES, ObjectInfo, checked_key


class MemoryObjectStore:
    """See `blobsync.storage.ports.ObjectStore`. Thread-safe.

    Failures, each in force until taken back:
        `unavailable`: set it, and every call raises `StoreUnavailableError`.
        `fail(key, error)`: calls for this key raise `error`.
        `corrupt(key)`: reads of this key give wrong bytes of the right length.
        `truncate(key, size_bytes)`: reads break off there, as a dropped connection does.
        `lose(key)`: the object is gone.

    Attributes:
        reads: How often each key was read.
        writes: Keys in the order in which they were written.
    """

    def __init__(self) -> None:
        self.unavailable = False
        self.reads: Counter[str] = Counter()
        self.writes: list[str] = []
        self._lock = threading.Lock()
        self._objects: dict[str, bytes] = {}
        self._errors: dict[str, BlobSyncError] = {}
        self._corrupt: set[str] = set()
        self._cut: dict[str, int] = {}

    def fail(self, key: str, error: BlobSyncError) -> None:
        """Let calls for `key` raise `error`."""
        with self._lock:
            self._errors[key] = error

    def corrupt(self, key: str) -> None:
        """Let reads of `key` give wrong bytes."""
        with self._lock:
            self._corrupt.add(key)

    def truncate(self, key: str, size_bytes: int) -> None:
        """Let reads of `key` break off after `size_bytes`."""
        with self._lock:
            self._cut[key] = size_bytes

    def lose(self, key: str) -> None:
        """Forget the object."""
        with self._lock:
            self._objects.pop(key, None)

    def heal(self, key: str) -> None:
        """Take back what was done to `key`, except losing it."""
        with self._lock:
            self._errors.pop(key, None)
            self._corrupt.discard(key)
            self._cut.pop(key, None)

    def read(self, key: str) -> Iterator[bytes]:
        """See `blobsync.storage.ports.ObjectStore.read`."""
        self._may(key)
        with self._lock:
            self.reads[key] += 1
            if key not in self._objects:
                raise BlobNotFoundError(f"memory:{key}")
            data, cut, corrupt = self._objects[key], self._cut.get(key), key in self._corrupt
        if corrupt:
            data = bytes([data[0] ^ 1]) + data[1:] if data else b"?"
        end = len(data) if cut is None else cut
        for start in range(0, end, CHUNK_BYTES):
            if self.unavailable:
                raise StoreUnavailableError(f"memory:{key} broke off; this was asked for by a test")
            yield data[start : min(start + CHUNK_BYTES, end)]
        if end < len(data):
            raise StoreUnavailableError(f"memory:{key} broke off after {end} of {len(data)} bytes")

    def write(self, key: str, data: bytes | Path) -> None:
        """See `blobsync.storage.ports.ObjectStore.write`."""
        self._may(key)
        content = data if isinstance(data, bytes) else data.read_bytes()
        with self._lock:
            self._objects[key] = content
            self.writes.append(key)

    def size(self, key: str) -> int | None:
        """See `blobsync.storage.ports.ObjectStore.size`."""
        self._may(key)
        with self._lock:
            return len(self._objects[key]) if key in self._objects else None

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """See `blobsync.storage.ports.ObjectStore.list`."""
        self._may(None)
        with self._lock:
            found = [
                ObjectInfo(key, len(data)) for key, data in self._objects.items() if key.startswith(prefix)
            ]
        ordered = sorted(found, key=lambda info: info.key.encode())
        yield from (
            info for info in ordered if start_after is None or info.key.encode() > start_after.encode()
        )

    def delete(self, key: str) -> None:
        """See `blobsync.storage.ports.ObjectStore.delete`."""
        self._may(key)
        self.lose(key)

    def _may(self, key: str | None) -> None:
        if key is not None:
            checked_key(key)
        if self.unavailable:
            raise StoreUnavailableError("the store in memory is unavailable; this was asked for by a test")
        with self._lock:
            error = self._errors.get(key) if key is not None else None
        if error is not None:
            raise error
