"""Collects garbage in the object store, in two runs: one condemns, a later one, after a grace, deletes.

Guarantees. An object is deleted only if an earlier run condemned it at least the grace ago, if it has not
been written since, and if a new listing, made while no publish runs, shows that no release needs it:
neither a kept one, nor another visible one that is not deleted before it. Kept are the releases that the
caller names, those published recently, and the newest of each name. An object is never deleted because
something else is missing: manifests and layouts of kept releases must be readable, the listing must be
complete as far as can be seen, and no more than a share is deleted at once. Keys that this library did
not make are left.

Publishes and deletions exclude each other by leases (`blobsync.bucket.leases`). Two collections at once
do no harm: each deletes only objects that are due by its own listing and still condemned once it holds
its lease. An object that another run does not condemn any more stays, and its grace starts again. A run
that is killed leaves at most a tombstone, which makes the next one more careful, and a lease, which
expires.

Not guaranteed: a store without conditional deletes cannot stop a collector that is suspended for minutes
between the check of its lease and the request that deletes. Ages are by the store's clock; if it jumps
forward, the grace starts again, but only if the collector's clock does not jump with it.

The threads are those of `blobsync.collection.reach`; all end with the call.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from blobsync.bucket.leases import boottime_s
from blobsync.bucket.ports import ObjectStore
from blobsync.collection.decision import CollectionPolicy, Tallies
from blobsync.collection.inventory import CollectionStore, Found, Kind, Tally
from blobsync.collection.run import CollectionRun
from blobsync.errors import GcRefusedError, StoppedError
from blobsync.log import LazyLog
from blobsync.progress import Progress
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import RetryPolicy

MAX_TOLD = 100
"""Limit of keys in a report."""

_log = LazyLog(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionReport:
    """What one run did; after a dry run, what it would have done.

    Attributes:
        dry_run: True: nothing was written or deleted.
        kept: Counts of kept objects by kind and reason; see `Reason`.
        due: Objects to be deleted, by kind.
        deleted: Objects that were deleted, by kind; a dry run deletes nothing.
        failed: Keys that could not be deleted, with the error, at most `MAX_TOLD` of them.
        failed_count: Number of all such keys.
        abandoned_uploads: Unfinished uploads that were removed, or would be.
        foreign: Objects that this library did not make; they are left.
        missing: Keys that kept releases need and the store does not have, at most `MAX_TOLD` of them.
        missing_count: Number of all such keys.
        postponed: Why objects that are due were not deleted; empty if all were.
        clock_trouble: Why the grace started again for all objects; empty if it did not.
        unreadable_tombstones: Keys of tombstones that this version cannot read. They condemn nothing; an
            operator must remove them.
        is_stopped: True if the run was stopped before its end.
    """

    dry_run: bool
    kept: Tallies
    due: Mapping[Kind, Tally]
    deleted: Mapping[Kind, Tally]
    failed: tuple[tuple[str, str], ...] = ()
    failed_count: int = 0
    abandoned_uploads: int = 0
    foreign: Tally = field(default_factory=Tally)
    missing: tuple[str, ...] = ()
    missing_count: int = 0
    postponed: str = ""
    clock_trouble: str = ""
    unreadable_tombstones: tuple[str, ...] = ()
    is_stopped: bool = False

    def as_data(self) -> dict[str, Any]:
        """As dictionaries, lists, strings and numbers, for JSON."""
        data = asdict(self) | {"failed": [{"key": key, "error": error} for key, error in self.failed]}
        plain: dict[str, Any] = json.loads(json.dumps(data))
        return plain


def collect_garbage(
    store: ObjectStore,
    keep: Set[ReleaseRef],
    *,
    policy: CollectionPolicy | None = None,
    allow_empty: bool = False,
    dry_run: bool = False,
    retry: RetryPolicy | None = None,
    stopping: threading.Event | None = None,
    may_delete: Callable[[], bool] = lambda: True,
    progress: Callable[[Progress], None] | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock_s: Callable[[], float] = boottime_s,
) -> CollectionReport:
    """Condemn objects that no release needs, and delete those that an earlier run condemned. Safe to repeat.

    Args:
        store: The bucket.
        keep: All releases that are in use. Each must be in the store.
        policy: What else is kept, and the limits.
        allow_empty: `keep` may be empty. The policy still keeps releases.
        dry_run: Report what would be done; write and delete nothing.
        retry: For each call to the store.
        stopping: When set, the run ends at once, with the report of what it did.
        may_delete: Called right before each request that deletes, in this thread: for callers that may
            collect only while they lead. False ends the run as `stopping` does.
        progress: Called in this thread.
        clock: The collector's; compared with the store's, and shown to people. Aware.
        clock_s: Never set back; counts sleep of the host.

    Raises:
        GcRefusedError: it is not certain what is needed, or too much would be deleted. Nothing was deleted;
            in a run that had begun to delete, nothing more.
        BucketUnavailableError, BucketAccessDeniedError, BucketMissingError: see `ObjectStore`.
    """
    if not keep and not allow_empty:
        raise GcRefusedError(
            "the collection was told that no release is in use, which is more often wrong than true; nothing "
            "was deleted. If it is true, say allow_empty"
        )
    bucket = CollectionStore(
        store, retry or RetryPolicy(), stopping or threading.Event(), progress, clock_s, may_delete
    )
    run = CollectionRun(bucket, frozenset(keep), policy or CollectionPolicy(), clock, dry_run=dry_run)
    with suppress(StoppedError):
        run.run()
    report = _report(run, dry_run=dry_run)
    _log.info(
        "garbage_collected",
        dry_run=dry_run,
        due=sum(tally.count for tally in report.due.values()),
        deleted=sum(tally.count for tally in report.deleted.values()),
        deleted_bytes=sum(tally.size_bytes for tally in report.deleted.values()),
        failed=report.failed_count,
        postponed=report.postponed,
    )
    return report


def _report(run: CollectionRun, *, dry_run: bool) -> CollectionReport:
    plan, failed = run.first, run.deletion.failed
    return CollectionReport(
        dry_run=dry_run,
        kept=plan.decision.kept,
        due=_by_kind(plan.decision.due),
        deleted=dict(run.deletion.deleted),
        failed=tuple(failed.items())[:MAX_TOLD],
        failed_count=len(failed),
        abandoned_uploads=run.abandoned_uploads,
        foreign=plan.found.foreign,
        missing=tuple(plan.missing[:MAX_TOLD]),
        missing_count=len(plan.missing),
        postponed=run.postponed,
        clock_trouble=run.earlier.clock_trouble,
        unreadable_tombstones=run.unreadable_tombstones,
        is_stopped=not run.is_done,
    )


def _by_kind(items: Iterable[Found]) -> Mapping[Kind, Tally]:
    tallies: dict[Kind, Tally] = defaultdict(Tally)
    for item in items:
        tallies[item.kind] = tallies[item.kind].plus(item.info.size_bytes)
    return dict(tallies)
