"""Decides which releases a collection keeps, and which objects it condemns or deletes. Pure.

No object is deleted without a decision here. An object is due only if an earlier run condemned it at least
the grace ago, if its size and time are still those of the object that was condemned, and if no release needs
it now: neither a kept one, nor a visible one that is not due itself. So each visible release is complete,
kept or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from blobsync.bucket.leases import MAX_TTL
from blobsync.bucket.ports import ObjectInfo
from blobsync.bucket.tombstones import MAX_CONDEMNED, Condemned, StoredTombstone, Tombstone
from blobsync.collection.inventory import Found, Inventory, Kind, Tally
from blobsync.errors import BlobSyncConfigError, GcRefusedError
from blobsync.release.manifest import ReleaseRef


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionPolicy:
    """Checked once, here, then trusted.

    Args:
        grace: Least time between condemning and deleting, by the store's clock.
        min_age: Objects that were written more recently are never condemned, since a publish may need them.
            Longer than the longest publish.
        keep_age: Releases that were published more recently are kept; at least `min_age`.
        keep_newest: Number of the newest releases of each name that are kept.
        max_share: Share of the objects, and of the bytes; a run that would delete more deletes nothing.
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
    LATER = "later"  # nothing needs it, but the tombstone is full: a later run condemns it


ROOT_REASONS = (Reason.WANTED, Reason.LEASED, Reason.NEWEST, Reason.RECENT)


@dataclass(slots=True)
class _Visible:
    """A release with a manifest in the listing."""

    written: datetime
    """When its manifest or the last entry of its history was written, by the store's clock."""
    stamp: str = ""
    """Time of the last entry of its history, by the publisher's clock."""


def roots(
    inventory: Inventory, wanted: Set[ReleaseRef], leased: Set[str], now: datetime, policy: CollectionPolicy
) -> dict[ReleaseRef, Reason]:
    """Choose the releases that are kept.

    The age of a release is by the store's clock, since its last publication. The newest ones of a name are
    the newest by the store's clock and, since a bucket may have been copied, by the publishers' clocks too.
    `leased` are the names that are being published now.
    """
    visible = _visible(inventory)
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


def _visible(inventory: Inventory) -> Mapping[ReleaseRef, _Visible]:
    visible = {item.ref: _Visible(item.info.modified) for item in inventory.of_kind(Kind.RELEASE) if item.ref}
    for entry in inventory.of_kind(Kind.HISTORY):
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


Tallies = Mapping[Kind, Mapping[Reason, Tally]]
MAX_DRIFT = timedelta(minutes=10)
"""Limit of the drift between the clocks of store and collectors from one run to the next."""


@dataclass(frozen=True, slots=True)
class Now:
    """One moment, by the clocks of store and collector."""

    store: datetime
    collector: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """What earlier runs condemned.

    Attributes:
        condemned: Condemned objects by key. If there are tombstones of several runs, because one was killed
            or two ran at once: the objects that all of them condemn, since the latest of their times.
        clock_trouble: Why the grace starts again for all objects; empty if it does not.
    """

    condemned: Mapping[str, Condemned]
    clock_trouble: str = ""

    def still(self, later: Standing) -> Standing:
        """The objects that this and a later listing condemn, since the later of the two times."""
        return Standing(_both(self.condemned, later.condemned), later.clock_trouble)


@dataclass(frozen=True, slots=True)
class CollectionDecision:
    """The decision about all objects of one listing of the store.

    `due` is in the order of deletion, and part of `condemned`; `kept` has all other objects.
    """

    due: tuple[Found, ...]
    condemned: tuple[Condemned, ...]
    kept: Tallies


def standing(stored: Sequence[StoredTombstone], now: Now) -> Standing:
    """Merge tombstones. Those that cannot be read condemn nothing.

    A tombstone from the future shows that the store's clock was set back. If the two clocks differed by
    another amount when a tombstone was written, one of them was set, or the collectors' clocks differ: then
    it is not known how much time has passed.
    """
    readable = [(item.modified, item.tombstone) for item in stored if item.tombstone is not None]
    for modified, tombstone in readable:
        trouble = _trouble(modified, tombstone, now)
        if trouble:
            return Standing({}, trouble)
    merged: dict[str, Condemned] | None = None
    for _, tombstone in readable:
        own = {item.key: item for item in tombstone.condemned}
        merged = own if merged is None else _both(merged, own)
    return Standing(merged or {})


