"""The object store as a publish uses it: what is condemned counts as absent, and a dry run writes nothing."""

from __future__ import annotations

import threading
from pathlib import Path

from blobsync.bucket.ports import ObjectStore, PatientStore
from blobsync.bucket.tombstones import condemned
from blobsync.errors import BlobSyncError
from blobsync.progress import Share
from blobsync.retry import RetryPolicy


class PublishStore(PatientStore):
    """Thread-safe, as the store is.

    Args:
        store: Where to.
        retry: For each call.
        stopping: When set, every call ends soon.
        dry_run: Leave out what would be written.
    """

    def __init__(
        self, store: ObjectStore, retry: RetryPolicy, stopping: threading.Event, *, dry_run: bool
    ) -> None:
        super().__init__(store, retry, stopping)
        self.dry_run = dry_run
        self._condemned: frozenset[str] = frozenset()

    def read_condemned(self) -> None:
        """From now on, treat what a collection condemned as absent, so that it is written again.

        Raises:
            BlobSyncError: as of `ObjectStore`.
        """
        self._condemned = self.call(condemned, "read tombstones")

    def has(self, key: str, size_bytes: int) -> bool:
        """True if an object of that size is there and no collection has condemned it."""
        if key in self._condemned:
            return False
        return self.call(lambda store: store.size(key), "size of object") == size_bytes

    def read(self, key: str, start: int, size_bytes: int) -> bytes:
        """A range of an object."""
        return self.call(
            lambda store: b"".join(store.read(key, start=start, size_bytes=size_bytes)), "read range"
        )

    def write(self, key: str, data: bytes | Path, share: Share | None = None) -> None:
        """Write an object. The deadline starts again whenever a try sends more than all tries before it."""
        advanced = True

        def attempt(store: ObjectStore) -> None:
            sent = 0

            def on_progress(size_bytes: int) -> None:
                nonlocal sent, advanced
                self.raise_if_stopped()
                sent += size_bytes
                if share is not None and share.reached(sent):
                    advanced = True

            store.write(key, data, on_progress=on_progress)

        while not self.dry_run:
            advanced = False
            try:
                self.call(attempt, "write object")
            except BlobSyncError as exc:
                if not (exc.retryable and advanced):
                    raise
            else:
                return
