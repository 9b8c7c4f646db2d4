"""One run of a collection: look, condemn; then, with no publish under way, look again and delete."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from blobsync.collection.access import Access, StoppedError
from blobsync.collection.decision import Decision, counted, decide, fading_releases, refuse_too_much
from blobsync.collection.deletion import Deletion
from blobsync.collection.inventory import Found, Inventory, Kind, Tally
from blobsync.collection.lease import CollectLapsedError, CollectLease
from blobsync.collection.policy import CollectionPolicy
from blobsync.collection.reach import Reach, lost, refuse_overlooked
from blobsync.collection.report import MAX_TOLD, CollectionReport
from blobsync.collection.roots import roots
from blobsync.collection.standing import Now, Standing, standing
from blobsync.errors import BlobSyncError, GcRefusedError
from blobsync.log import Log
from blobsync.release.manifest import ReleaseRef
from blobsync.storage import keys
from blobsync.storage.leases import LiveLease, live_leases, store_time
from blobsync.storage.ports import ObjectStore
from blobsync.storage.tombstones import StoredTombstone, Tombstone, tombstone_key, tombstones

PAUSE_S = 2.0
"""Between two tries to delete, without the lease, so that publishes come to their turn."""
_UPLOADED = (keys.BLOBS, keys.PACKS)

_log = Log(__name__)


class _Look(NamedTuple):
    """One look at the store, and what follows from it."""

    found: Inventory
    decision: Decision
    missing: list[str]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Of one try to delete. `why` says why it was not done, and `again` whether to try once more."""

    why: str = ""
    again: bool = False


