"""What a host says that it has verified, in a compact form. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from blobsync.errors import BlobSyncConfigError
from blobsync.names import is_digest, is_release_name

SCHEMA = 1
MAX_DIGESTS = 1_000
"""Releases that one host may name: about 70 bytes each."""
MAX_RECORD_BYTES = 128 << 10

_FIELDS = {"at", "digests", "host", "schema"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """What a host has verified. Checked when made.

    Args:
        host: Its name: letters, digits, dots, dashes and underscores; the same after each restart.
        digests: Of the manifests of releases that are complete and verified there; in any order, kept sorted.
        at: When that was so, by the host's clock, in whole seconds; for people.

    Raises:
        BlobSyncConfigError: a name or digest that cannot be, or too many.
    """

    host: str
    digests: tuple[str, ...]
    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "digests", tuple(sorted(set(self.digests))))
        object.__setattr__(self, "at", self.at.astimezone(UTC).replace(microsecond=0))
        if not is_release_name(self.host):
            raise BlobSyncConfigError(
                f"{self.host[:200]!r} cannot name a host: letters, digits, dot, dash and underscore, at most "
                f"128"
            )
        if not all(map(is_digest, self.digests)):
            raise BlobSyncConfigError(f"what {self.host} says that it has verified are no digests")
        if len(self.digests) > MAX_DIGESTS:
            raise BlobSyncConfigError(
                f"{self.host} has {len(self.digests)} releases, more than the {MAX_DIGESTS} a record may "
                f"name; name those that are wanted"
            )

    def encode(self) -> bytes:
        """As it is stored; equal records give equal bytes."""
        document = {
            "schema": SCHEMA,
            "host": self.host,
            "at": self.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "digests": list(self.digests),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes) -> ReplicaRecord | None:
        """Read a record that may come from anywhere; None: it is not one that this version can read."""
        try:
            document = json.loads(data.decode())
            record = cls._from(document)
        except (ValueError, RecursionError, BlobSyncConfigError):
            return None
        return record if record is not None and record.encode() == data else None

    @classmethod
    def _from(cls, document: Any) -> ReplicaRecord | None:
        if not isinstance(document, dict) or set(document) != _FIELDS or document["schema"] != SCHEMA:
            return None
        host, digests, at = document["host"], document["digests"], document["at"]
        if not isinstance(host, str) or not isinstance(at, str) or _TIME.fullmatch(at) is None:
            return None
        if not isinstance(digests, list) or not all(isinstance(digest, str) for digest in digests):
            return None
        return cls(host, tuple(digests), datetime.fromisoformat(at))
