"""The objects in the store, listed and sorted by kind. A listing that is visibly incomplete is refused."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from blobsync.bucket import keys
from blobsync.bucket.leases import store_time
from blobsync.bucket.ports import ObjectInfo, ObjectStore, PatientStore
from blobsync.bucket.tombstones import is_tombstone
from blobsync.errors import BlobNotFoundError, GcRefusedError, StoppedError
from blobsync.names import is_digest, is_release_name
from blobsync.progress import Progress, WorkPhase
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import RetryPolicy


class Kind(StrEnum):
    """Kind of an object, in the order of deletion: objects that make a release visible are first."""

    RELEASE = "release"
    HISTORY = "history"
    LAYOUT = "layout"
    PACK = "pack"
    BLOB = "blob"
    LEASE = "lease"


_TOLD_EVERY = 1000
"""After how many listed objects progress is reported."""

_BLOB = re.compile(r"(?:b3-)?[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Tally:
    """A number of objects, and of their bytes."""

    count: int = 0
    size_bytes: int = 0

    def plus(self, size_bytes: int) -> Tally:
        """With one more object."""
        return Tally(self.count + 1, self.size_bytes + size_bytes)


class Found(NamedTuple):
    """An object that this library made."""

    info: ObjectInfo
    kind: Kind
    ref: ReleaseRef | None
    """The release it belongs to; None for kinds that belong to none."""
    stamp: str
    """For a history entry: time of the publication, by the publisher's clock."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """One listing: the objects that this library made, by key. `foreign` counts all others, never deleted."""

    objects: Mapping[str, Found]
    foreign: Tally

    def of_kind(self, kind: Kind) -> Iterable[Found]:
        """All objects of one kind."""
        return (item for item in self.objects.values() if item.kind is kind)

    def total(self) -> Tally:
        """Tally of all objects that this library made, without leases."""
        counted = [item.info.size_bytes for item in self.objects.values() if item.kind is not Kind.LEASE]
        return Tally(len(counted), sum(counted))


def inventory(listing: Iterable[ObjectInfo]) -> Inventory:
    """Sort a listing of all objects. GcRefusedError if it is not in strict byte order: it may lack some."""
    objects: dict[str, Found] = {}
    foreign = Tally()
    last: bytes | None = None
    for info in listing:
        encoded = info.key.encode(errors="surrogatepass")
        if last is not None and encoded <= last:
            raise GcRefusedError(
                f"the store lists {info.key[:200]!r} out of order, so the listing may lack objects; nothing "
                f"was deleted. Find out with `probe` what the server does"
            )
        last = encoded
        inventory = known(info)
        if inventory is not None:
            objects[info.key] = inventory
        elif info.key != keys.COLLECTION_CLOCK and not is_tombstone(info.key):
            foreign = foreign.plus(info.size_bytes)
    return Inventory(objects, foreign)


def known(info: ObjectInfo) -> Found | None:
    """The object of a key; None: this library did not make it, or does not collect it."""
    for prefix, kind in (
        (keys.BLOBS, Kind.BLOB),
        (keys.PACKS, Kind.PACK),
        (keys.LAYOUTS, Kind.LAYOUT),
        (keys.RELEASES, Kind.RELEASE),
        (keys.PUBLICATIONS, Kind.HISTORY),
        (keys.PUBLISH_LEASES, Kind.LEASE),
        (keys.COLLECT_LEASES, Kind.LEASE),
    ):
        if info.key.startswith(prefix):
            return _parsed(info, kind, info.key.removeprefix(prefix))
    return None