class Run:
    """One run. Not reusable.

    Args:
        access: The store.
        keep: Releases that are in use.
        policy: What else is kept.
        clock: The collector's.
        dry_run: Write and delete nothing.
    """

    def __init__(
        self,
        access: Access,
        keep: Set[ReleaseRef],
        policy: CollectionPolicy,
        clock: Callable[[], datetime],
        *,
        dry_run: bool,
    ) -> None:
        self._access, self._keep, self._policy, self._clock = access, keep, policy, clock
        self._reach = Reach(access)
        self._deletion = Deletion(access, self._reach)
        self._total = Tally()
        self._report = CollectionReport(dry_run=dry_run, kept={}, due={}, deleted={}, is_stopped=True)
        self._abandoned = 0

    def report(self) -> CollectionReport:
        """What was done so far."""
        failed = self._deletion.failed
        return replace(
            self._report,
            deleted=dict(self._deletion.deleted),
            failed=tuple(failed.items())[:MAX_TOLD],
            failed_count=len(failed),
            abandoned_uploads=self._abandoned,
        )

    def run(self) -> None:
        """Look, condemn, delete."""
        stored = self._access.call(tombstones, "read tombstones")
        now = self._now(stored)
        earlier = standing(stored, now)
        publishers = self._access.call(
            lambda store: live_leases(store, keys.PUBLISH_LEASES, now.store), "look for publishes"
        )
        look = self._look(earlier, publishers, now.store, lambda: None)
        self._total = look.found.total()
        self._note(look, earlier, stored)
        try:
            self._refuse_too_much(look.decision.due)
        except GcRefusedError as exc:
            if not self._report.dry_run:
                raise
            self._report = replace(self._report, postponed=str(exc))
        stale = self._stale_uploads()
        if self._report.dry_run:
            self._abandoned = stale
        else:
            self._condemn(look.decision, stored, now)
            if look.decision.due or stale:
                self._report = replace(self._report, postponed=self._delete(earlier, bool(stale)))
        self._report = replace(self._report, is_stopped=False)

    def _now(self, stored: list[StoredTombstone]) -> Now:
        """What time it is. A dry run may not ask the store, and infers it from how the clocks stood."""
        collector = self._clock()
        if self._report.dry_run:
            readable = [item for item in stored if item.tombstone is not None]
            drift = timedelta(0)
            for item in readable[-1:]:
                drift = item.modified - item.tombstone.written if item.tombstone is not None else drift
            return Now(collector + drift, collector)

        def ask(store: ObjectStore) -> datetime:
            store.write(keys.COLLECTION_CLOCK, b"")
            return store_time(store, keys.COLLECTION_CLOCK)

        return Now(self._access.call(ask, "ask the store's time"), collector)

    def _look(
        self, earlier: Standing, publishers: list[LiveLease], now: datetime, going: Callable[[], None]
    ) -> _Look:
        found = self._access.look(now, going)
        refuse_overlooked(self._access, found, now)
        leased = {item.lease.subject for item in publishers if item.lease is not None}
        kept = roots(found, self._keep, leased, now, self._policy)
        needed = self._reach.needed(kept, found, going)
        missing = lost(self._access, found, needed, now)
        marks = earlier.condemned
        fading = self._reach.fading(fading_releases(found, kept.keys(), marks, now, self._policy), going)
        return _Look(found, decide(found, needed, marks, now, self._policy, fading), missing)

    def _note(self, look: _Look, earlier: Standing, stored: list[StoredTombstone]) -> None:
        if look.missing:
            _log.warning("collection_misses_objects", count=len(look.missing), first=look.missing[:3])
        self._report = replace(
            self._report,
            kept=look.decision.kept,
            due=_by_kind(look.decision.due),
            foreign=look.found.foreign,
            missing=tuple(look.missing[:MAX_TOLD]),
            missing_count=len(look.missing),
            clock_trouble=earlier.clock_trouble,
            unreadable_tombstones=tuple(item.key for item in stored if item.tombstone is None),
        )

    def _refuse_too_much(self, due: tuple[Found, ...]) -> None:
        done, more = self._deletion.total, counted(due)
        both = Tally(done.count + more.count, done.size_bytes + more.size_bytes)
        refuse_too_much(both, self._total, self._policy.max_share)

    def _condemn(self, decision: Decision, stored: list[StoredTombstone], now: Now) -> None:
        """Write what stands condemned now, and only then remove what earlier runs wrote."""
        earlier = [item for item in stored if item.tombstone is not None]
        # Also if it condemns nothing: whoever works from earlier ones must see that all was pardoned.
        if decision.condemned or earlier:
            # With its own time, not that of the look: it is compared with the store's time of this write.
            key = tombstone_key(now.collector, uuid.uuid4().hex)
            self._access.call(
                lambda store: store.write(key, Tombstone(self._clock(), decision.condemned).encode()),
                "write tombstone",
            )
        for item in earlier:
            self._access.call(lambda store, key=item.key: store.delete(key), "remove tombstone")  # type: ignore[misc]

    def _stale_uploads(self) -> int:
        """How many uploads were begun so long ago that nobody works on them."""

        def ask(store: ObjectStore) -> int:
            ages = [item.age for prefix in _UPLOADED for item in store.unfinished_uploads(prefix)]
            return sum(age >= self._stale_age for age in ages)

        try:
            return self._access.call(ask, "look for unfinished uploads")
        except StoppedError:
            raise
        except BlobSyncError as exc:  # some servers do not have it, some do not let us
            _log.warning("unfinished_uploads_not_listed", error=str(exc))
            return 0

    @property
    def _stale_age(self) -> timedelta:
        return max(self._policy.grace, self._policy.min_age)

    def _delete(self, earlier: Standing, has_stale: bool) -> str:
        """Try until it is done or the patience is over. Says why it was not done."""
        until_s = self._access.clock_s() + self._policy.patience.total_seconds()
        while True:
            outcome = self._try_to_delete(earlier, has_stale)
            is_over = outcome.why and self._access.clock_s() >= until_s
            if not outcome.again or is_over:
                return outcome.why
            self._access.stopping.wait(PAUSE_S)
            self._access.going()

    def _try_to_delete(self, earlier: Standing, has_stale: bool) -> _Outcome:
        """Take the lease, look whether anybody publishes, look afresh, delete."""
        self._access.deleting()
        try:
            with CollectLease(self._access) as lease:
                now, publishers = lease.publishers()
                if publishers:
                    return _Outcome(_told(publishers), again=True)
                look = self._look(self._still(earlier, now), [], now, lease.keep)
                self._refuse_too_much(look.decision.due)
                lease.keep()
                if has_stale:
                    self._abandon()
                return self._delete_found(look.decision.due, lease)
        except CollectLapsedError as exc:
            return _Outcome(str(exc))

    def _still(self, earlier: Standing, now: datetime) -> Standing:
        """What stood condemned at the beginning and does still: other runs may have pardoned since."""
        stored = self._access.call(tombstones, "read tombstones again")
        return earlier.still(standing(stored, Now(now, self._clock())))

    def _delete_found(self, due: tuple[Found, ...], lease: CollectLease) -> _Outcome:
        try:
            return _Outcome(again=not self._deletion.delete(due, lease))
        except StoppedError:
            raise
        except BlobSyncError as exc:
            return _Outcome(f"the deletion broke off: {exc}")

    def _abandon(self) -> None:
        for prefix in _UPLOADED:
            try:
                self._abandoned += self._access.store.abandon_uploads(prefix, self._stale_age)
            except BlobSyncError as exc:
                _log.warning("unfinished_uploads_not_abandoned", prefix=prefix, error=str(exc))


def _by_kind(items: Iterable[Found]) -> Mapping[Kind, Tally]:
    tallies: dict[Kind, Tally] = defaultdict(Tally)
    for item in items:
        tallies[item.kind] = tallies[item.kind].plus(item.info.size_bytes)
    return dict(tallies)


def _told(publishers: list[LiveLease]) -> str:
    first = publishers[0]
    who = f"{first.lease.subject} by {first.lease.holder}" if first.lease is not None else first.key
    more = f" and {len(publishers) - 1} more" if len(publishers) > 1 else ""
    return f"a publish is under way ({who}{more}); the next run deletes"
