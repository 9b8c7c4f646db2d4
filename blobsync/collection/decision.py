"""Decides which objects are condemned, due or kept. Pure: no object is deleted without a decision here.

An object is due only if an earlier run condemned it at least the grace ago, if its size and time are still
those of the object that was condemned, and if no release needs it now: neither a kept one, nor a visible one
that is not due itself. So each visible release is complete, kept or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from blobsync.bucket.ports import ObjectInfo
from blobsync.bucket.tombstones import MAX_CONDEMNED, Condemned, StoredTombstone, Tombstone
from blobsync.collection.inventory import Found, Inventory, Kind, Tally
from blobsync.collection.policy import CollectionPolicy, Reason
from blobsync.errors import GcRefusedError
from blobsync.release.manifest import ReleaseRef

Tallies = Mapping[Kind, Mapping[Reason, Tally]]
MAX_DRIFT = timedelta(minutes=10)
"""How much the clocks of store and collectors may drift apart between two runs."""


@dataclass(frozen=True, slots=True)
class Now:
    """One moment, by the clocks of store and collector."""

    store: datetime
    collector: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """What earlier runs condemned.

    Attributes:
        condemned: By key. If there are tombstones of several runs, because one was killed or two ran at once:
            the objects that all of them condemn, since the latest of their times.
        clock_trouble: Why the grace starts again for all objects; empty if it does not.
    """

    condemned: Mapping[str, Condemned]
    clock_trouble: str = ""

    def still(self, later: Standing) -> Standing:
        """The objects that this and a later look condemn, since the later of the two times."""
        return Standing(_both(self.condemned, later.condemned), later.clock_trouble)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about all objects of one look at the store.

    Attributes:
        due: To be deleted, in this order.
        condemned: All objects that are condemned now, those that are due included.
        kept: All other objects, by kind and reason.
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
    found: Inventory,
    needed: Mapping[str, Reason],
    earlier: Mapping[str, Condemned],
    now: datetime,
    policy: CollectionPolicy,
    in_grace: Set[str] = frozenset(),
) -> Decision:
    """Decide about all objects in the store that this library made.

    Args:
        found: The objects in the store.
        needed: Keys of all objects that kept releases need, and why these are kept.
        earlier: What earlier runs condemned, by key.
        now: By the store's clock.
        policy: Grace and age.
        in_grace: Keys of all objects that the releases of `releases_in_grace` need.
    """
    due: list[Found] = []
    standing: list[Condemned] = []
    new: list[Found] = []
    kept: dict[Kind, dict[Reason, Tally]] = defaultdict(lambda: defaultdict(Tally))

    def keep(item: Found, reason: Reason) -> None:
        kept[item.kind][reason] = kept[item.kind][reason].plus(item.info.size_bytes)

    for key, item in found.objects.items():
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
    return Decision(tuple(due), tuple(standing + marks), kept)


def releases_in_grace(
    found: Inventory,
    kept: Set[ReleaseRef],
    earlier: Mapping[str, Condemned],
    now: datetime,
    policy: CollectionPolicy,
) -> list[ReleaseRef]:
    """The visible releases that are not kept, and are not due yet."""
    in_grace = []
    for item in found.of_kind(Kind.RELEASE):
        mark = _mark(item, earlier)
        if (
            item.ref is not None
            and item.ref not in kept
            and (mark is None or now - mark.since < policy.grace)
        ):
            in_grace.append(item.ref)
    return in_grace


def refuse_too_much(due: Tally, total: Tally, max_share: float) -> None:
    """Refuse to delete more than a share.

    Args:
        due: Objects that would be deleted, with those that this run has deleted already.
        total: Objects at the beginning of the run.
        max_share: Of the objects, and of the bytes.

    Raises:
        GcRefusedError: it is more.
    """
    if due.count > max_share * total.count or due.size_bytes > max_share * total.size_bytes:
        raise GcRefusedError(
            f"{due.count} of {total.count} objects, {due.size_bytes} of {total.size_bytes} bytes, would be "
            f"deleted, above the share of {max_share:g} that may go at once; nothing more was deleted. "
            f"If what is kept is right, raise max_share"
        )


def counted(items: tuple[Found, ...]) -> Tally:
    """Of the objects that count for the share: all but leases."""
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


def _both(one: Mapping[str, Condemned], other: Mapping[str, Condemned]) -> dict[str, Condemned]:
    merged = {}
    for key, mine in one.items():
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
