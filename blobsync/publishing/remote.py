"""The object store as a publish sees it: patient, stoppable, and in a dry run never written to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from blobsync.errors import BlobSyncError
from blobsync.publishing.progress import Share
from blobsync.retry import RetryPolicy, call_retrying
from blobsync.storage.ports import ObjectStore
from blobsync.storage.tombstones import condemned

Result = TypeVar("Result")


class StoppedError(BlobSyncError):
    """The publish ends; another error says why."""

    code = "publish_stopped"


class Remote:
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
        self.store, self.retry, self.stopping, self.dry_run = store, retry, stopping, dry_run
        self._condemned: frozenset[str] = frozenset()

    def going(self) -> None:
        """Go on, or not.

        Raises:
            StoppedError: the publish ends.
        """
        if self.stopping.is_set():
            raise StoppedError("the publish was stopped")

    def call(self, call: Callable[[ObjectStore], Result], what: str) -> Result:
        """Call the store until it succeeds, or the patience is over."""
        self.going()
        return call_retrying(lambda: call(self.store), self.retry, what=what, stopping=self.stopping)

    def ask_what_is_condemned(self) -> None:
        """From now on, take what a collection condemned as absent, so that it is written again.

        Raises:
            BlobSyncError: as of `ObjectStore`.
        """
        self._condemned = self.call(condemned, "read tombstones")

    def has(self, key: str, size_bytes: int) -> bool:
        """Whether an object of that size is there, and will stay."""
        if key in self._condemned:
            return False
        return self.call(lambda store: store.size(key), "size of object") == size_bytes

    def read(self, key: str, start: int, size_bytes: int) -> bytes:
        """A range of an object."""
        return self.call(
            lambda store: b"".join(store.read(key, start=start, size_bytes=size_bytes)), "read range"
        )

    def write(self, key: str, data: bytes | Path, share: Share | None = None) -> None:
        """Write an object. One that takes long is not given up while it gets further."""
        advanced = True

        def attempt(store: ObjectStore) -> None:
            sent = 0

            def going_on(size_bytes: int) -> None:
                nonlocal sent, advanced
                self.going()
                sent += size_bytes
                if share is not None and share.reached(sent):
                    advanced = True

            store.write(key, data, going_on=going_on)

        while not self.dry_run:
            advanced = False
            try:
                self.call(attempt, "write object")
            except BlobSyncError as exc:
                if not (exc.retryable and advanced):
                    raise
            else:
                return
