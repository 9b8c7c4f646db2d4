"""The questions an election puts to ZooKeeper, as plain values, and how steps ask them.

A step is a generator: it yields one request at a time and is sent the answer, or has the error thrown in.
The driver decides how a request travels: `leader.zookeeper.executor` over kazoo,
`leader.local.zookeeper` in memory.

    def steps() -> Steps[bool]:
        stat = yield from exists("/election/epoch")
        return stat is not None

Errors that a driver throws into a step: `NodeMissingError`, `NodeExistsError`, `VersionMismatchError`,
`NotEmptyError`, `NotPermittedError`, `TransactionFailedError` (all: ZooKeeper said no, nothing was changed)
and `ZooKeeperUnavailableError` (no answer; the outcome of a write is unknown).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from leader.errors import LeaderError, RecordError
from leader.protocol.record import record

T = TypeVar("T")

_READ_TRIES = 4

_AT_ONCE = 100
"""How many nodes one `GetEach` may ask for: its answers must come within one time limit."""


@record
class Stat:
    """What ZooKeeper knows about a node.

    Args:
        version: How often the data was written.
        owner: Session id of an ephemeral node's owner; 0 if persistent.
        created_zxid: Transaction that made it; two nodes of one path differ in it.
        modified_zxid: Transaction that last wrote it.
        modified_ms: Server's wall clock at that moment, milliseconds since 1970.
    """

    version: int
    owner: int = 0
    created_zxid: int = 0
    modified_zxid: int = 0
    modified_ms: int = 0


# --- requests ---------------------------------------------------------------------------------
# `watch`: tell the participant, once, when this changes. The watch is dropped when the connection breaks.


@record
class GetChildren:
    """-> list[str], in no order. NodeMissingError."""

    path: str
    watch: bool = False


@record
class Exists:
    """-> Stat, or None. A watch is armed in either case."""

    path: str
    watch: bool = False


@record
class Get:
    """-> (bytes, Stat). NodeMissingError, and then no watch is armed."""

    path: str
    watch: bool = False


@record
class GetEach:
    """-> for each path, in order, (bytes, Stat) or the RefusedError. All are asked before any is answered."""

    paths: tuple[str, ...]


@record
class Create:
    """-> the path made, with its sequence number. NodeExistsError; NodeMissingError for the parent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@record
class SetData:
    """-> Stat. VersionMismatchError, NodeMissingError. `version` -1 means any."""

    path: str
    data: bytes
    version: int = -1


@record
class Delete:
    """-> None. NodeMissingError, VersionMismatchError, NotEmptyError. `version` -1 means any."""

    path: str
    version: int = -1


@record
class Check:
    """In a transaction only: the node is there, in this version; -1 means any."""

    path: str
    version: int = -1


@record
class EnsurePath:
    """-> None. Makes the node and its parents, where they are missing."""

    path: str


Operation = Check | Create | SetData | Delete


@record
class Transaction:
    """-> tuple of the answers of `operations`, in order; all or none. TransactionFailedError."""

    operations: tuple[Operation, ...]


Read = GetChildren | Exists | Get | GetEach
"""What changes nothing. Any server answers it by itself."""

Write = Create | SetData | Delete | EnsurePath | Transaction
"""What goes through the ensemble's leader."""

Request = Read | Write

Steps = Generator[Request, Any, T]
"""A conversation with ZooKeeper that ends in a T."""


def drive(steps: Steps[T], answer: Callable[[Request], Any]) -> T:
    """Run `steps` on the answers that `answer` gives and the errors it raises. Raises what they raise."""
    given: Any = None
    error: Exception | None = None
    while True:
        try:
            request = steps.send(given) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        given, error = None, None
        try:
            given = answer(request)
        except Exception as exc:  # noqa: BLE001 - foreseen or not: who asked decides what becomes of it
            error = exc


# --- refusals ---------------------------------------------------------------------------------


