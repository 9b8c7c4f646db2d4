"""The object store of a collection: refuses a listing that is visibly incomplete."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from blobsync.bucket import keys
from blobsync.bucket.leases import store_time
from blobsync.bucket.ports import ObjectInfo, ObjectStore, PatientStore
from blobsync.collection.inventory import Inventory, Kind, inventory
from blobsync.errors import BlobNotFoundError, GcRefusedError, StoppedError
from blobsync.progress import Phase, Progress
from blobsync.retry import RetryPolicy

_TOLD_EVERY = 1000


class CollectionStore(PatientStore):
    """Thread-safe, as the store is; but only the collection's thread lists and reports progress.

    Args:
        store: The bucket.
        retry: For each call.
        stopping: When set, every call ends soon.
        progress: Called with the progress of each phase.
        clock_s: Never set back; counts sleep of the host.
        may_delete: Called before each request that deletes.
    """

    def __init__(
        self,
        store: ObjectStore,
        retry: RetryPolicy,
        stopping: threading.Event,
        progress: Callable[[Progress], None] | None,
        clock_s: Callable[[], float],
        may_delete: Callable[[], bool],
    ) -> None:
        super().__init__(store, retry, stopping)
        self.clock_s, self._progress, self._may_delete = clock_s, progress, may_delete

    def raise_unless_may_delete(self) -> None:
        """Raise `StoppedError` if `stopping` is set or `may_delete` returns False."""
        self.raise_if_stopped()
        if not self._may_delete():
            raise StoppedError("the collection may not delete any more")

    def tell(self, phase: Phase, done: int, total: int = 0) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(Progress(phase, done, total))

    def list_all(self, began: datetime, on_progress: Callable[[], None]) -> Inventory:
        """List all objects. Checks that no old object follows the last one, and that no manifest is missing.

        Args:
            began: A time before the call, by the store's clock.
            on_progress: Called repeatedly meanwhile; its exceptions pass through.

        Raises:
            GcRefusedError: the listing is not complete.
            BlobSyncError: as of `ObjectStore.list`.
        """
        last: str | None = None

        def watched(store: ObjectStore) -> Iterator[ObjectInfo]:
            nonlocal last
            count, last = 0, None
            for info in store.list(""):
                if count % _TOLD_EVERY == 0:
                    self.raise_if_stopped()
                    on_progress()
                    self.tell(Phase.LISTING, count)
                count, last = count + 1, info.key
                yield info
            self.tell(Phase.LISTING, count, count)

        found = self.call(lambda store: inventory(watched(store)), "list everything")
        self._refuse_early_end(last, began)
        told = {
            keys.manifest(item.ref.name, item.ref.digest) for item in found.of_kind(Kind.HISTORY) if item.ref
        }
        self.missing(found, told, began)
        return found

    def missing(self, found: Inventory, needed: Iterable[str], began: datetime) -> list[str]:
        """The keys of `needed` that are not in the store.

        Args:
            found: A listing.
            needed: Keys that must be in the listing, or be newer than it.
            began: A time before the listing, by the store's clock.

        Raises:
            GcRefusedError: an object is older than the listing and is not in it, so it is not complete.
            BlobSyncError: as of `ObjectStore`.
        """
        absent = []
        for key in sorted(set(needed) - found.objects.keys()):
            written = self.written(key)
            if written is None:
                absent.append(key)
            elif written < began:
                raise GcRefusedError(
                    f"{key} is in the store, and the listing lacks it; nothing was deleted. Find out with "
                    f"`probe` what the server does"
                )
        return absent

    def written(self, key: str) -> datetime | None:
        """When an object was written; None: it does not exist."""

        def ask(store: ObjectStore) -> datetime | None:
            try:
                return store_time(store, key)
            except BlobNotFoundError:
                return None

        return self.call(ask, "look for object")

    def _refuse_early_end(self, last: str | None, began: datetime) -> None:
        """List on from the last key: there must be no object that is older than the listing."""
        behind = self.call(lambda store: next(iter(store.list("", last)), None), "list on")
        if behind is not None and behind.modified < began:
            raise GcRefusedError(
                f"the listing ended after {last!r}, but {behind.key[:200]!r} comes behind; nothing was "
                f"deleted. Find out with `probe` what the server does"
            )
