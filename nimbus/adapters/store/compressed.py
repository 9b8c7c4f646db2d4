"""Records that are stored compressed, because they repeat names and times."""

from __future__ import annotations

import zlib
from typing import Generic, TypeVar

from nimbus.records import Codec, UnreadableRecordError

T = TypeVar("T")
_LARGEST = 8 << 20
"""Limit of a record after decompression, in bytes."""


class Compressed(Generic[T]):
    """A codec around another one."""

    def __init__(self, plain: Codec[T]) -> None:
        self._plain = plain

    def encode(self, record: T) -> bytes:
        """The record."""
        return zlib.compress(self._plain.encode(record))

    def decode(self, data: bytes, place: str) -> T:
        """Read a record. Raises UnreadableRecordError."""
        unfolding = zlib.decompressobj()
        try:
            plain = unfolding.decompress(data, _LARGEST)
        except zlib.error as exc:
            raise UnreadableRecordError(place, str(exc)) from exc
        return self._plain.decode(plain, place)
