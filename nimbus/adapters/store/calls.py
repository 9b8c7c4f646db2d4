"""What a store of the live state must do: a tree of nodes, as in ZooKeeper, with watches and transactions.

The adapters of this package know only `Calls`. ZooKeeper, SQLite and a dict of the tests implement it; all
pass the suites in `tests/contract`. Refusals are kazoo's errors in all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Protocol, TypeVar

import structlog

from leader import FencingToken
from nimbus.domain.errors import RecordTooLargeError
from nimbus.ports import Enqueue
from nimbus.records import Codec, T, UnreadableRecordError

_log = structlog.get_logger(__name__)

Item = TypeVar("Item")

LARGEST_REQUEST = 1_000_000
"""Most bytes of one request, below ZooKeeper's `jute.maxbuffer`: above it ZooKeeper closes the connection."""


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of at most `size` items. `itertools.batched` needs Python 3.12."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def check_size(what: str, size_bytes: int, most_bytes: int = LARGEST_REQUEST) -> None:
    """Refuse a request that would make ZooKeeper close the connection, which could end leadership.

    Raises:
        RecordTooLargeError: it is larger than `most_bytes`.
    """
    if size_bytes > most_bytes:
        raise RecordTooLargeError(what, size_bytes, most_bytes)


def readable(codec: Codec[T], found: Iterable[tuple[str, bytes]], parent: str) -> Iterator[T]:
    """Decode records below `parent`; an unreadable one is logged and left out."""
    for name, data in found:
        try:
            yield codec.decode(data, f"{parent}/{name}")
        except UnreadableRecordError as exc:
            _log.error("record_unreadable", place=exc.place, error=str(exc))


class Transaction(Protocol):
    """Operations that are executed together, or not at all."""

    def create(self, path: str, data: bytes = b"", /, *, ephemeral: bool = False) -> None:
        """Create a node, whose parent exists. NodeExistsError, NoNodeError."""
        ...

    def set_data(self, path: str, data: bytes) -> None:
        """Replace a node's data. NoNodeError."""
        ...

    def delete(self, path: str) -> None:
        """Delete a node without children. NoNodeError, NotEmptyError."""
        ...

    def check(self, path: str, version: int) -> None:
        """Check that a node exists in this version; -1: in any version. NoNodeError, BadVersionError."""
        ...


Build = Callable[[Transaction], None]
"""Adds operations to a transaction."""


class Calls(ABC):
    """One session's calls. Threads may share it. All raise StoreUnavailableError: no answer in time.

    `changed` is called once after the next change of what was read: of the data of a node, of the names of
    its children, or of its existence. It may be called without a change, and must only enqueue. Equal
    callbacks for one node are called once.
    """

    @property
    @abstractmethod
    def session_id(self) -> int | None:
        """Id of the current session, which owns ephemeral nodes that are created now."""

    @abstractmethod
    def get(self, path: str, changed: Enqueue | None = None) -> bytes | None:
        """Data of a node; None if there is none (then no watch is armed)."""

    @abstractmethod
    def exists(self, path: str, changed: Enqueue | None = None) -> bool:
        """True if a node exists; the watch also fires when it is created."""

    @abstractmethod
    def children(self, path: str, changed: Enqueue | None = None) -> tuple[str, ...] | None:
        """Names of a node's children, sorted; None if the node does not exist."""

    @abstractmethod
    def children_zxid(self, path: str) -> int | None:
        """Transaction that last created or removed a child; None if the node does not exist."""

    def records(self, parent: str, changed: Enqueue | None = None) -> tuple[tuple[str, bytes], ...]:
        """Name and data of all children, without those that are removed in the meantime."""
        return self.read_all(parent, self.children(parent, changed) or ())

    @abstractmethod
    def read_all(self, parent: str, names: Iterable[str]) -> tuple[tuple[str, bytes], ...]:
        """Name and data of some children, read together; missing ones are left out."""

    @abstractmethod
    def read_watched(self, parent: str, changed: Mapping[str, Enqueue]) -> tuple[tuple[str, bytes], ...]:
        """Like `read_all`, with a watch on each: `changed` has the callbacks by name."""

    @abstractmethod
    def await_all(self, changed: Mapping[str, Enqueue]) -> None:
        """Call the callbacks of existing nodes, and those of missing ones when they are created."""

    @abstractmethod
    def list_and_read(
        self, parents: Iterable[str], changed: Iterable[Enqueue | None], nodes: Iterable[str]
    ) -> tuple[list[tuple[str, ...] | None], list[bytes | None]]:
        """Names of the children of `parents`, then data of `nodes`, in one round trip.

        No data are older than the names, or than the watches. None for a missing node, which is not watched.
        """

    @abstractmethod
    def await_watches(self) -> None:
        """Wait until the watches of all changes that earlier calls have seen were called.

        Raises:
            StoreUnavailableError: the thread that calls them is stuck, or the session is closed.
        """

    @abstractmethod
    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node. NodeExistsError and NoNodeError (no parent) pass through."""

    @abstractmethod
    def create_with(self, path: str, data: bytes, other: str, other_data: bytes) -> str:
        """Create a sequential node and another one, or neither. NodeExistsError: the other one exists."""

    @abstractmethod
    def transact(self, what: str, build: Build) -> None:
        """Execute all operations that `build` adds, or none. `what` is named in errors.

        NodeExistsError and NoNodeError of the first refused operation pass through.
        """

    @abstractmethod
    def fenced(self, what: str, token: FencingToken, build: Build) -> None:
        """Like `transact`, but only in the term of `token`.

        Raises:
            leader.FencedOutError: that term is over. Nothing was written.
            leader.TransactionRefusedError: another operation was refused. Nothing was written.
        """

    @abstractmethod
    def ensure(self, path: str) -> None:
        """Create a persistent node and its parents, unless it exists."""

    @abstractmethod
    def ensure_above(self, root: str) -> None:
        """Create the nodes above a root, open for the roots of others."""

    @abstractmethod
    def set(self, path: str, data: bytes) -> bool:
        """Replace a node's data; False if it does not exist."""

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Delete a node; False if it does not exist."""

    @abstractmethod
    def owner(self, path: str) -> int | None:
        """Session that owns an ephemeral node; None if it does not exist, 0 if it is persistent."""

    @abstractmethod
    def written_at(self, path: str) -> datetime | None:
        """The server's time of the last write of a node; None if it does not exist."""

    @abstractmethod
    def origin(self, path: str) -> tuple[int, int] | None:
        """Transaction that created a node, and its time in milliseconds; None if it does not exist."""
