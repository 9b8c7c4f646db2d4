"""Collects writes of the leader, and executes them as one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
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
    encode: Callable[[], bytes] | None = None
    """Makes the data. Until then, `data` are about as large."""

    def encoded(self) -> Operation:
        return self if self.encode is None else Operation(self.kind, self.path, self.encode())


def put(path: str, data: bytes, *, is_new: bool) -> Operation:
    """Creates a node, or replaces its data."""
    return Operation("create" if is_new else "set", path, data)


def size_bytes(operations: Iterable[Operation]) -> int:
    """Upper estimate of the size of a request with these operations."""
    return sum(len(path) + len(data) + OVERHEAD_BYTES for _, path, data, _ in operations)


class TreeTransaction:
    """See `nimbus.ports.LeaderTransaction`.

    Of several writes to a node only the last one is executed, so a run that changes ten times is written
    once. The first one is encoded, for its size; the others are only if they are the last.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Operation]], None],
        operations_of: Callable[[w.Write], Iterator[Operation]],
    ) -> None:
        self._write = write
        self._operations_of = operations_of
        self._operations: dict[str, Operation] = {}
        self._size_bytes = 0

    def add(self, writes: Sequence[w.Write]) -> bool:
        new: dict[str, Operation | None] = {}
        for operation in chain.from_iterable(map(self._operations_of, writes)):
            path = operation.path
            standing = new.pop(path) if path in new else self._operations.get(path)
            if standing is not None and standing.kind == operation.kind == "create":
                return False  # one of the two will be refused, which must not affect others
            new[path] = _merged(standing, operation)
        size = self._size_bytes + size_bytes(filter(None, new.values()))
        size -= size_bytes(filter(None, map(self._operations.get, new)))
        if not self._operations:
            check_size(", ".join(new), size)
        elif size > LARGEST_BATCH:
            return False
        for path, merged in new.items():
            self._operations.pop(path, None)
            if merged is not None:
                self._operations[path] = merged
        self._size_bytes = size
        return True

    def commit(self) -> None:
        if self._operations:
            self._write([operation.encoded() for operation in self._operations.values()])


def _merged(standing: Operation | None, operation: Operation) -> Operation | None:
    """One operation in place of two on the same node; None: none is needed."""
    if standing is None:
        return operation.encoded()
    if operation.encode is not None:
        operation = operation._replace(data=standing.data)
    match standing.kind, operation.kind:
        case "create", "set":
            return operation._replace(kind="create")
        case "delete", "create":
            return operation._replace(kind="set")
        case "create", "delete":
            return None
        case _:
            return operation
