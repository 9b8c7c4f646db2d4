"""Encodes and decodes the lines in the pipe to the sentinel, and the frames that close a session. No I/O.

The guarded process writes each line with one write. A line is far below PIPE_BUF, so it arrives whole or not
at all, even if the process dies meanwhile.

Source: zookeeper.jute (ConnectRequest, ConnectResponse, RequestHeader, ReplyHeader); ZooDefs.OpCode.
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class Handoff(NamedTuple):
    """What the program needs to close a session."""

    session_id: int
    password: bytes
    timeout_ms: int
    """The session timeout that the server granted: the session lives this long after its last packet."""


class MessageError(ValueError):
    """A line is no message. Only a defect, or another version of the program, can cause it."""


FORGET = b"forget\n"
"""The session is closed; the program must not close it."""


def handoff_line(handoff: Handoff) -> bytes:
    """Return the line that sends a session to the program."""
    words = ("session", f"{handoff.session_id:x}", handoff.password.hex(), str(handoff.timeout_ms))
    return " ".join(words).encode() + b"\n"


def read_line(line: bytes) -> Handoff | None:
    """Return the session in a line; None for `FORGET`. MessageError if it is neither."""
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
        raise MessageError("a session's id, password or timeout is invalid") from None


LONGEST_FRAME_BYTES = 1 << 16
"""Limit of a frame. ZooKeeper's answers to these requests are below 100 bytes."""
LENGTH_BYTES = 4
CLOSE_XID = 1

_CLOSE_SESSION = -11
_CONNECT_HEAD = struct.Struct(">iqiqi")  # version, last zxid seen, timeout, session id, password's length
_ANSWER_HEAD = struct.Struct(">iiq")  # version, timeout, session id
_REPLY_HEADER = struct.Struct(">iqi")  # xid, zxid, error


class WireError(Exception):
    """An answer is not one of ZooKeeper's, or is a refusal."""


def frame(payload: bytes) -> bytes:
    """Return the length of a payload, followed by the payload."""
    return struct.pack(">i", len(payload)) + payload


def frame_length(prefix: bytes) -> int:
    """Return the length of the payload that follows.

    WireError if it is negative or above `LONGEST_FRAME_BYTES`.
    """
    length: int = struct.unpack(">i", prefix)[0]
    if not 0 <= length <= LONGEST_FRAME_BYTES:
        raise WireError(f"a frame of {length} bytes was announced")
    return length


def attach_request(session_id: int, password: bytes, timeout_ms: int) -> bytes:
    """Return the frame that attaches this connection to an existing session.

    Its last seen transaction is 0, so a server that is behind does not refuse. A read-only server is not
    accepted, because it cannot close a session.
    """
    head = _CONNECT_HEAD.pack(0, 0, timeout_ms, session_id, len(password))
    return frame(head + password + b"\x00")


def is_attached(answer: bytes, session_id: int) -> bool:
    """True when the server attached this connection to the session; False when the session is over.

    WireError if the answer is too short, or contains another session.
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
    """Return the frame that closes the session of this connection."""
    return frame(struct.pack(">ii", CLOSE_XID, _CLOSE_SESSION))


def is_closed(reply: bytes) -> bool:
    """True when this is the answer to `close_request`; ignore other replies (notifications).

    WireError if it is too short, or a refusal.
    """
    if len(reply) < _REPLY_HEADER.size:
        raise WireError(f"a reply has {len(reply)} bytes")
    xid, _zxid, error = _REPLY_HEADER.unpack_from(reply)
    if xid != CLOSE_XID:
        return False
    if error:
        raise WireError(f"closing the session was refused with error {error}")
    return True