class RefusedError(LeaderError):
    """ZooKeeper said no; nothing was changed."""

    code = "refused"
    what = "refused"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: {self.what}")
        self.path = path


class NodeMissingError(RefusedError):
    """There is no such node."""

    code = "node_missing"
    what = "there is no such node"


class NodeExistsError(RefusedError):
    """There is such a node already."""

    code = "node_exists"
    what = "there is such a node already"


class VersionMismatchError(RefusedError):
    """Somebody wrote the node since we read it."""

    code = "version_mismatch"
    what = "somebody wrote it since we read it"


class NotEmptyError(RefusedError):
    """The node has children."""

    code = "not_empty"
    what = "it has children"


class NotPermittedError(RefusedError):
    """The node's access list does not let us."""

    code = "not_permitted"
    what = "its access list does not let us; compare our credential with the node's access list"


class TransactionFailedError(LeaderError):
    """One operation of a transaction was refused, so none was done.

    Attributes:
        index: Which operation.
        cause: Why.
    """

    code = "transaction_failed"

    def __init__(self, index: int, cause: RefusedError) -> None:
        super().__init__(f"operation {index} of the transaction was refused: {cause}")
        self.index, self.cause = index, cause

    def raise_if_forbidden(self) -> None:
        """Raise the cause if it is an access list: then nothing is known of what is there."""
        if isinstance(self.cause, NotPermittedError):
            raise self.cause from self


# --- asking -----------------------------------------------------------------------------------


def get_children(path: str, *, watch: bool = False) -> Steps[list[str]]:
    """See `GetChildren`."""
    return cast("list[str]", (yield GetChildren(path, watch)))


def exists(path: str, *, watch: bool = False) -> Steps[Stat | None]:
    """See `Exists`."""
    return cast("Stat | None", (yield Exists(path, watch)))


def get(path: str, *, watch: bool = False) -> Steps[tuple[bytes, Stat]]:
    """See `Get`."""
    return cast("tuple[bytes, Stat]", (yield Get(path, watch)))


def watched(path: str) -> Steps[tuple[bytes, Stat] | None]:
    """Read a node and watch it, there or not. RecordError if it comes and goes all the time."""
    for _ in range(_READ_TRIES):
        with suppress(NodeMissingError):
            return (yield from get(path, watch=True))
        if (yield from exists(path, watch=True)) is None:
            return None
    raise RecordError(f"{path} comes and goes, {_READ_TRIES} times while we read it; find out who does that")


def get_each(paths: Sequence[str]) -> Steps[dict[str, tuple[bytes, Stat]]]:
    """Read many nodes in the time of one, by path. What is gone, or may not be read, is left out."""
    found: dict[str, tuple[bytes, Stat]] = {}
    for start in range(0, len(paths), _AT_ONCE):
        some = tuple(paths[start : start + _AT_ONCE])
        answers = yield GetEach(some)
        found |= {
            path: it for path, it in zip(some, answers, strict=True) if not isinstance(it, RefusedError)
        }
    return found


def create(path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False) -> Steps[str]:
    """See `Create`."""
    return cast("str", (yield Create(path, data, ephemeral, sequential)))


def set_data(path: str, data: bytes, version: int = -1) -> Steps[Stat]:
    """See `SetData`."""
    return cast("Stat", (yield SetData(path, data, version)))


def delete(path: str, version: int = -1) -> Steps[None]:
    """See `Delete`."""
    yield Delete(path, version)


def delete_if_there(path: str) -> Steps[None]:
    """Delete; a node that is gone already is what we wanted."""
    try:
        yield Delete(path)
    except NodeMissingError:
        return


def ensure_path(path: str) -> Steps[None]:
    """See `EnsurePath`."""
    yield EnsurePath(path)


def transaction(*operations: Operation) -> Steps[tuple[Any, ...]]:
    """See `Transaction`."""
    return cast("tuple[Any, ...]", (yield Transaction(operations)))
