"""Operations of a transaction whose bytes are made before there is any hurry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo.protocol.serialization import MultiHeader


class Spelled(NamedTuple):
    """Several of kazoo's operations, which it takes for one. ZooKeeper answers each of them.

    Args:
        type: That of the first.
        data: What follows the first one's header.
        operations: Themselves, for those who want to see what this is.
    """

    type: int
    data: bytes
    operations: tuple[Any, ...]

    def serialize(self) -> bytes:
        """As kazoo's connection thread wants it."""
        return self.data


def spelled(operations: Sequence[Any]) -> Spelled:
    """Each but the first brings the header that kazoo would put before it."""
    first, *others = operations
    rest = (bytes(MultiHeader(one.type, False, -1).serialize()) + bytes(one.serialize()) for one in others)
    return Spelled(first.type, b"".join((bytes(first.serialize()), *rest)), tuple(operations))
