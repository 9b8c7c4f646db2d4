"""One run of a collection: list, condemn; then, while no publish runs, list again and delete."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from blobsync.bucket import keys
from blobsync.bucket.leases import BucketLease, LiveLease, live_leases, store_time
from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.tombstones import StoredTombstone, Tombstone, tombstones
from blobsync.collection.decision import (
    CollectionDecision,
    CollectionPolicy,
    Now,
    Standing,
    counted,
    decide,
    refuse_too_much,
    releases_in_grace,
    roots,
    standing,
)
from blobsync.collection.deletion import Deletion, collect_lease
from blobsync.collection.inventory import CollectionStore, Found, Inventory, Tally
from blobsync.collection.reach import Reach
from blobsync.errors import BlobSyncError, CollectLapsedError, GcRefusedError, StoppedError
from blobsync.log import LazyLog
from blobsync.release.manifest import ReleaseRef

PAUSE_S = 2.0
"""Pause between two tries to delete, without the lease, so that publishes can begin."""
_UPLOADED = (keys.BLOBS, keys.PACKS)

_log = LazyLog(__name__)


class CollectionPlan(NamedTuple):
    """The content of the store at one time, and the decision."""

    found: Inventory
    decision: CollectionDecision
    missing: list[str]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Outcome of one try to delete. `why`: why it was not done. `again`: try again."""

    why: str = ""
    again: bool = False


