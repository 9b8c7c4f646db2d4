"""Layouts: which packs contain the small files of a release, the publisher and the time. Pure.

A layout is not part of the release's identity: the same files may be packed differently later. It is not
trusted: a pack must hash to its name, and each member to the digest in the manifest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from blobsync.errors import InvalidLayoutError
from blobsync.names import is_digest
from blobsync.release.manifest import Blob
from blobsync.release.pack import MAX_PACK_BYTES, MIN_PACK_BYTES

SCHEMA = 1
MAX_PACKS = 10_000
MAX_LAYOUT_BYTES = 1 << 20  # enough for MAX_PACKS; bounds the memory that a hostile layout takes
MAX_PUBLISHER_CHARS = 200

_FIELDS = {"packs", "published_at", "published_by", "schema"}
_PACK_FIELDS = {"name", "size_bytes"}
_TIME = re.compile(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z")


@dataclass(frozen=True, slots=True, order=True)
class Pack:
    """A pack, as an object in the store.

    `name` is the BLAKE3 of its bytes, `size_bytes` its size as stored.
    """

    name: str
    size_bytes: int


StoredObject = Pack | Blob
"""One object in the store, one file on disk: a pack, or a blob that is not in a pack."""


@dataclass(frozen=True, slots=True)
class Layout:
    """See the module. Checked when made.

    Args:
        packs: They contain all small files of the release; given in any order, kept sorted.
        published_at: Time by the publisher's clock, in whole seconds; for people and for the order of a
            list.

    Raises:
        InvalidLayoutError: a name, size or time is not valid.
    """

    packs: tuple[Pack, ...]
    published_by: str
    published_at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "packs", tuple(sorted(set(self.packs))))
        object.__setattr__(self, "published_at", self.published_at.astimezone(UTC).replace(microsecond=0))
        _check(self)

    def encode(self) -> bytes:
        """The bytes to store."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "packs": [{"name": pack.name, "size_bytes": pack.size_bytes} for pack in self.packs],
            "published_by": self.published_by,
            "published_at": f"{self.published_at.replace(tzinfo=None).isoformat()}Z",
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def parse(cls, data: bytes) -> Layout:
        """Parse a layout from an untrusted source. InvalidLayoutError if this version cannot use it."""
        if len(data) > MAX_LAYOUT_BYTES:
            raise InvalidLayoutError(f"a layout of {len(data)} bytes is above {MAX_LAYOUT_BYTES}; not read")
        try:
            document = json.loads(data.decode())
        except (ValueError, RecursionError) as exc:
            raise InvalidLayoutError(f"the layout is not JSON: {exc}") from exc
        if isinstance(document, dict) and "schema" in document:
            _check_schema(document["schema"])
        if not isinstance(document, dict) or set(document) != _FIELDS:
            raise InvalidLayoutError(f"the layout is not an object with exactly {sorted(_FIELDS)}")
        packs, who, when = document["packs"], document["published_by"], document["published_at"]
        if not isinstance(packs, list) or len(packs) > MAX_PACKS:
            raise InvalidLayoutError(f"the layout needs a list of at most {MAX_PACKS} packs")
        if not isinstance(who, str) or not isinstance(when, str) or _TIME.fullmatch(when) is None:
            raise InvalidLayoutError("the layout does not say who published when")
        try:
            at = datetime.fromisoformat(when)
        except ValueError as exc:
            raise InvalidLayoutError(f"{when} is not a time") from exc
        return cls(tuple(_pack(item, number) for number, item in enumerate(packs)), who, at)


def _check_schema(schema: Any) -> None:
    if type(schema) is not int or schema != SCHEMA:
        which = str(schema)[:40] if type(schema) is int else "that is no number"
        raise InvalidLayoutError(
            f"the layout has a schema {which}, this version reads {SCHEMA}; update blobsync"
        )


def _pack(item: Any, number: int) -> Pack:
    # The item is not in the message: it may be nested too deeply to be printed.
    if not isinstance(item, dict) or set(item) != _PACK_FIELDS:
        raise InvalidLayoutError(f"pack {number} of the layout does not have exactly {sorted(_PACK_FIELDS)}")
    if not isinstance(item["name"], str) or type(item["size_bytes"]) is not int:
        raise InvalidLayoutError(f"pack {number} of the layout has a value of a wrong type")
    return Pack(item["name"], item["size_bytes"])


def _check(layout: Layout) -> None:
    if len(layout.packs) > MAX_PACKS:
        raise InvalidLayoutError(f"a layout of {len(layout.packs)} packs is above {MAX_PACKS}; pack again")
    if len({pack.name for pack in layout.packs}) != len(layout.packs):
        raise InvalidLayoutError("one pack is there with two sizes")
    for pack in layout.packs:
        if not is_digest(pack.name):
            raise InvalidLayoutError(f"{pack.name[:100]!r} does not name a pack: 64 hexadecimal characters")
        if not MIN_PACK_BYTES <= pack.size_bytes <= MAX_PACK_BYTES:
            raise InvalidLayoutError(
                f"pack {pack.name} of {pack.size_bytes} bytes is not within "
                f"{MIN_PACK_BYTES}..{MAX_PACK_BYTES}"
            )
    if len(layout.published_by) > MAX_PUBLISHER_CHARS or not layout.published_by.isprintable():
        raise InvalidLayoutError(f"published_by is not a printable text of up to {MAX_PUBLISHER_CHARS} signs")
