"""The objects in the store, sorted by kind; those that this library did not make are only counted. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectInfo
from blobsync.errors import GcRefusedError
from blobsync.names import is_digest, is_release_name
from blobsync.release.manifest import ReleaseRef


class Kind(StrEnum):
    """Kind of an object, in the order of deletion: objects that make a release visible are first."""

    RELEASE = "release"
    HISTORY = "history"
    LAYOUT = "layout"
    PACK = "pack"
    BLOB = "blob"
    LEASE = "lease"


_BLOB = re.compile(r"(?:b3-)?[0-9a-f]{64}")
_LEASE = re.compile(r"[0-9a-f]{32}")


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
    """Of a history entry: when it was published, by the publisher's clock."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """One listing.

    Attributes:
        objects: Objects that this library made, by key.
        foreign: All others; they are never deleted.
    """

    objects: Mapping[str, Found]
    foreign: Tally

    def of_kind(self, kind: Kind) -> Iterable[Found]:
        """All of one kind."""
        return (found for found in self.objects.values() if found.kind is kind)

    def total(self) -> Tally:
        """Of all objects that this library made, without leases."""
        counted = [found.info.size_bytes for found in self.objects.values() if found.kind is not Kind.LEASE]
        return Tally(len(counted), sum(counted))


def inventory(listing: Iterable[ObjectInfo]) -> Inventory:
    """Sort a listing of all objects.

    Raises:
        GcRefusedError: its keys are not in strict byte order, so it may not be complete.
    """
    objects: dict[str, Found] = {}
    foreign, last = Tally(), b""
    for info in listing:
        encoded = info.key.encode(errors="surrogatepass")
        if encoded <= last:
            raise GcRefusedError(
                f"the store lists {info.key[:200]!r} out of order, so the listing may lack objects; nothing "
                f"was deleted. Find out with `probe` what the server does"
            )
        last = encoded
        found = known(info)
        if found is not None:
            objects[info.key] = found
        elif info.key != keys.COLLECTION_CLOCK and not info.key.startswith(keys.TOMBSTONES):
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
            return Found(info, kind, None, "") if _LEASE.fullmatch(rest) else None
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
