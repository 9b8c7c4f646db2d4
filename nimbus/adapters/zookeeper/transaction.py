"""Writes of the leader, collected until they are done as one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from nimbus.adapters.zookeeper.calls import check_size
from nimbus.domain import writes as w

OVERHEAD_BYTES = 100
"""Of one operation beside path and data (at most: lengths, version, access list)."""
LARGEST_BATCH = 512 * 1024
"""Bytes of decisions that are committed together: a large request keeps all others waiting."""


class Operation(NamedTuple):
    """One operation of a transaction."""

    kind: Literal["create", "set", "delete"]
    path: str
    data: bytes = b""


def size_bytes(operations: Iterable[Operation]) -> int:
    """About what a request with these operations takes on the wire; never less."""
    return sum(len(path) + len(data) + OVERHEAD_BYTES for _, path, data in operations)


class ZooKeeperTransaction:
    """See `nimbus.ports.LeaderTransaction`.

    Of several writes to one node the last one counts, so a run that moves ten times is written once.
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
        """Take in more writes."""
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
                    return False  # one of the two is refused: not here, where it would take others with it
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
        """Do all writes."""
        if self._operations:
            self._write(tuple(self._operations.values()))
