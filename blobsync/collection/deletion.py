"""Deletes the objects that are due, in batches, while a lease keeps publishes away.

Manifests are deleted first, then the objects of their releases, so that each visible release is complete. If
a manifest cannot be deleted, the objects of its release stay.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby, islice

from blobsync.bucket import keys
from blobsync.bucket.leases import BucketLease, Lease
from blobsync.collection.inventory import CollectionStore, Found, Kind, Tally
from blobsync.collection.reach import Reach
from blobsync.errors import BlobSyncError, CollectLapsedError, GcRefusedError, StoppedError
from blobsync.log import LazyLog
from blobsync.progress import WorkPhase

TTL = timedelta(minutes=10)
BATCH = 500
MAX_FAILURES_IN_A_ROW = 20
"""Then the store seems to refuse all deletes, and the rest waits for the next run."""
HOLD_S = 60.0
"""Then no new batch begins, so that publishes do not wait for long."""

_log = LazyLog(__name__)


def collect_lease(store: CollectionStore) -> BucketLease:
    """The lease of a collection that deletes. No thread renews it: call `keep` before each step."""
    holder = f"{socket.gethostname()} {os.getpid()}"
    lease = Lease("collection", holder, datetime.now(UTC), TTL)
    return BucketLease(store, keys.collect_lease(uuid.uuid4().hex), lease, _lapsed, store.clock_s)


def _lapsed(gap_s: float) -> CollectLapsedError:
    return CollectLapsedError(
        f"the collection could not renew its lease for {gap_s:.0f} s, so a publish may have begun; "
        f"nothing more was deleted. The next run continues"
    )


class Deletion:
    """Deletes objects, and counts them."""

    def __init__(self, store: CollectionStore, reach: Reach) -> None:
        self._store, self._reach = store, reach
        self.deleted: dict[Kind, Tally] = defaultdict(Tally)
        self.failed: dict[str, str] = {}
        self._in_a_row = 0

    @property
    def total(self) -> Tally:
        """Tally of all deleted objects, without leases."""
        data = [tally for kind, tally in self.deleted.items() if kind is not Kind.LEASE]
        return Tally(sum(tally.count for tally in data), sum(tally.size_bytes for tally in data))

    def delete(self, due: Sequence[Found], lease: BucketLease) -> bool:
        """Delete until all objects were tried, or `HOLD_S` has passed. True if all were tried.

        `due` is in the order of kinds. CollectLapsedError if the lease was lost; StoppedError: see
        `CollectionStore.raise_unless_may_delete`.
        """
        # An object that could not be deleted is not tried again in this run.
        stuck = [item for item in due if item.kind is Kind.RELEASE and item.info.key in self.failed]
        due = [item for item in due if item.info.key not in self.failed]
        began_s = self._store.clock_s()
        done = 0
        for kind, items in groupby(due, key=lambda item: item.kind):
            left = iter(self._unneeded(list(items), stuck))
            while batch := list(islice(left, BATCH)):
                if done and self._store.clock_s() - began_s > HOLD_S:
                    return False
                failed = self._batch(batch, lease)
                if kind is Kind.RELEASE:
                    stuck += failed
                done += len(batch)
                self._store.tell(WorkPhase.DELETING, done, len(due))
        return True

    def _unneeded(self, items: list[Found], stuck: list[Found]) -> list[Found]:
        """Leave out the objects of releases whose manifests could not be deleted."""
        if not stuck or items[0].kind in {Kind.RELEASE, Kind.LEASE}:
            return items
        refs = {item.ref for item in stuck if item.ref is not None}
        try:
            spared = frozenset[str]().union(*map(self._reach.of, refs))
        except GcRefusedError as exc:
            _log.warning("collection_left_objects", why=str(exc))
            return []
        return [item for item in items if item.info.key not in spared and item.ref not in refs]

    def _batch(self, batch: list[Found], lease: BucketLease) -> list[Found]:
        """Delete a batch. Returns the objects that could not be deleted."""
        due = [item.info.key for item in batch]
        try:
            self._store.store.delete_many(due, partial(self._may_delete, lease))
        except (CollectLapsedError, StoppedError):
            raise
        except BlobSyncError as exc:
            _log.warning("collection_deletes_one_by_one", objects=len(due), error=str(exc))
            return list(self._one_by_one(batch, lease))
        self._in_a_row = 0
        for item in batch:
            self._deleted(item)
        return []

    def _may_delete(self, lease: BucketLease) -> None:
        """Called before each request: the store may delete one by one, and each may take long."""
        lease.keep()
        self._store.raise_unless_may_delete()

    def _one_by_one(self, batch: list[Found], lease: BucketLease) -> Iterator[Found]:
        for item in batch:
            self._may_delete(lease)
            try:
                self._store.store.delete(item.info.key)
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
