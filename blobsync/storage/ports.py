"""What this package needs of the world: somewhere to keep objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from blobsync.errors import InvalidKeyError
from blobsync.names import key_fault

CHUNK_BYTES = 1 << 20
"""How much `read` gives at a time, at most."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing."""

    key: str
    size_bytes: int


class ObjectStore(Protocol):
    """Immutable-by-habit objects under keys. Thread-safe.

    Every method may raise `StoreUnavailableError` (worth a retry), `StoreAccessDeniedError`,
    `BucketMissingError`, `StoreRefusedError` and `InvalidKeyError` (see `blobsync.names.key_fault`). Nothing
    here depends on conditional writes, metadata, tags or checksums of the store: servers differ too much in
    them.
    """

    def read(self, key: str) -> Iterator[bytes]:
        """Stream an object in chunks of at most `CHUNK_BYTES`.

        The request is made when the first chunk is asked for.

        Raises:
            BlobNotFoundError: there is no such object.
            StoreUnavailableError: also when the object ends before its announced length.
        """
        ...

    def write(self, key: str, data: bytes | Path) -> None:
        """Create or replace an object; seen whole or not at all.

        Args:
            key: Where to.
            data: The bytes, or a file that does not change meanwhile.
        """
        ...

    def size(self, key: str) -> int | None:
        """Size in bytes; None: the store answered that there is no such object."""
        ...

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose keys begin with `prefix`, in byte order of their keys.

        Args:
            prefix: May be empty or end anywhere.
            start_after: Give only keys after this one.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object. Safe to repeat: a missing one is no error."""
        ...


def checked_key(key: str) -> str:
    """Give `key` back, if every store takes it.

    Raises:
        InvalidKeyError: it does not.
    """
    fault = key_fault(key)
    if fault is not None:
        raise InvalidKeyError(
            f"object key {key[:200]!r} {fault}; use short relative keys, as made by blobsync.storage.keys"
        )
    return key