def _parsed(info: ObjectInfo, kind: Kind, rest: str) -> Found | None:
    match kind:
        case Kind.BLOB:
            return Found(info, kind, None, "") if _BLOB.fullmatch(rest) else None
        case Kind.PACK:
            return Found(info, kind, None, "") if is_digest(rest) else None
        case Kind.LEASE:
            return Found(info, kind, None, "") if keys.LEASE_ID.fullmatch(rest) else None
        case Kind.LAYOUT | Kind.RELEASE:
            name, _, file = rest.partition("/")
            digest = file.removesuffix(".json")
            ok = is_release_name(name) and is_digest(digest) and file.endswith(".json")
            return Found(info, kind, ReleaseRef(name, digest), "") if ok else None
        case Kind.HISTORY:
            name, _, entry = rest.partition("/")
            matched = keys.HISTORY_ENTRY.fullmatch(entry)
            if matched is None or not is_release_name(name):
                return None
            return Found(info, kind, ReleaseRef(name, matched[2]), matched[1])


class CollectionStore(PatientStore):
    """The bucket as a collection uses it: patient, fenced, and with progress.

    Thread-safe, as the store is; but only the collection's thread lists and reports progress. `may_delete` is
    called before each request that deletes.
    """

    def __init__(
        self,
        store: ObjectStore,
        retry: RetryPolicy,
        stopping: threading.Event,
        progress: Callable[[Progress], None] | None,
        clock_s: Callable[[], float],
        may_delete: Callable[[], bool],
    ) -> None:
        super().__init__(store, retry, stopping)
        self.clock_s, self._progress, self._may_delete = clock_s, progress, may_delete

    def raise_unless_may_delete(self) -> None:
        """Raise `StoppedError` if `stopping` is set or `may_delete` returns False."""
        self.raise_if_stopped()
        if not self._may_delete():
            raise StoppedError("the collection may not delete any more")

    def tell(self, phase: WorkPhase, done: int, total: int = 0) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(Progress(phase, done, total))

    def list_all(self, began: datetime, on_progress: Callable[[], None]) -> Inventory:
        """List all objects. Checks that no old object follows the last one, and that no manifest is missing.

        `began` is a time before the call, by the store's clock. `on_progress` is called repeatedly; its
        exceptions pass through. GcRefusedError if the listing is not complete.
        """
        last: str | None = None

        def watched(store: ObjectStore) -> Iterator[ObjectInfo]:
            nonlocal last
            count, last = 0, None
            for info in store.list(""):
                if count % _TOLD_EVERY == 0:
                    self.raise_if_stopped()
                    on_progress()
                    self.tell(WorkPhase.LISTING, count)
                count, last = count + 1, info.key
                yield info
            self.tell(WorkPhase.LISTING, count, count)

        listed = self.call(lambda store: inventory(watched(store)), "list everything")
        self._refuse_early_end(last, began)
        published = {
            keys.manifest(item.ref.name, item.ref.digest) for item in listed.of_kind(Kind.HISTORY) if item.ref
        }
        self.missing(listed, published, began)
        return listed

    def missing(self, inventory: Inventory, needed: Iterable[str], began: datetime) -> list[str]:
        """The keys of `needed` that are not in the store.

        They must be in `inventory`, or newer than `began`, a time before its listing by the store's clock.
        GcRefusedError if one is older and not in the listing, so that it is not complete.
        """
        absent = []
        for key in sorted(set(needed) - inventory.objects.keys()):
            written = self.written(key)
            if written is None:
                absent.append(key)
            elif written < began:
                raise GcRefusedError(
                    f"{key} is in the store, and the listing lacks it; nothing was deleted. Find out with "
                    f"`probe` what the server does"
                )
        return absent

    def written(self, key: str) -> datetime | None:
        """When an object was written; None: it does not exist."""

        def ask(store: ObjectStore) -> datetime | None:
            try:
                return store_time(store, key)
            except BlobNotFoundError:
                return None

        return self.call(ask, "look for object")

    def _refuse_early_end(self, last: str | None, began: datetime) -> None:
        """List on from the last key: there must be no object that is older than the listing."""
        behind = self.call(lambda store: next(iter(store.list("", last)), None), "list on")
        if behind is not None and behind.modified < began:
            raise GcRefusedError(
                f"the listing ended after {last!r}, but {behind.key[:200]!r} comes behind; nothing was "
                f"deleted. Find out with `probe` what the server does"
            )
