"""Bytes in, bytes out: the lines in the pipe to the sentinel, and the frames that end a session.

The guarded process writes each line in one write. A line is far below PIPE_BUF, so it arrives whole or not at
all, also from a process that dies meanwhile.

Source: zookeeper.jute (ConnectRequest, ConnectResponse, RequestHeader, ReplyHeader); ZooDefs.OpCode.
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class Handoff(NamedTuple):
    """All that is needed to end a session."""

    session_id: int
    password: bytes
    timeout_ms: int
    """What the server granted: how long the session outlives the last word of its process."""


class MessageError(ValueError):
    """A line that is no message. Only a defect, or another version of the program, sends one."""


FORGET = b"forget\n"
"""The session is over; there is nothing to end."""


def handoff_line(handoff: Handoff) -> bytes:
    """The line that hands a session over."""
    words = ("session", f"{handoff.session_id:x}", handoff.password.hex(), str(handoff.timeout_ms))
    return " ".join(words).encode() + b"\n"


def read_line(line: bytes) -> Handoff | None:
    """A session handed over; None: forget it.

    Raises:
        MessageError: this is neither.
    """
    if line == FORGET.rstrip():
        return None
    words = line.decode("ascii", "replace").split(" ")
    if len(words) != 4 or words[0] != "session":
        raise MessageError(
            f"a line of {len(line)} bytes is no message"
        )  # not the line: it may hold a password
    try:
        return Handoff(int(words[1], 16), bytes.fromhex(words[2]), int(words[3]))
    except ValueError:
        raise MessageError("a session's id, password or timeout cannot be read") from None


LONGEST_FRAME_BYTES = 1 << 16
"""Answers to these requests are below 100 bytes. A longer frame is not ZooKeeper's."""
LENGTH_BYTES = 4
CLOSE_XID = 1

_CLOSE_SESSION = -11
_CONNECT_HEAD = struct.Struct(">iqiqi")  # version, last zxid seen, timeout, session id, password's length
_ANSWER_HEAD = struct.Struct(">iiq")  # version, timeout, session id
_REPLY_HEADER = struct.Struct(">iqi")  # xid, zxid, error


class WireError(Exception):
    """An answer that is not ZooKeeper's."""


def frame(payload: bytes) -> bytes:
    """A payload behind its length."""
    return struct.pack(">i", len(payload)) + payload


def frame_length(prefix: bytes) -> int:
    """How long the payload is that follows.

    Raises:
        WireError: no ZooKeeper says such a thing.
    """
    length: int = struct.unpack(">i", prefix)[0]
    if not 0 <= length <= LONGEST_FRAME_BYTES:
        raise WireError(f"a frame of {length} bytes was announced")
    return length


def attach_request(session_id: int, password: bytes, timeout_ms: int) -> bytes:
    """Take over a session that exists.

    The last transaction seen is given as 0, so that no server refuses because it is behind. A read-only
    server is not accepted: it could not close anything.
    """
    head = _CONNECT_HEAD.pack(0, 0, timeout_ms, session_id, len(password))
    return frame(head + password + b"\x00")


def is_attached(answer: bytes, session_id: int) -> bool:
    """Whether the server gave this connection the session. It does not if the session is over.

    Raises:
        WireError: the answer is cut short, or it gives another session than the one asked for.
    """
    if len(answer) < _ANSWER_HEAD.size:
        raise WireError(f"an answer to a connection has {len(answer)} bytes")
    _version, timeout_ms, given = _ANSWER_HEAD.unpack_from(answer)
    if timeout_ms <= 0:
        return False
    if given != session_id:
        raise WireError(f"asked for session {session_id:#x}, got {given:#x}")
    return True


def close_request() -> bytes:
    """Close the session of this connection."""
    return frame(struct.pack(">ii", CLOSE_XID, _CLOSE_SESSION))


def is_closed(reply: bytes) -> bool:
    """Whether this is the answer to `close_request`; others (notifications) are to be passed over.

    Raises:
        WireError: the reply is cut short, or it is a refusal.
    """
    if len(reply) < _REPLY_HEADER.size:
        raise WireError(f"a reply has {len(reply)} bytes")
    xid, _zxid, error = _REPLY_HEADER.unpack_from(reply)
    if xid != CLOSE_XID:
        return False
    if error:
        raise WireError(f"closing the session was refused with error {error}")
    return True