class CollectionRun:
    """One run. Not reusable.

    Attributes:
        abandoned_uploads: Number of unfinished uploads that were removed, or would be.
        postponed: Why due objects were not all deleted; empty: they were.
        is_done: False: the run was stopped before its end.
    """

    def __init__(
        self,
        store: CollectionStore,
        keep: Set[ReleaseRef],
        policy: CollectionPolicy,
        clock: Callable[[], datetime],
        *,
        dry_run: bool,
    ) -> None:
        self._store, self._keep, self._policy, self._clock = store, keep, policy, clock
        self._dry_run = dry_run
        self._reach = Reach(store)
        self.first = CollectionPlan(Inventory({}, Tally()), CollectionDecision((), (), {}), [])
        self.earlier = Standing({})
        self.unreadable_tombstones: tuple[str, ...] = ()
        self.deletion = Deletion(store, self._reach)
        self.abandoned_uploads = 0
        self.postponed = ""
        self.is_done = False

    def run(self) -> None:
        """List, condemn, delete."""
        stored = self._store.call(tombstones, "read tombstones")
        self.unreadable_tombstones = tuple(item.key for item in stored if item.tombstone is None)
        now = self._now(stored)
        self.earlier = standing(stored, now)
        publishers = self._store.call(
            lambda store: live_leases(store, keys.PUBLISH_LEASES, now.store), "look for publishes"
        )
        self.first = plan = self._plan(self.earlier, publishers, now.store, lambda: None)
        if plan.missing:
            _log.warning("collection_misses_objects", count=len(plan.missing), first=plan.missing[:3])
        try:
            self._refuse_too_much(plan.decision.due)
        except GcRefusedError as exc:
            if not self._dry_run:
                raise
            self.postponed = str(exc)
        stale = self._stale_uploads()
        if self._dry_run:
            self.abandoned_uploads = stale
        else:
            self._condemn(plan.decision, stored, now)
            if plan.decision.due or stale:
                self.postponed = self._delete(bool(stale))
        self.is_done = True

    def _now(self, stored: list[StoredTombstone]) -> Now:
        """The time. A dry run does not write to the store, and estimates its time from tombstones."""
        collector = self._clock()
        if self._dry_run:
            readable = [item for item in stored if item.tombstone is not None]
            drift = timedelta(0)
            for item in readable[-1:]:
                drift = item.modified - item.tombstone.written if item.tombstone is not None else drift
            return Now(collector + drift, collector)

        def ask(store: ObjectStore) -> datetime:
            store.write(keys.COLLECTION_CLOCK, b"")
            return store_time(store, keys.COLLECTION_CLOCK)

        return Now(self._store.call(ask, "ask the store's time"), collector)

    def _plan(
        self, earlier: Standing, publishers: list[LiveLease], now: datetime, on_progress: Callable[[], None]
    ) -> CollectionPlan:
        inventory = self._store.list_all(now, on_progress)
        leased = {item.lease.subject for item in publishers if item.lease is not None}
        kept = roots(inventory, self._keep, leased, now, self._policy)
        needed = self._reach.needed(kept, inventory, on_progress)
        missing = self._store.missing(inventory, needed, now)
        marks = earlier.condemned
        in_grace = self._reach.in_grace(
            releases_in_grace(inventory, kept.keys(), marks, now, self._policy), on_progress
        )
        return CollectionPlan(
            inventory, decide(inventory, needed, marks, now, self._policy, in_grace), missing
        )

    def _refuse_too_much(self, due: tuple[Found, ...]) -> None:
        done, more = self.deletion.total, counted(due)
        both = Tally(done.count + more.count, done.size_bytes + more.size_bytes)
        refuse_too_much(both, self.first.found.total(), self._policy.max_share)

    def _condemn(self, decision: CollectionDecision, stored: list[StoredTombstone], now: Now) -> None:
        """Write a tombstone of all objects that are condemned now, then remove earlier tombstones."""
        earlier = [item for item in stored if item.tombstone is not None]
        # Also if it condemns nothing: a run that read earlier tombstones must see that they are void.
        if decision.condemned or earlier:
            # With its own time, not that of the listing: it is compared with the store's time of this write.
            key = keys.tombstone(now.collector, uuid.uuid4().hex)
            self._store.call(
                lambda store: store.write(key, Tombstone(self._clock(), decision.condemned).encode()),
                "write tombstone",
            )
        for item in earlier:
            self._store.call(lambda store, key=item.key: store.delete(key), "remove tombstone")  # type: ignore[misc]

    def _stale_uploads(self) -> int:
        """How many unfinished uploads are so old that no publish continues them."""

        def ask(store: ObjectStore) -> int:
            ages = [item.age for prefix in _UPLOADED for item in store.unfinished_uploads(prefix)]
            return sum(age >= self._stale_age for age in ages)

        try:
            return self._store.call(ask, "look for unfinished uploads")
        except StoppedError:
            raise
        except BlobSyncError as exc:  # some servers do not support it, or refuse it
            _log.warning("unfinished_uploads_not_listed", error=str(exc))
            return 0

    @property
    def _stale_age(self) -> timedelta:
        return max(self._policy.grace, self._policy.min_age)

    def _delete(self, has_stale: bool) -> str:
        """Try until it is done or `patience` has passed. Returns why it was not done."""
        until_s = self._store.clock_s() + self._policy.patience.total_seconds()
        while True:
            outcome = self._try_to_delete(has_stale)
            is_over = outcome.why and self._store.clock_s() >= until_s
            if not outcome.again or is_over:
                return outcome.why
            self._store.stopping.wait(PAUSE_S)
            self._store.raise_if_stopped()

    def _try_to_delete(self, has_stale: bool) -> _Outcome:
        """Hold the lease, look for publishes, list and decide again, delete."""
        self._store.raise_unless_may_delete()
        try:
            with collect_lease(self._store) as lease:
                now, publishers = lease.others(keys.PUBLISH_LEASES)
                if publishers:
                    return _Outcome(_why_postponed(publishers), again=True)
                plan = self._plan(self._still(now), [], now, lease.keep)
                self._refuse_too_much(plan.decision.due)
                lease.keep()
                if has_stale:
                    self._abandon()
                return self._delete_found(plan.decision.due, lease)
        except CollectLapsedError as exc:
            return _Outcome(str(exc))

    def _still(self, now: datetime) -> Standing:
        """Objects that were condemned at the beginning and still are, after other runs."""
        stored = self._store.call(tombstones, "read tombstones again")
        return self.earlier.still(standing(stored, Now(now, self._clock())))

    def _delete_found(self, due: tuple[Found, ...], lease: BucketLease) -> _Outcome:
        try:
            return _Outcome(again=not self.deletion.delete(due, lease))
        except StoppedError:
            raise
        except BlobSyncError as exc:
            return _Outcome(f"the deletion broke off: {exc}")

    def _abandon(self) -> None:
        for prefix in _UPLOADED:
            try:
                self.abandoned_uploads += self._store.store.abandon_uploads(prefix, self._stale_age)
            except BlobSyncError as exc:
                _log.warning("unfinished_uploads_not_abandoned", prefix=prefix, error=str(exc))


def _why_postponed(publishers: list[LiveLease]) -> str:
    first = publishers[0]
    who = f"{first.lease.subject} by {first.lease.holder}" if first.lease is not None else first.key
    more = f" and {len(publishers) - 1} more" if len(publishers) > 1 else ""
    return f"a publish is under way ({who}{more}); the next run deletes"
