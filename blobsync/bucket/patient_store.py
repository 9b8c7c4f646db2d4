"""An object store whose calls are tried again and can be stopped; publishes and collections extend it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from blobsync.bucket.ports import ObjectStore
from blobsync.errors import BlobSyncError
from blobsync.retry import RetryPolicy, call_retrying

Result = TypeVar("Result")


class StoppedError(BlobSyncError):
    """The publish or the collection was told to stop."""

    code = "stopped"


class PatientStore:
    """Thread-safe, as the store is.

    Args:
        store: The object store.
        retry: For each call.
        stopping: When set, every call ends soon.
    """

    def __init__(self, store: ObjectStore, retry: RetryPolicy, stopping: threading.Event) -> None:
        self.store, self.retry, self.stopping = store, retry, stopping

    def raise_if_stopped(self) -> None:
        """Raise `StoppedError` once `stopping` is set."""
        if self.stopping.is_set():
            raise StoppedError("told to stop")

    def call(self, call: Callable[[ObjectStore], Result], what: str) -> Result:
        """Call the store until the call succeeds, fails for good, or the retry policy's deadline passes.

        Args:
            call: Safe to repeat.
            what: For the log.

        Raises:
            StoppedError: told to stop.
            BlobSyncError: the last error of the call.
        """
        self.raise_if_stopped()
        try:
            return call_retrying(lambda: call(self.store), self.retry, what=what, stopping=self.stopping)
        except BlobSyncError:
            self.raise_if_stopped()  # then the error is that of a call that was cut short
            raise