def decide(
    inventory: Inventory,
    needed: Mapping[str, Reason],
    earlier: Mapping[str, Condemned],
    now: datetime,
    policy: CollectionPolicy,
    in_grace: Set[str] = frozenset(),
) -> CollectionDecision:
    """Decide about all objects in the store that this library made.

    `needed` are the keys that kept releases need, `in_grace` those that the releases of `releases_in_grace`
    need.
    """
    due: list[Found] = []
    standing: list[Condemned] = []
    new: list[Found] = []
    kept: dict[Kind, dict[Reason, Tally]] = defaultdict(lambda: defaultdict(Tally))

    def keep(item: Found, reason: Reason) -> None:
        kept[item.kind][reason] = kept[item.kind][reason].plus(item.info.size_bytes)

    for key, item in inventory.objects.items():
        reason = needed.get(key)
        if reason is not None:
            keep(item, reason)
        elif now - item.info.modified < policy.min_age:
            keep(item, Reason.YOUNG)
        elif (mark := _mark(item, earlier)) is None:
            new.append(item)
        else:
            standing.append(mark)
            if now - mark.since >= policy.grace and key not in in_grace:
                due.append(item)
            else:
                keep(item, Reason.GRACE)
    new.sort(key=lambda item: _ORDER[item.kind])  # in the order of deletion: manifests first
    room = max(0, MAX_CONDEMNED - len(standing))
    for place, item in enumerate(new):
        keep(item, Reason.CONDEMNED_NOW if place < room else Reason.LATER)
    marks = [Condemned(*_state(item.info), since=now) for item in new[:room]]
    due.sort(key=lambda item: _ORDER[item.kind])
    return CollectionDecision(
        tuple(due), tuple(standing + marks), {kind: dict(own) for kind, own in kept.items()}
    )


def releases_in_grace(
    inventory: Inventory,
    kept: Set[ReleaseRef],
    earlier: Mapping[str, Condemned],
    now: datetime,
    policy: CollectionPolicy,
) -> list[ReleaseRef]:
    """The visible releases that are not kept, and are not due yet."""
    in_grace = []
    for item in inventory.of_kind(Kind.RELEASE):
        mark = _mark(item, earlier)
        if (
            item.ref is not None
            and item.ref not in kept
            and (mark is None or now - mark.since < policy.grace)
        ):
            in_grace.append(item.ref)
    return in_grace


def refuse_too_much(due: Tally, total: Tally, max_share: float) -> None:
    """Refuse (GcRefusedError) to delete more than a share of the objects, or of the bytes.

    `due` includes what this run has deleted already; `total` is as at its beginning.
    """
    if due.count > max_share * total.count or due.size_bytes > max_share * total.size_bytes:
        raise GcRefusedError(
            f"{due.count} of {total.count} objects, {due.size_bytes} of {total.size_bytes} bytes, would be "
            f"deleted, above the share of {max_share:g} that may go at once; nothing more was deleted. "
            f"If what is kept is right, raise max_share"
        )


def counted(items: tuple[Found, ...]) -> Tally:
    """Tally of the objects that count for the share: all except leases."""
    sizes = [item.info.size_bytes for item in items if item.kind is not Kind.LEASE]
    return Tally(len(sizes), sum(sizes))


def _trouble(modified: datetime, tombstone: Tombstone, now: Now) -> str:
    if max([modified, *(item.since for item in tombstone.condemned)]) > now.store + MAX_DRIFT:
        return f"a tombstone is from the future of the store's clock, which says {now.store}"
    drift = (now.store - now.collector) - (modified - tombstone.written)
    if abs(drift) > MAX_DRIFT:
        return (
            f"the clocks of store and collector moved against each other by {abs(drift)} since the last run"
        )
    return ""


def _both(condemned: Mapping[str, Condemned], other: Mapping[str, Condemned]) -> dict[str, Condemned]:
    merged = {}
    for key, mine in condemned.items():
        theirs = other.get(key)
        if theirs is not None and (mine.size_bytes, mine.modified) == (theirs.size_bytes, theirs.modified):
            merged[key] = max(mine, theirs, key=lambda item: item.since)
    return merged


def _mark(item: Found, earlier: Mapping[str, Condemned]) -> Condemned | None:
    """The entry that condemns an object; None if there is none, or the object was written again since."""
    mark = earlier.get(item.info.key)
    is_same = mark is not None and _state(item.info) == (mark.key, mark.size_bytes, mark.modified)
    return mark if is_same else None


def _state(info: ObjectInfo) -> tuple[str, int, datetime]:
    return info.key, info.size_bytes, info.modified


_ORDER = {kind: place for place, kind in enumerate(Kind)}
