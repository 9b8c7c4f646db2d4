"""Tombstones in the object store: what a collection condemned, and since when. Only collections write them.

A tombstone is the whole state of one run: all objects that were condemned when it ended. The next run reads
it, writes its own, and removes it. It is JSON, above 64 KiB as one zstd frame:

    {"condemned":[["packs/0a…",1234,"2026-01-01T03:04:05+00:00","2026-01-02T03:04:05+00:00"]],"schema":1,
     "written":"2026-01-02T03:04:05+00:00"}

Each entry has key, size, when the object was written and since when it is condemned, both by the store's
clock. `written` is by the collector's clock, so that the next run can see whether the clocks have drifted.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectInfo, ObjectStore
from blobsync.bucket.releases import compressed, decompressed
from blobsync.errors import BlobNotFoundError, BucketUnavailableError
from blobsync.names import key_fault

SCHEMA = 1
MAX_CONDEMNED = 100_000
"""Most entries of a tombstone; further objects wait for a later run."""
_MAX_BYTES = 256 << 20
_MAX_LOOKS = 5
_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Condemned:
    """An object that no release needed. If it was written again since, it is not condemned any more.

    `modified` is the time of its last write before that; both times are by the store's clock.
    """

    key: str
    size_bytes: int
    modified: datetime
    since: datetime


@dataclass(frozen=True, slots=True)
class Tombstone:
    """See the module. `written` is by the collector's clock."""

    written: datetime
    condemned: tuple[Condemned, ...]

    def encode(self) -> bytes:
        """The bytes to store."""
        document = {
            "schema": SCHEMA,
            "written": _encoded_time(self.written),
            "condemned": [
                [item.key, item.size_bytes, _encoded_time(item.modified), _encoded_time(item.since)]
                for item in self.condemned
            ],
        }
        return compressed(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())

    @classmethod
    def parse(cls, data: bytes) -> Tombstone | None:
        """Parse a tombstone from an untrusted source; None: this version cannot read it."""
        try:
            document = json.loads(decompressed(data, _MAX_BYTES).decode())
            if not isinstance(document, dict) or document["schema"] != SCHEMA:
                return None
            return cls(_time(document["written"]), tuple(_entry(item) for item in document["condemned"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class StoredTombstone:
    """A tombstone in the store; `tombstone` is None if it cannot be read."""

    key: str
    modified: datetime
    tombstone: Tombstone | None


def tombstones(store: ObjectStore) -> list[StoredTombstone]:
    """All tombstones at one moment, oldest first by the collectors' clocks.

    If another run replaces one meanwhile, all are read again: the new one may condemn less. After an error it
    is not known what is condemned: do not delete.
    """
    for _ in range(_MAX_LOOKS):
        with suppress(BlobNotFoundError):
            return [
                _read(store, info) for info in list(store.list(keys.TOMBSTONES)) if is_tombstone(info.key)
            ]
    raise BucketUnavailableError(
        f"the tombstones under {keys.TOMBSTONES} were replaced {_MAX_LOOKS} times while they were read. "
        f"If no collection is running, find out with `probe` what the server does"
    )


def is_tombstone(key: str) -> bool:
    """True if a tombstone has this key."""
    return key.startswith(keys.TOMBSTONES) and _RUN.fullmatch(key.removeprefix(keys.TOMBSTONES)) is not None


def _read(store: ObjectStore, info: ObjectInfo) -> StoredTombstone:
    data = b"".join(store.read(info.key)) if info.size_bytes <= _MAX_BYTES else b""
    return StoredTombstone(info.key, info.modified, Tombstone.parse(data))


def condemned(store: ObjectStore) -> frozenset[str]:
    """Keys of all condemned objects. A publish that needs one writes it again.

    A publish calls this once, while it holds its lease, and treats condemned objects as absent: an object
    that is written again is not condemned any more. While the lease is held nothing is deleted anyway; this
    protects a publish that was stopped for longer than its lease. One listing, and in most cases one read.
    """
    documents = (stored.tombstone for stored in tombstones(store))
    return frozenset(
        item.key for tombstone in documents if tombstone is not None for item in tombstone.condemned
    )


def _entry(item: Any) -> Condemned:
    key, size_bytes, modified, since = item
    if not isinstance(key, str) or type(size_bytes) is not int or key_fault(key) is not None:
        raise ValueError(f"{str(item)[:200]} is no condemned object")
    return Condemned(key, size_bytes, _time(modified), _time(since))


def _encoded_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat()


def _time(text: Any) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return time.astimezone(UTC)
