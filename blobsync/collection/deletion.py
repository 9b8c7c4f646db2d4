"""Deleting what was found to be due, in batches, with the lease held.

Manifests go first, and only then what they need, so that whatever is visible is whole. Where a manifest
cannot be deleted, what its release needs stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from blobsync.collection.access import Access
from blobsync.collection.inventory import Found, Kind, Tally
from blobsync.collection.lease import CollectLease
from blobsync.collection.progress import CollectionPhase
from blobsync.collection.reach import Reach
from blobsync.errors import BlobSyncError, GcRefusedError
from blobsync.log import Log

BATCH = 500
MAX_FAILURES_IN_A_ROW = 20
"""After so many the store takes no deletes at all: the rest waits for the next run."""
HOLD_S = 60.0
"""No new batch is begun after so long, so that publishes need not wait for long."""

_log = Log(__name__)


class Deletion:
    """What a run has deleted so far.

    Args:
        access: The store.
        reach: Says what a release needs whose manifest could not be deleted.
    """

    def __init__(self, access: Access, reach: Reach) -> None:
        self._access, self._reach = access, reach
        self.deleted: dict[Kind, Tally] = defaultdict(Tally)
        self.failed: dict[str, str] = {}
        self._in_a_row = 0

    @property
    def total(self) -> Tally:
        """Of all that was deleted, leases left out."""
        data = [tally for kind, tally in self.deleted.items() if kind is not Kind.LEASE]
        return Tally(sum(tally.count for tally in data), sum(tally.size_bytes for tally in data))

    def delete(self, due: Sequence[Found], lease: CollectLease) -> bool:
        """Delete, as far as the time goes.

        Args:
            due: In the order of their kinds.
            lease: Held.

        Returns:
            Whether everything was tried.

        Raises:
            StoppedError: told to stop, or not allowed to delete any more.
            CollectLapsedError: the lease was lost.
            BlobSyncError: the store takes no deletes.
        """
        # What failed in this run is not tried again in it.
        stuck = [item for item in due if item.kind is Kind.RELEASE and item.info.key in self.failed]
        due = [item for item in due if item.info.key not in self.failed]
        began_s = self._access.clock_s()
        done = 0
        for kind, items in groupby(due, key=lambda item: item.kind):
            left = iter(self._unneeded(list(items), stuck))
            while batch := list(islice(left, BATCH)):
                if done and self._access.clock_s() - began_s > HOLD_S:
                    return False
                failed = self._batch(batch, lease)
                if kind is Kind.RELEASE:
                    stuck += failed
                done += len(batch)
                self._access.tell(CollectionPhase.DELETING, done, len(due))
        return True

    def _unneeded(self, items: list[Found], stuck: list[Found]) -> list[Found]:
        """Leave out what releases need whose manifests could not be deleted."""
        if not stuck or items[0].kind in {Kind.RELEASE, Kind.LEASE}:
            return items
        refs = {item.ref for item in stuck if item.ref is not None}
        try:
            spared = frozenset[str]().union(*map(self._reach.of, refs))
        except GcRefusedError as exc:
            _log.warning("collection_left_objects", why=str(exc))
            return []
        return [item for item in items if item.info.key not in spared and item.ref not in refs]

    def _batch(self, batch: list[Found], lease: CollectLease) -> list[Found]:
        """Delete some. Gives those that could not be."""
        lease.keep()
        self._access.deleting()
        keys = [item.info.key for item in batch]
        try:
            self._access.store.delete_many(keys)
        except BlobSyncError as exc:
            _log.warning("collection_deletes_one_by_one", objects=len(keys), error=str(exc))
            return list(self._one_by_one(batch, lease))
        self._in_a_row = 0
        for item in batch:
            self._deleted(item)
        return []

    def _one_by_one(self, batch: list[Found], lease: CollectLease) -> Iterator[Found]:
        for item in batch:
            lease.keep()
            self._access.deleting()
            try:
                self._access.store.delete(item.info.key)
            except BlobSyncError as exc:
                self.failed[item.info.key] = str(exc)
                self._in_a_row += 1
                if self._in_a_row >= MAX_FAILURES_IN_A_ROW:
                    raise
                yield item
            else:
                self._in_a_row = 0
                self._deleted(item)

    def _deleted(self, item: Found) -> None:
        self.failed.pop(item.info.key, None)
        self.deleted[item.kind] = self.deleted[item.kind].plus(item.info.size_bytes)
