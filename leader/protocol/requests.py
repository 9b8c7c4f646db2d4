"""Requests to ZooKeeper as values, and generators (steps) that send them.

Steps yield one request at a time and are sent its answer, or its error is thrown into them.
`leader.zookeeper.executor` executes the requests over kazoo, `leader.local.zookeeper` in memory.

    def steps() -> Steps[bool]:
        stat = yield from exists("/election/epoch")
        return stat is not None

Errors that are thrown into steps: `NodeMissingError`, `NodeExistsError`, `VersionMismatchError`,
`NotEmptyError`, `NotPermittedError`, `TransactionFailedError` (all: ZooKeeper refused, nothing was changed)
and `ZooKeeperUnavailableError` (no answer; the outcome of a write is unknown).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar, cast

from leader.errors import LeaderError, RecordError
from leader.protocol.record import record

T = TypeVar("T")

_READ_TRIES = 4

_MAX_PATHS = 100
"""Limit of nodes in one `GetEach`: all its answers must come within one time limit."""


@record
class Stat:
    """What ZooKeeper stores about a node.

    Args:
        owner: Session id of an ephemeral node's owner; 0 if persistent.
        created_zxid: Transaction that created it. Two nodes that had one path, one after the other, differ.
        modified_zxid: Transaction that last wrote it.
        modified_ms: Server's wall clock at that write, milliseconds since 1970.
    """

    version: int
    owner: int = 0
    created_zxid: int = 0
    modified_zxid: int = 0
    modified_ms: int = 0


# --- requests ---------------------------------------------------------------------------------
# Each docstring begins with the type of the answer and names the errors.
# `watch`: set a watch, which fires once when this changes. It is dropped when the connection breaks.


@record
class GetChildren:
    """-> list[str], without an order. NodeMissingError."""

    path: str
    watch: bool = False


@record
class Exists:
    """-> Stat, or None. A watch is set in both cases."""

    path: str
    watch: bool = False


@record
class Get:
    """-> (bytes, Stat). NodeMissingError, and then no watch is set."""

    path: str
    watch: bool = False


@record
class GetEach:
    """-> for each path, in order, (bytes, Stat) or the RefusedError. All are sent before the first answer."""

    paths: tuple[str, ...]


@record
class Create:
    """-> the created path, with its sequence number. NodeExistsError; NodeMissingError for the parent."""

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
    """In a transaction only: the node exists, in this version; -1 means any."""

    path: str
    version: int = -1


@record
class EnsurePath:
    """-> None. Creates the node and its parents if they are missing."""

    path: str


Operation = Check | Create | SetData | Delete


@record
class Transaction:
    """-> tuple of the answers of `operations`, in order. Applies all or none. TransactionFailedError."""

    operations: tuple[Operation, ...]


Read = GetChildren | Exists | Get | GetEach
"""Requests that change nothing. A server answers them without the other servers."""

Write = Create | SetData | Delete | EnsurePath | Transaction
"""Requests that go through the ensemble's leader."""

Request = Read | Write

Steps = Generator[Request, Any, T]
"""A generator that sends requests to ZooKeeper and returns a T."""


def drive(steps: Steps[T], answer: Callable[[Request], Any]) -> T:
    """Run `steps`; `answer` executes each request. Return their result, and raise what they raise."""
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
        except Exception as exc:  # noqa: BLE001 - the steps handle every exception, or raise it
            error = exc


# --- refusals ---------------------------------------------------------------------------------


class RequestRefusedError(LeaderError):
    """ZooKeeper refused a request; nothing was changed."""

    code = "refused"
    what = "refused"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: {self.what}")
        self.path = path


class NodeMissingError(RequestRefusedError):
    """The node does not exist."""

    code = "node_missing"
    what = "the node does not exist"


class NodeExistsError(RequestRefusedError):
    """The node exists already."""

    code = "node_exists"
    what = "the node exists already"


class VersionMismatchError(RequestRefusedError):
    """The node was changed after it was read."""

    code = "version_mismatch"
    what = "the node was changed after it was read"


class NotEmptyError(RequestRefusedError):
    """The node has children."""

    code = "not_empty"
    what = "the node has children"


class NotPermittedError(RequestRefusedError):
    """The node's access list forbids the request."""

    code = "not_permitted"
    what = "the node's access list forbids this request; compare it with the session's credential"


class TransactionFailedError(LeaderError):
    """One operation of a transaction was refused, so none was applied.

    Attributes:
        index: Index of the operation, counted from 0.
    """

    code = "transaction_failed"

    def __init__(self, index: int, cause: RequestRefusedError) -> None:
        super().__init__(f"operation {index} of the transaction was refused: {cause}")
        self.index, self.cause = index, cause

    def raise_if_forbidden(self) -> None:
        """Raise the cause if an access list refused the operation: the state of the node is then unknown."""
        if isinstance(self.cause, NotPermittedError):
            raise self.cause from self


# --- steps ------------------------------------------------------------------------------------


def get_children(path: str, *, watch: bool = False) -> Steps[list[str]]:
    """See `GetChildren`."""
    return cast("list[str]", (yield GetChildren(path, watch)))


def children_if_there(path: str) -> Steps[list[str]]:
    """Names of the children; none if the node is missing."""
    try:
        return (yield from get_children(path))
    except NodeMissingError:
        return []


def exists(path: str, *, watch: bool = False) -> Steps[Stat | None]:
    """See `Exists`."""
    return cast("Stat | None", (yield Exists(path, watch)))


def get(path: str, *, watch: bool = False) -> Steps[tuple[bytes, Stat]]:
    """See `Get`."""
    return cast("tuple[bytes, Stat]", (yield Get(path, watch)))


def get_if_there(path: str, *, watch: bool = False) -> Steps[tuple[bytes, Stat] | None]:
    """Read a node; None if it is missing, and then no watch is set."""
    try:
        return (yield from get(path, watch=watch))
    except NodeMissingError:
        return None


def watched(path: str) -> Steps[tuple[bytes, Stat] | None]:
    """Read a node and watch it; None if it is missing. RecordError if it is made and deleted repeatedly."""
    for _ in range(_READ_TRIES):
        node = yield from get_if_there(path, watch=True)
        if node is not None:
            return node
        if (yield from exists(path, watch=True)) is None:
            return None
    raise RecordError(f"{path} was created and deleted {_READ_TRIES} times during one read; find that client")


def get_each(paths: Sequence[str]) -> Steps[dict[str, tuple[bytes, Stat]]]:
    """Read many nodes in about the time of one, by path. Missing and forbidden nodes are left out."""
    nodes: dict[str, tuple[bytes, Stat]] = {}
    for start in range(0, len(paths), _MAX_PATHS):
        some = tuple(paths[start : start + _MAX_PATHS])
        answers = yield GetEach(some)
        nodes |= {
            path: it
            for path, it in zip(some, answers, strict=True)
            if not isinstance(it, RequestRefusedError)
        }
    return nodes


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
    """Delete a node, if it exists."""
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
