"""Logs of attempts in S3, in chunks named by their offset, so that they can be read while they grow.

Key: `logs/<run>/<task>.<attempt>/<offset, 16 digits>`. A chunk may overlap its successor after a retried
upload; the bytes are the same.
"""

from __future__ import annotations

from blobsync import BlobSyncError, ObjectStore
from nimbus.adapters.s3_history import StorageUnavailableError
from nimbus.domain.ids import AttemptId


class S3LogArchive:
    """See `nimbus.ports.LogArchive`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def append(self, attempt: AttemptId, offset: int, data: bytes) -> None:
        """Store one chunk."""
        try:
            self._store.write(f"{_prefix(attempt)}{offset:016d}", data)
        except BlobSyncError as exc:
            raise StorageUnavailableError(f"log of {attempt} could not be stored: {exc}") from exc

    def read(self, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read on from `offset`, across chunks, until `limit` or a gap."""
        prefix = _prefix(attempt)
        out = bytearray()
        try:
            for info in self._store.list(prefix):
                start = int(info.key.rpartition("/")[2])
                position = offset + len(out)
                if start + info.size_bytes <= position:
                    continue
                if start > position or len(out) >= limit:
                    break
                chunk = b"".join(self._store.read(info.key))
                out += chunk[position - start :]
        except BlobSyncError as exc:
            raise StorageUnavailableError(f"log of {attempt} cannot be read: {exc}") from exc
        return bytes(out[:limit])


def _prefix(attempt: AttemptId) -> str:
    return f"logs/{attempt.run}/{attempt.task}.{attempt.number}/"
