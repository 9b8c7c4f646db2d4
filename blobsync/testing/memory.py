"""An object store in memory that fails on demand, for tests of this package and of its users.

It passes the same contract suite as the real stores.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from blobsync.bucket.ports import (
    PIECE_BYTES,
    ObjectInfo,
    OnProgress,
    UnfinishedUpload,
    checked_key,
    checked_range,
    ignore_progress,
)
from blobsync.errors import BlobNotFoundError, BlobSyncError, BucketUnavailableError, LocalStoreError


@dataclass(slots=True)
class _Fault:
    error: BlobSyncError | None = None
    corrupt_at: int | None = None
    cut_at: int | None = None
    pause_s: float = 0.0
    healed: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    modified: datetime


class MemoryObjectStore:
    """See `blobsync.bucket.ports.ObjectStore`. Thread-safe.

    Faults. `heal(key)` ends those of a key, except `lose`:
        `unavailable`: while True, every call raises `BucketUnavailableError`. Set it to False to end it.
        `fail(key, error)`: calls for this key raise `error`.
        `corrupt(key, at)`: reads of this key return a wrong byte at that offset.
        `truncate(key, size_bytes)`: reads break off there, as when a connection is lost.
        `slow(key, pause)`: each chunk of a read comes only after a pause.
        `lose(key)`: the object is removed. Write it again to restore it.
        `plant(key)`: an object comes under a key that `write` refuses.

    Args:
        multipart_bytes: If `on_progress` stops a `write` above this size, an unfinished upload is left;
            default 64 MiB.
        now: The clock for the dates of objects; aware, UTC.

    Attributes:
        reads: Number of reads and copies of each key; each range counts.
        read_bytes: Number of bytes of each key that were returned.
        writes: Keys in the order in which they were written.
        deletes: Keys in the order in which they were deleted, also missing ones.
    """

    def __init__(
        self, *, multipart_bytes: int = 64 << 20, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.unavailable = False
        self.reads: Counter[str] = Counter()
        self.read_bytes: Counter[str] = Counter()
        self.writes: list[str] = []
        self.deletes: list[str] = []
        self._multipart_bytes = multipart_bytes
        self._now = now
        self._lock = threading.Lock()
        self._objects: dict[str, _Stored] = {}
        self._uploads: dict[str, datetime] = {}
        self._faults: dict[str, _Fault] = {}

    def fail(self, key: str, error: BlobSyncError) -> None:
        """Make calls for `key` raise `error`."""
        self._fault(key).error = error

    def corrupt(self, key: str, at: int = 0) -> None:
        """Make reads of `key` return a wrong byte at offset `at`."""
        self._fault(key).corrupt_at = at

    def truncate(self, key: str, size_bytes: int) -> None:
        """Make reads of `key` break off after `size_bytes` of the object."""
        self._fault(key).cut_at = size_bytes

    def slow(self, key: str, pause: timedelta) -> None:
        """Make each chunk of `key` come only after `pause`; `heal` ends a pause at once."""
        self._fault(key).pause_s = pause.total_seconds()

    def plant(self, key: str, data: bytes = b"") -> None:
        """Store an object under any key, as other programs do: consoles make a "folder" of `name/`."""
        with self._lock:
            self._objects[key] = _Stored(data, self._now())

    def lose(self, key: str) -> None:
        """Remove the object."""
        with self._lock:
            self._objects.pop(key, None)

    def heal(self, key: str) -> None:
        """End all faults of `key`. A lost object is not restored."""
        with self._lock:
            fault = self._faults.pop(key, None)
        if fault is not None:
            fault.healed.set()

    def check(self) -> None:
        """See `blobsync.bucket.ports.ObjectStore.check`."""
        self._may(None)

    def close(self) -> None:
        """See `blobsync.bucket.ports.ObjectStore.close`. There is nothing to close."""

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """See `blobsync.bucket.ports.ObjectStore.read`."""
        for _, piece in self._pieces(key, start, size_bytes):
            yield piece

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, on_progress: OnProgress) -> None:
        """See `blobsync.bucket.ports.ObjectStore.copy`."""
        got = 0
        for offset, piece in self._pieces(key, start, size_bytes):
            try:
                os.pwrite(fd, piece, offset)
            except OSError as exc:
                raise LocalStoreError(f"memory:{key} cannot be written to its file: {exc}") from exc
            got += len(piece)
            on_progress(len(piece))
        if got != size_bytes:
            raise BucketUnavailableError(f"memory:{key} has {got} of {size_bytes} bytes from {start} on")

    def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
        """See `blobsync.bucket.ports.ObjectStore.write`."""
        self._may(key)
        try:
            content = data if isinstance(data, bytes) else data.read_bytes()
        except OSError as exc:
            raise LocalStoreError(f"{data!r} cannot be read for memory:{key}: {exc}") from exc
        if len(content) > self._multipart_bytes:
            with self._lock:
                self._uploads.setdefault(key, self._now())
        for offset in range(0, len(content), PIECE_BYTES):
            on_progress(min(PIECE_BYTES, len(content) - offset))
        with self._lock:
            self._uploads.pop(key, None)
            self._objects[key] = _Stored(content, self._now())
            self.writes.append(key)

    def size(self, key: str) -> int | None:
        """See `blobsync.bucket.ports.ObjectStore.size`."""
        self._may(key)
        with self._lock:
            return len(self._objects[key].data) if key in self._objects else None

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """See `blobsync.bucket.ports.ObjectStore.list`."""
        self._may(None)
        with self._lock:
            objects = [
                ObjectInfo(key, len(kept.data), kept.modified)
                for key, kept in self._objects.items()
                if key.startswith(prefix)
            ]
        ordered = sorted(objects, key=lambda info: info.key.encode())
        yield from (
            info for info in ordered if start_after is None or info.key.encode() > start_after.encode()
        )

    def delete(self, key: str) -> None:
        """See `blobsync.bucket.ports.ObjectStore.delete`."""
        self._may(key)
        self.lose(key)
        with self._lock:
            self.deletes.append(key)

    def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
        """See `blobsync.bucket.ports.ObjectStore.delete_many`."""
        checked = [checked_key(key) for key in keys]
        if checked and before_each is not None:
            before_each()
        for key in checked:
            self.delete(key)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """See `blobsync.bucket.ports.ObjectStore.unfinished_uploads`."""
        self._may(None)
        with self._lock:
            uploads = [(key, begun) for key, begun in self._uploads.items() if key.startswith(prefix)]
        now = self._now()
        yield from (UnfinishedUpload(key, key, now - begun) for key, begun in uploads)

    def abandon_uploads(self, prefix: str, older_than: timedelta) -> int:
        """See `blobsync.bucket.ports.ObjectStore.abandon_uploads`."""
        old = [upload.key for upload in self.unfinished_uploads(prefix) if upload.age >= older_than]
        with self._lock:
            return sum(self._uploads.pop(key, None) is not None for key in old)

    def _pieces(self, key: str, start: int, size_bytes: int | None) -> Iterator[tuple[int, bytes]]:
        """Each piece with its offset. The faults of the key take effect here."""
        checked_range(start, size_bytes)
        self._may(key)
        if size_bytes == 0:
            return
        with self._lock:
            self.reads[key] += 1
            if key not in self._objects:
                raise BlobNotFoundError(f"memory:{key}")
            data, fault = self._objects[key].data, self._faults.get(key, _Fault())
        end = len(data) if size_bytes is None else min(len(data), start + size_bytes)
        cut = end if fault.cut_at is None else min(end, fault.cut_at)
        for offset in range(start, cut, PIECE_BYTES):
            if fault.pause_s:
                fault.healed.wait(fault.pause_s)
            if self.unavailable:
                raise BucketUnavailableError(f"memory:{key} broke off; this was asked for by a test")
            piece = _damaged(data[offset : min(offset + PIECE_BYTES, cut)], offset, fault.corrupt_at)
            with self._lock:
                self.read_bytes[key] += len(piece)
            yield offset, piece
        if cut < end:
            raise BucketUnavailableError(f"memory:{key} broke off after {cut} of {len(data)} bytes")

    def _fault(self, key: str) -> _Fault:
        with self._lock:
            return self._faults.setdefault(key, _Fault())

    def _may(self, key: str | None) -> None:
        if key is not None:
            checked_key(key)
        if self.unavailable:
            raise BucketUnavailableError("the store in memory is unavailable; this was asked for by a test")
        with self._lock:
            fault = self._faults.get(key) if key is not None else None
        if fault is not None and fault.error is not None:
            raise fault.error


def _damaged(piece: bytes, offset: int, corrupt_at: int | None) -> bytes:
    if corrupt_at is None or not offset <= corrupt_at < offset + len(piece):
        return piece
    at = corrupt_at - offset
    return piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]
