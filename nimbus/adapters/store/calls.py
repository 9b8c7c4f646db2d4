"""What a store of the live state must do: a tree of nodes, as in ZooKeeper, with watches and transactions.

The adapters of this package know only `Calls`. ZooKeeper, SQLite and a dict of the tests implement it; all
pass the suites in `tests/contract`. Refusals are kazoo's errors in all of them.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import structlog
from kazoo.exceptions import NodeExistsError

from leader import FencingToken, ZooKeeperSession
from nimbus.domain.errors import RecordTooLargeError
from nimbus.ports import Enqueue
from nimbus.records import Codec, T, UnreadableRecordError

if TYPE_CHECKING:  # with ZooKeeper, no process needs the 1.1 MiB of SQLite and its adapter
    from nimbus.adapters.sqlite.session import SqliteSession

_log = structlog.get_logger(__name__)

Item = TypeVar("Item")

LARGEST_REQUEST = 1_000_000
"""Most bytes of one request, below ZooKeeper's `jute.maxbuffer`: above it ZooKeeper closes the connection."""


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of at most `size` items. `itertools.batched` needs Python 3.12."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def check_size(what: str, size_bytes: int, limit_bytes: int = LARGEST_REQUEST) -> None:
    """Refuse a request that would make ZooKeeper close the connection, which could end leadership."""
    if size_bytes > limit_bytes:
        raise RecordTooLargeError(what, size_bytes, limit_bytes)


def decoded(
    decode: Callable[[bytes, str], Item], nodes: Iterable[tuple[str, bytes]], parent: str
) -> Iterator[Item | UnreadableRecordError]:
    """The records of nodes below `parent`, or why they cannot be read."""
    for name, data in nodes:
        try:
            yield decode(data, f"{parent}/{name}")
        except UnreadableRecordError as exc:
            yield exc


def without_unreadable(records: Iterable[Item | UnreadableRecordError]) -> Iterator[Item]:
    """The records; an unreadable one is logged and left out."""
    for record in records:
        if isinstance(record, UnreadableRecordError):
            _log.error("record_unreadable", place=record.place, error=str(record))
        else:
            yield record


def or_raise(records: Iterable[Item | UnreadableRecordError]) -> Iterator[Item]:
    """The records. Raises UnreadableRecordError for one that cannot be read."""
    for record in records:
        if isinstance(record, UnreadableRecordError):
            raise record
        yield record


def readable(codec: Codec[T], nodes: Iterable[tuple[str, bytes]], parent: str) -> Iterator[T]:
    """The records below `parent`; an unreadable one is logged and left out."""
    return without_unreadable(decoded(codec.decode, nodes, parent))


def readable_record(codec: Codec[T], data: bytes | None, place: str) -> T | None:
    """The record of a node; None if there is no node, or if it is unreadable, which is logged."""
    if data is None:
        return None
    try:
        return codec.decode(data, place)
    except UnreadableRecordError as exc:
        _log.error("record_unreadable", place=exc.place, error=str(exc))
        return None


def read_record(calls: Calls, path: str, codec: Codec[T]) -> T | None:
    """The record of a node; None if it does not exist. Raises UnreadableRecordError."""
    data = calls.get(path)
    return None if data is None else codec.decode(data, path)


def read_secret(calls: Calls, path: str) -> bytes:
    """Read a secret key, or create it. If several processes create it, the first one wins."""
    while (key := calls.get(path)) is None:
        with suppress(NodeExistsError):
            calls.create(path, secrets.token_bytes(32))
    return key


@dataclass(frozen=True, slots=True)
class WatchCallback(Generic[Item]):
    """Calls a function with an argument. Equal for equal ones, see `Calls`."""

    function: Callable[[Item], None]
    argument: Item

    def __call__(self) -> None:
        self.function(self.argument)


class NodeStat(NamedTuple):
    """The metadata of a node."""

    owner: int
    """Session that owns an ephemeral node; 0: it is persistent."""
    children_zxid: int
    """Transaction that last created or removed a child."""
    origin: tuple[int, int]
    """Transaction that created it, and its time in milliseconds."""
    written_at: datetime | None
    """The server's time of the last write; None: the store has the clock of this host."""


class StoreTransaction(Protocol):
    """Operations that are executed together, or not at all."""

    def create(self, path: str, data: bytes = b"", /, *, ephemeral: bool = False) -> None:
        """Create a node, whose parent exists. NodeExistsError, NoNodeError."""

    def set_data(self, path: str, data: bytes) -> None:
        """Replace a node's data. NoNodeError."""

    def delete(self, path: str) -> None:
        """Delete a node without children. NoNodeError, NotEmptyError."""

    def check(self, path: str, version: int) -> None:
        """Check that a node exists in this version; -1: in any version. NoNodeError, BadVersionError."""


Build = Callable[[StoreTransaction], None]
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
    def stat(self, path: str) -> NodeStat | None:
        """Metadata of a node; None if it does not exist."""

    def owner(self, path: str) -> int | None:
        """Session that owns an ephemeral node; None if it does not exist, 0 if it is persistent."""
        stat = self.stat(path)
        return None if stat is None else stat.owner

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


StoreSession: TypeAlias = "ZooKeeperSession | SqliteSession"


def calls_on(session: StoreSession, patience: timedelta | None = None) -> Calls:
    """The calls of a session. The adapters are the same for both stores. `patience`: see `ZooKeeperCalls`."""
    if isinstance(session, ZooKeeperSession):
        from nimbus.adapters.zookeeper.calls import ZooKeeperCalls  # it imports this module

        return ZooKeeperCalls(session, patience)
    from nimbus.adapters.sqlite.calls import SqliteCalls

    return SqliteCalls(session)
