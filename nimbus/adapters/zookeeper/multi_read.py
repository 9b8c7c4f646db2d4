"""Requests about many nodes at once, which kazoo lacks: ZooKeeper's `multiRead` (since 3.6) and `setWatches`.

One request for each node would cost 0.1 ms each. `multiRead` itself cannot arm watches.

Source: `org.apache.zookeeper.MultiOperationRecord`, `MultiResponse`, `SetWatches`; `DataTree.setWatches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Literal, get_args

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    MultiHeader,
    int_struct,
    long_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_string,
)

DATA, NAMES = GetData.type, GetChildren.type
"""What to read of a node: its data, or the names of its children."""
_HEADERS: Mapping[int, bytes] = {kind: MultiHeader(kind, False, -1).serialize() for kind in (DATA, NAMES)}
_END: bytes = MultiHeader(-1, True, -1).serialize()
_UNWATCHED = b"\0"

WatchKind = Literal["data", "existence", "children"]
"""In the order of the request's lists."""
Watchers = Mapping[str, Callable[[object], None]]


@dataclass(frozen=True)
class MultiRead:
    """The request, in the form of kazoo's requests: `DATA` or `NAMES`, and the path, of each node."""

    reads: Sequence[tuple[int, str]]
    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        """Serialize like a transaction, with reads instead of writes."""
        parts = ((_HEADERS[kind], write_string(path), _UNWATCHED) for kind, path in self.reads)
        return b"".join((*chain.from_iterable(parts), _END))

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[Any]:
        """The data (bytes) or the names (list) of each node; None if a node does not exist.

        Raises:
            kazoo.exceptions.ZookeeperError: permission to read one is missing.
        """
        children: list[Any] = []
        kind, done, offset = _header(answer, offset)
        while not done:
            if kind == DATA:
                data, offset = read_buffer(answer, offset)
                children.append(data)
                offset += stat_struct.size
            elif kind == NAMES:
                names, offset = _names(answer, offset)
                children.append(names)
            else:
                (code,) = int_struct.unpack_from(answer, offset)
                offset += int_struct.size
                if EXCEPTIONS[code] is not NoNodeError:
                    raise EXCEPTIONS[code]
                children.append(None)
            kind, done, offset = _header(answer, offset)
        return children


def _header(answer: bytes, offset: int) -> tuple[int, bool, int]:
    kind, done, _ = multiheader_struct.unpack_from(answer, offset)
    return kind, done, offset + multiheader_struct.size


def _names(answer: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = int_struct.unpack_from(answer, offset)
    offset += int_struct.size
    names = []
    for _ in range(count):
        name, offset = read_string(answer, offset)
        names.append(name)
    return names, offset


@dataclass(frozen=True)
class SetWatches:
    """The request that arms watches of one kind, in the form of kazoo's requests.

    The server fires at once the watches on data or children that have changed since `zxid`, and those on the
    existence of nodes that exist.
    """

    client: Any = field(repr=False)
    zxid: int
    kind: WatchKind
    watchers: Watchers
    type: ClassVar[int] = 101

    def serialize(self) -> bytes:
        """Serialize, and tell kazoo the callbacks.

        kazoo calls this on its connection thread before it sends the request, so no event arrives too early.
        """
        known = self.client._child_watchers if self.kind == "children" else self.client._data_watchers
        for path, watcher in self.watchers.items():
            known[path].add(watcher)
        lists = (self.watchers if kind == self.kind else () for kind in get_args(WatchKind))
        return b"".join((long_struct.pack(self.zxid), *map(_strings, lists)))

    @classmethod
    def deserialize(cls, _answer: bytes, _offset: int) -> None:
        """Return nothing: the answer has no content."""


def _strings(texts: Iterable[str]) -> bytes:
    written = [write_string(text) for text in texts]
    return b"".join((int_struct.pack(len(written)), *written))


def multi_read_async(client: Any, reads: Iterable[tuple[int, str]]) -> Any:
    """Like kazoo's `get_async`, for many nodes; see `MultiRead`."""
    answer = client.handler.async_result()
    client._call(MultiRead([(kind, client.chroot + path) for kind, path in reads]), answer)
    return answer


def set_watches_async(client: Any, zxid: int, kind: WatchKind, watchers: Watchers) -> Any:
    """Like kazoo's `get_async` with a watch, for many nodes; see `SetWatches`."""
    answer = client.handler.async_result()
    below = {client.chroot + path: watcher for path, watcher in watchers.items()}
    client._call(SetWatches(client, zxid, kind, below), answer)
    return answer
