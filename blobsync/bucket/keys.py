"""The keys of all objects in the store. No other module spells a key."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from blobsync.release.layout import Pack, StoredObject

BLOBS, PACKS, RELEASES = "blobs/", "packs/", "releases/"
PUBLISH_LEASES, COLLECT_LEASES = "leases/publish/", "leases/collect/"
REPLICAS = "replicas/"
LAYOUTS, PUBLICATIONS = "layouts/", "publications/"
TOMBSTONES = "gc/runs/"
COLLECTION_CLOCK = "gc/clock"
"""A collection writes it to learn the store's time."""

STAMP = "%Y%m%dT%H%M%SZ"
"""Format of a time in a key: in UTC."""
LEASE_ID = re.compile(r"[0-9a-f]{32}")
"""The end of a key of a lease."""
HISTORY_ENTRY = re.compile(r"(\d{8}T\d{6}Z)-([0-9a-f]{64})")
"""Time and digest at the end of a key of `history`."""

ROOMS = frozenset({BLOBS, PACKS, RELEASES, REPLICAS, LAYOUTS, PUBLICATIONS, "leases/", "gc/"})


def blob(name: str) -> str:
    """Key of a file that is not in a pack. `name` is `Blob.name`."""
    return f"{BLOBS}{name}"


def pack(name: str) -> str:
    """Key of a pack, by its name."""
    return f"{PACKS}{name}"


def stored(item: StoredObject) -> str:
    """Key of a pack or of a file that is not in a pack."""
    return pack(item.name) if isinstance(item, Pack) else blob(item.name)


def layout(name: str, digest: str) -> str:
    """Key of the layout of a release: which packs hold its small files."""
    return f"{LAYOUTS}{name}/{digest}.json"


def history(name: str, at: datetime, digest: str) -> str:
    """Key of the record that a release was published. The keys of a name are in order of time.

    `at` is by the publisher's clock.
    """
    return f"{histories(name)}{at.astimezone(UTC).strftime(STAMP)}-{digest}"


def histories(name: str) -> str:
    """Prefix of the keys of the history of `name`."""
    return f"{PUBLICATIONS}{name}/"


def manifest(name: str, digest: str) -> str:
    """Key of a release's manifest."""
    return f"{manifests(name)}{digest}.json"


def manifests(name: str) -> str:
    """Prefix of the keys of all manifests of `name`."""
    return f"{RELEASES}{name}/"


def publish_lease(lease_id: str) -> str:
    """Key of the lease of a publish."""
    return f"{PUBLISH_LEASES}{lease_id}"


def collect_lease(lease_id: str) -> str:
    """Key of the lease of a collection that deletes."""
    return f"{COLLECT_LEASES}{lease_id}"


def tombstone(now: datetime, run_id: str) -> str:
    """Key of the tombstone of a collection.

    `now` is by any clock, for people; `run_id` has 32 hexadecimal digits.
    """
    return f"{TOMBSTONES}{now.astimezone(UTC).strftime(STAMP)}-{run_id}"


def replica(host: str) -> str:
    """Key of the record of a host: which releases it has verified."""
    return f"{REPLICAS}{host}"
