"""Watches over whole trees of nodes, which kazoo does not know: `addWatch`, since ZooKeeper 3.6.

Such a watch stays until the connection ends, and tells of each node below its path that comes, goes or
changes. Servers before 3.9 mix it up with another watch of the same session on the same path, so a session
that has them should have no others.

Source: `org.apache.zookeeper.proto.AddWatchRequest`, ZOOKEEPER-1416, ZOOKEEPER-4466.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.serialization import int_struct, write_string
from kazoo.protocol.states import WatchedEvent

ToldBelow = Callable[[WatchedEvent], None]
"""Called on kazoo's connection thread, for each event of a session: it must only enqueue."""
_PERSISTENT_RECURSIVE = 1


@dataclass(frozen=True)
class AddWatch:
    """The request, in the form in which kazoo's connection wants it."""

    path: str
    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        """Path and mode."""
        written: bytes = write_string(self.path) + int_struct.pack(_PERSISTENT_RECURSIVE)
        return written

    @classmethod
    def deserialize(cls, _answer: bytes, _offset: int) -> None:
        """The answer says nothing but that it is done."""


def watch_below_async(client: Any, path: str) -> Any:
    """Like kazoo's `*_async`: watch a node, which need not be there, and all below it."""
    answer = client.handler.async_result()
    client._call(AddWatch(_prefix_root(client.chroot, path)), answer)
    return answer
