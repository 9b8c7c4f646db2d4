"""The object store as a collection sees it: patient, and stoppable."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TypeVar

from blobsync.collection.inventory import Inventory, inventory
from blobsync.collection.progress import CollectionPhase, CollectionProgress
from blobsync.errors import BlobNotFoundError, BlobSyncError, GcRefusedError
from blobsync.retry import RetryPolicy, call_retrying
from blobsync.storage.leases import store_time
from blobsync.storage.ports import ObjectInfo, ObjectStore

Result = TypeVar("Result")
_TOLD_EVERY = 1000


class StoppedError(BlobSyncError):
    """The collection was told to stop."""

    code = "collection_stopped"


class Access:
    """Thread-safe, as the store is; but `look` and `tell` are the collection's own thread's.

    Args:
        store: Where.
        retry: For each call.
        stopping: When set, every call ends soon.
        progress: Told how far it is.
        clock_s: Never set back; counts sleep of the host.
        may_delete: Asked before each request that deletes.
    """

    def __init__(
        self,
        store: ObjectStore,
        retry: RetryPolicy,
        stopping: threading.Event,
        progress: Callable[[CollectionProgress], None] | None,
        clock_s: Callable[[], float],
        may_delete: Callable[[], bool] = lambda: True,
    ) -> None:
        self.store, self.stopping, self.clock_s = store, stopping, clock_s
        self._retry, self._progress, self._may_delete = retry, progress, may_delete

    def going(self) -> None:
        """Go on, or not.

        Raises:
            StoppedError: told to stop.
        """
        if self.stopping.is_set():
            raise StoppedError("the collection was told to stop")

    def deleting(self) -> None:
        """Delete now, or not.

        Raises:
            StoppedError: told to stop, or not allowed any more.
        """
        self.going()
        if not self._may_delete():
            raise StoppedError("the collection may not delete any more")

    def call(self, call: Callable[[ObjectStore], Result], what: str) -> Result:
        """Call the store until it succeeds, or the patience is over.

        Raises:
            StoppedError: told to stop.
            BlobSyncError: as of the call.
        """
        self.going()
        try:
            return call_retrying(lambda: call(self.store), self._retry, what=what, stopping=self.stopping)
        except BlobSyncError:
            self.going()
            raise

    def tell(self, phase: CollectionPhase, done: int, total: int = 0) -> None:
        """Say how far it is."""
        if self._progress is not None:
            self._progress(CollectionProgress(phase, done, total))

    def look(self, began: datetime, going: Callable[[], None]) -> Inventory:
        """List everything.

        Args:
            began: A moment before the call, by the store's clock.
            going: Called again and again meanwhile; what it raises passes through.

        Raises:
            GcRefusedError: the listing is not complete, as far as can be seen.
            BlobSyncError: as of `ObjectStore.list`.
        """
        last: str | None = None

        def watched(store: ObjectStore) -> Iterator[ObjectInfo]:
            nonlocal last
            count, last = 0, None
            for info in store.list(""):
                if count % _TOLD_EVERY == 0:
                    self.going()
                    going()
                    self.tell(CollectionPhase.LISTING, count)
                count, last = count + 1, info.key
                yield info
            self.tell(CollectionPhase.LISTING, count, count)

        found = self.call(lambda store: inventory(watched(store)), "list everything")
        self._refuse_early_end(last, began)
        return found

    def _refuse_early_end(self, last: str | None, began: datetime) -> None:
        """Ask for what comes after the last key: there must be nothing that was there before."""
        behind = self.call(lambda store: next(iter(store.list("", last)), None), "list on")
        if behind is not None and behind.modified < began:
            raise GcRefusedError(
                f"the listing ended after {last!r}, but {behind.key[:200]!r} comes behind; nothing was "
                f"deleted. Find out with `probe` what the server does"
            )

    def written(self, key: str) -> datetime | None:
        """When an object was written; None: it is not there."""

        def ask(store: ObjectStore) -> datetime | None:
            try:
                return store_time(store, key)
            except BlobNotFoundError:
                return None

        return self.call(ask, "look for object")


def boottime_s() -> float:
    """Seconds since the host started, sleep included; nobody sets this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
