"""A participant's history during the faults: one line of JSON for each action or callback.

Each line has the times before and after it, by CLOCK_BOOTTIME, which all processes of a machine share. So it
is certain whether two actions overlapped: they did not if one began after the other had ended.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Did(Enum):
    """The kinds of actions and callbacks."""

    STARTED = "started"
    CONFIRMED = "confirmed"
    """`elected` was called."""
    REVOKED = "revoked"
    """`revoked` was called."""
    OBSERVED = "observed"
    """`is_leader()` was True."""
    DENIED = "denied"
    """`is_leader()` was False. Only the first time in a row, and the first time after a gap."""
    WROTE = "wrote"
    """A fenced write was accepted."""
    FENCED = "fenced"
    """A fenced write was refused."""
    UNKNOWN = "unknown"
    """A fenced write got no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One action or callback of a participant.

    Args:
        name: Name of the participant.
        boot: Boot id of its process.
        did: Kind of the action or callback.
        before_ns: It began after this time.
        after_ns: It had ended at this time.
        epoch: The leadership that it was about.
        zxid: For an accepted write: its transaction id.
        gap_ns: For OBSERVED and DENIED: time since the previous answer.
        why: For REVOKED: the reason.
    """

    name: str
    boot: str
    did: Did
    before_ns: int
    after_ns: int
    epoch: int | None = None
    zxid: int | None = None
    gap_ns: int | None = None
    why: str = ""

    def to_json(self) -> bytes:
        """The action as one line, without fields that have their default."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["did"] = self.did.value
        return json.dumps({name: value for name, value in fields.items() if value not in (None, "")}).encode()


def parse(text: bytes) -> Line:
    """Read a line."""
    fields = json.loads(text)
    return Line(**(fields | {"did": Did(fields["did"])}))


class Pen:
    """Appends lines to a file so that SIGKILL loses no line that was begun. Any thread may call it."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, line: Line) -> None:
        """Append a line with one system call."""
        os.write(self._file, line.to_json() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Reader:
    """Reads a file that grows."""

    def __init__(self, file: Path) -> None:
        self._file, self._read, self._rest = file, 0, b""

    def news(self) -> list[Line]:
        """The lines that were completed since the last call."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return []
        self._read += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [parse(line) for line in whole]
