"""What stands condemned by earlier runs, and whether their word about time can be believed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from blobsync.storage.tombstones import Condemned, StoredTombstone, Tombstone

MAX_DRIFT = timedelta(minutes=10)
"""So far the store's clock and the collectors' may move against each other between two runs."""


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
