"""Which releases a collection keeps, why, and its limits. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from blobsync.bucket.leases import MAX_TTL
from blobsync.collection.inventory import Inventory, Kind
from blobsync.errors import BlobSyncConfigError
from blobsync.release.manifest import ReleaseRef


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionPolicy:
    """Checked once, here, then trusted.

    Args:
        grace: Least time between condemning and deleting, by the store's clock.
        min_age: Objects that were written more recently are never condemned, since a publish may need them.
            Longer than the longest publish.
        keep_age: Releases that were published more recently are kept; at least `min_age`.
        keep_newest: How many of the newest releases of each name are kept.
        max_share: Of the objects, and of the bytes; a run that would delete more deletes nothing.
        patience: How long to wait for publishes to end before the deletion is left to a later run.
    """

    grace: timedelta = timedelta(hours=24)
    min_age: timedelta = timedelta(hours=24)
    keep_age: timedelta = timedelta(days=14)
    keep_newest: int = 10
    max_share: float = 0.2
    patience: timedelta = timedelta(minutes=2)

    def __post_init__(self) -> None:
        for name, value in (("grace", self.grace), ("min_age", self.min_age)):
            if value < MAX_TTL:
                raise BlobSyncConfigError(
                    f"{name} ({value}) must be at least {MAX_TTL}, which is how long a lease may count"
                )
        if self.keep_age < self.min_age:
            raise BlobSyncConfigError(
                f"keep_age ({self.keep_age}) must be at least min_age ({self.min_age}), or a release could "
                f"lose its files before it is old enough to go itself"
            )
        if self.patience < timedelta(0):
            raise BlobSyncConfigError(f"patience ({self.patience}) must not be negative")
        if self.keep_newest < 0:
            raise BlobSyncConfigError(f"keep_newest ({self.keep_newest}) must not be negative")
        if not 0 < self.max_share <= 1:
            raise BlobSyncConfigError(f"max_share ({self.max_share}) must be above 0 and at most 1")


class Reason(StrEnum):
    """Why an object is kept. If several apply, the first counts."""

    WANTED = "wanted"  # a release needs it that the caller wants
    LEASED = "leased"  # a release needs it whose name is being published now
    NEWEST = "newest"  # one of the newest releases of its name needs it
    RECENT = "recent"  # a release needs it that was published lately
    YOUNG = "young"  # it was written lately
    CONDEMNED_NOW = "condemned_now"  # nothing needs it: this run condemned it
    GRACE = "grace"  # nothing needs it: an earlier run condemned it, and the grace lasts
    LATER = "later"  # nothing needs it, but the tombstone is full: its turn comes


ROOT_REASONS = (Reason.WANTED, Reason.LEASED, Reason.NEWEST, Reason.RECENT)


@dataclass(slots=True)
class _Visible:
    """A release with a manifest in the listing."""

    written: datetime
    """When its manifest or the last entry of its history was written, by the store's clock."""
    stamp: str = ""
    """Of the last entry of its history, by the publisher's clock."""


def roots(
    found: Inventory, wanted: Set[ReleaseRef], leased: Set[str], now: datetime, policy: CollectionPolicy
) -> dict[ReleaseRef, Reason]:
    """Choose the releases that are kept.

    The age of a release is by the store's clock, since its last publication. The newest ones of a name are
    the newest by the store's clock and, since a bucket may have been copied, by the publishers' clocks too.

    Args:
        found: The objects in the store.
        wanted: Releases that the caller keeps, in the listing or not.
        leased: Names that are being published now.
        now: By the store's clock.
        policy: What else is kept.
    """
    visible = _visible(found)
    chosen = dict.fromkeys(wanted, Reason.WANTED)
    for ref in visible:
        if ref.name in leased:
            chosen.setdefault(ref, Reason.LEASED)
    for ref in _newest(visible, policy.keep_newest):
        chosen.setdefault(ref, Reason.NEWEST)
    for ref, release in visible.items():
        if now - release.written < policy.keep_age:
            chosen.setdefault(ref, Reason.RECENT)
    return chosen


def _visible(found: Inventory) -> Mapping[ReleaseRef, _Visible]:
    visible = {item.ref: _Visible(item.info.modified) for item in found.of_kind(Kind.RELEASE) if item.ref}
    for entry in found.of_kind(Kind.HISTORY):
        # An entry without a manifest is of a publish that runs, or did not finish.
        release = visible.get(entry.ref) if entry.ref else None
        if release is not None:
            release.written = max(release.written, entry.info.modified)
            release.stamp = max(release.stamp, entry.stamp)
    return visible


def _newest(visible: Mapping[ReleaseRef, _Visible], count: int) -> Set[ReleaseRef]:
    by_name: dict[str, list[ReleaseRef]] = defaultdict(list)
    for ref in visible:
        by_name[ref.name].append(ref)
    chosen: set[ReleaseRef] = set()
    for refs in by_name.values():
        by_store = sorted(refs, key=lambda ref: (visible[ref].written, visible[ref].stamp), reverse=True)
        by_publisher = sorted(refs, key=lambda ref: (visible[ref].stamp, visible[ref].written), reverse=True)
        chosen.update(by_store[:count], by_publisher[:count])
    return chosen
