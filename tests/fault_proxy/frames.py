"""The parts of ZooKeeper's frames that a proxy must know. Pure.

A frame is a length of four bytes and that many bytes. A request begins with xid and opcode, a reply with the
xid it answers. The first frame of either side is the handshake, which has neither.

Source: ZooKeeper's `ZooDefs.OpCode` and `zookeeper.jute`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

_LENGTH = 4
_LARGEST_FRAME = 1 << 28
"""A larger number is not a length: a four-letter word such as `srvr` is a number above 10^9."""


class Op(IntEnum):
    """Kind of a request. The numbers are those of the protocol."""

    HANDSHAKE = -10
    """It has no opcode in the protocol; ZooKeeper's own log uses this number for a new session."""
    CLOSE = -11
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106


HANDSHAKE_XID = Op.HANDSHAKE.value
"""Replaces the xid of the handshake, which has none."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the server.

    Args:
        op: An `Op`, or the number if it is not one.
        xid: The client's number for it; negative for special requests such as pings.
        payload: The whole frame, without its length.
        connection: Number of the connection through the proxy, counted from 1.
    """

    op: int
    xid: int
    payload: bytes
    connection: int

    def mentions(self, text: str) -> bool:
        """Whether it contains `text`: a path, or a part of one, also inside a transaction."""
        return text.encode() in self.payload


class Splitter:
    """Splits a stream of bytes into frames. A stream that does not begin with a frame is forwarded unchanged.

    Args:
        framed: False: never search for frames.
    """

    def __init__(self, *, framed: bool = True) -> None:
        self._framed = framed
        self._rest = bytearray()

    @property
    def framed(self) -> bool:
        """Whether the stream still looks like frames."""
        return self._framed

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes, and return the pieces that are complete now; a frame includes its length."""
        self._rest += data
        while self._framed and len(self._rest) >= _LENGTH:
            length = int.from_bytes(self._rest[:_LENGTH], signed=True)
            if not 0 <= length <= _LARGEST_FRAME:
                self._framed = False
                break
            if len(self._rest) < _LENGTH + length:
                return
            yield bytes(self._rest[: _LENGTH + length])
            del self._rest[: _LENGTH + length]
        if not self._framed and self._rest:
            yield bytes(self._rest)
            self._rest.clear()


def read_request(frame: bytes, *, connection: int, first: bool) -> Request:
    """Read a frame of a client; the `first` one is the handshake."""
    payload = frame[_LENGTH:]
    if first:
        return Request(Op.HANDSHAKE, HANDSHAKE_XID, payload, connection)
    xid, number = (int.from_bytes(payload[at : at + 4], signed=True) for at in (0, 4))
    return Request(Op(number) if number in _NUMBERS else number, xid, payload, connection)


def read_reply_xid(frame: bytes, *, first: bool) -> int:
    """The xid of the request that a server's frame answers."""
    return HANDSHAKE_XID if first else int.from_bytes(frame[_LENGTH : _LENGTH + 4], signed=True)


_NUMBERS = frozenset(op.value for op in Op)
