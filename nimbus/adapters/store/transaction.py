"""Collects writes of the leader, and executes them as one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from nimbus.adapters.store.calls import check_size
from nimbus.domain import writes as w

OVERHEAD_BYTES = 100
"""Most bytes of one operation in addition to path and data: lengths, version, access list."""
LARGEST_BATCH = 512 * 1024
"""Most bytes of decisions that are committed together, because a large request delays all others."""


class Operation(NamedTuple):
    """One operation of a transaction."""

    kind: Literal["create", "set", "delete"]
    path: str
    data: bytes = b""


def size_bytes(operations: Iterable[Operation]) -> int:
    """Upper estimate of the size of a request with these operations."""
    return sum(len(path) + len(data) + OVERHEAD_BYTES for _, path, data in operations)


class TreeTransaction:
    """See `nimbus.ports.LeaderTransaction`.

    Of several writes to a node only the last one is executed, so a run that changes ten times is written
    once.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Operation]], None],
        operations_of: Callable[[w.Write], Iterator[Operation]],
    ) -> None:
        self._write = write
        self._operations_of = operations_of
        self._operations: dict[str, Operation] = {}

    def add(self, writes: Sequence[w.Write]) -> bool:
        """Add writes."""
        new = [operation for write in writes for operation in self._operations_of(write)]
        if not self._operations:
            check_size(", ".join(operation.path for operation in new), size_bytes(new))
        elif size_bytes(self._operations.values()) + size_bytes(new) > LARGEST_BATCH:
            return False
        merged = dict(self._operations)
        for operation in new:
            standing = merged.pop(operation.path, None)
            match standing and standing.kind, operation.kind:
                case ("create", "create"):
                    return False  # one of the two will be refused, which must not affect others
                case ("create", "set"):
                    merged[operation.path] = operation._replace(kind="create")
                case ("delete", "create"):
                    merged[operation.path] = operation._replace(kind="set")
                case ("create", "delete"):
                    continue
                case _:
                    merged[operation.path] = operation
        self._operations = merged
        return True

    def commit(self) -> None:
        """Execute all writes."""
        if self._operations:
            self._write(tuple(self._operations.values()))
