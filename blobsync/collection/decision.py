"""What becomes of each object. Pure: everything that is deleted was decided here.

An object is due only if an earlier run condemned it, at least the grace ago; it is still the object that was
condemned, by size and time; nothing that is kept reaches it now; and no visible release that is not due
itself. So whatever is visible is whole, wanted or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime

from blobsync.collection.inventory import Found, Inventory, Kind, Tally
from blobsync.collection.policy import CollectionPolicy
from blobsync.collection.roots import Reason
from blobsync.errors import GcRefusedError
from blobsync.release.manifest import ReleaseRef
from blobsync.storage.ports import ObjectInfo
from blobsync.storage.tombstones import MAX_CONDEMNED, Condemned

Tallies = Mapping[Kind, Mapping[Reason, Tally]]


@dataclass(frozen=True, slots=True)
class Decision:
    """What one look at the store comes to.

    Attributes:
        due: To be deleted, in that order.
        condemned: All that stands condemned now, what is due included.
        kept: Everything else, by kind and reason.
    """

    due: tuple[Found, ...]
    condemned: tuple[Condemned, ...]
    kept: Tallies


def decide(
    found: Inventory,
    needed: Mapping[str, Reason],
    earlier: Mapping[str, Condemned],
    now: datetime,
    policy: CollectionPolicy,
    fading: Set[str] = frozenset(),
) -> Decision:
    """Decide about every object that collections know.

    Args:
        found: What is in the store.
        needed: Keys of all that a kept release needs, and why it is kept.
        earlier: What earlier runs condemned, by key.
        now: By the store's clock.
        policy: Grace and age.
        fading: Keys of all that the releases of `fading_releases` need.
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
            if now - mark.since >= policy.grace and key not in fading:
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


def fading_releases(
    found: Inventory,
    kept: Set[ReleaseRef],
    earlier: Mapping[str, Condemned],
    now: datetime,
    policy: CollectionPolicy,
) -> list[ReleaseRef]:
    """The visible releases that nobody keeps, and that may not go yet."""
    fading = []
    for item in found.of_kind(Kind.RELEASE):
        mark = _mark(item, earlier)
        if (
            item.ref is not None
            and item.ref not in kept
            and (mark is None or now - mark.since < policy.grace)
        ):
            fading.append(item.ref)
    return fading


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


def _mark(item: Found, earlier: Mapping[str, Condemned]) -> Condemned | None:
    """Since when it is condemned, if it is the object that was, and not one that was written there since."""
    mark = earlier.get(item.info.key)
    is_same = mark is not None and _state(item.info) == (mark.key, mark.size_bytes, mark.modified)
    return mark if is_same else None


def _state(info: ObjectInfo) -> tuple[str, int, datetime]:
    return info.key, info.size_bytes, info.modified


_ORDER = {kind: place for place, kind in enumerate(Kind)}
