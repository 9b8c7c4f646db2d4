"""What stands condemned, and what becomes of each object. Pure: everything that is deleted was decided here.

An object is due only if an earlier run condemned it, at least the grace ago; it is still the object that was
condemned, by size and time; nothing that is kept reaches it now; and no visible release that is not due
itself. So whatever is visible is whole, wanted or not.
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
"""How much the clocks of store and collectors may move against each other between two runs."""


@dataclass(frozen=True, slots=True)
class Now:
    """One moment by two clocks."""

    store: datetime
    collector: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """What earlier runs condemned.

    Attributes:
        condemned: By key. With the tombstones of several runs, because one was killed or two ran at once:
            what all of them condemn, since the latest of their times.
        clock_trouble: Why the grace starts anew for everything; empty: it does not.
    """

    condemned: Mapping[str, Condemned]
    clock_trouble: str = ""

    def still(self, later: Standing) -> Standing:
        """What stands condemned by this and by a later look, since the later of the two times."""
        return Standing(_both(self.condemned, later.condemned), later.clock_trouble)


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from one look at the store.

    Attributes:
        due: To be deleted, in that order.
        condemned: All that stands condemned now, what is due included.
        kept: Everything else, by kind and reason.
    """

    due: tuple[Found, ...]
    condemned: tuple[Condemned, ...]
    kept: Tallies


def standing(stored: Sequence[StoredTombstone], now: Now) -> Standing:
    """Put tombstones together. Those that cannot be read condemn nothing.

    A tombstone from the future says that the store's clock was set back. And one whose collector was farther
    from, or nearer to, the store's clock than we are says that one of them was set, or that the collectors
    disagree: nobody knows then how much time has passed.
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
    """Decide about every object that collections know.

    Args:
        found: What is in the store.
        needed: Keys of all that a kept release needs, and why it is kept.
        earlier: What earlier runs condemned, by key.
        now: By the store's clock.
        policy: Grace and age.
        in_grace: Keys of all that the releases of `releases_in_grace` need.
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
    new.sort(key=lambda item: _ORDER[item.kind])  # what makes a release visible is condemned first, too
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
    """The visible releases that nobody keeps, and that may not go yet."""
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
        due: What would be deleted, with what this run has deleted already.
        total: What was there at the beginning of the run.
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
    """Of those that count for the share: leases are no data."""
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
    """Since when it is condemned, if it is the object that was, and not one that was written there since."""
    mark = earlier.get(item.info.key)
    is_same = mark is not None and _state(item.info) == (mark.key, mark.size_bytes, mark.modified)
    return mark if is_same else None


def _state(info: ObjectInfo) -> tuple[str, int, datetime]:
    return info.key, info.size_bytes, info.modified


_ORDER = {kind: place for place, kind in enumerate(Kind)}
