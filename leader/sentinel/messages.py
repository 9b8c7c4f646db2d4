"""The lines that the guarded process writes into the pipe to its sentinel, each in one write.

A line is far below PIPE_BUF, so it arrives whole or not at all, also from a process that dies meanwhile.
"""

from __future__ import annotations

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
