"""Reads ZooKeeper's transaction log: all writes in order, with their sessions.

It shares no code with the tested programs: only the server writes these files.
Source: `org.apache.zookeeper.server.persistence.FileTxnLog`, `zookeeper.jute` of ZooKeeper 3.9.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_HEADER_BYTES = 16
_MAGIC = b"ZKLG"

ERROR, CLOSE_SESSION, CREATE_SESSION = -1, -11, -10
NAMES = {
    1: "create",
    2: "delete",
    5: "setData",
    7: "setACL",
    13: "check",
    14: "multi",
    15: "create",  # create2: the same, with the stat in the answer
    19: "create",  # a container
    20: "delete",
    21: "create",  # with a time to live
    ERROR: "error",
    CREATE_SESSION: "createSession",
    CLOSE_SESSION: "closeSession",
}
BAD_VERSION = -103
"""ZooKeeper's error code of a check whose version did not match."""


class UnreadableLogError(Exception):
    """The log has an unknown format, so no conclusion can be drawn from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One change or one check in a transaction."""

    kind: str
    path: str = ""
    data: bytes = b""
    error: int = 0
    """For an `error`: ZooKeeper's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One entry of the log, in the order of `zxid`."""

    zxid: int
    session: int
    time_ms: int
    """Wall clock of the server, since 1970."""
    kind: str
    operations: tuple[Operation, ...] = ()

    @property
    def is_committed(self) -> bool:
        """Whether it changed something. The log also has refused `multi`s, with the errors of their parts."""
        return all(operation.kind != "error" for operation in self.operations)

    @property
    def is_fenced_off(self) -> bool:
        """Whether it was refused because its first part, the check of the epoch, failed."""
        first = self.operations[0] if self.operations else None
        return first is not None and self.kind == "multi" and first.error == BAD_VERSION


def read_log(folder: Path, *, after: int = 0) -> tuple[Transaction, ...]:
    """All transactions of a server, oldest first.

    Args:
        folder: Its `version-2`; the server may be running.
        after: Leave out those up to this zxid.

    Raises:
        UnreadableLogError: a file is damaged, or has an unknown format.
    """
    found: dict[int, Transaction] = {}
    for file in sorted(folder.glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
        found |= {each.zxid: each for each in parse_file(file.read_bytes(), str(file)) if each.zxid > after}
    return tuple(found[zxid] for zxid in sorted(found))


def parse_file(data: bytes, place: str) -> Iterator[Transaction]:
    """The transactions of one file, up to the zeros that the server has allocated at its end."""
    if not data:
        return
    if data[:4] != _MAGIC:
        raise UnreadableLogError(f"{place} is no transaction log of ZooKeeper: it begins with {data[:4]!r}")
    position = FILE_HEADER_BYTES
    while position + 12 <= len(data):
        checksum, size = struct.unpack_from(">qi", data, position)
        if size == 0:
            return
        entry = data[position + 12 : position + 12 + size]
        position += 12 + size + 1
        if len(entry) < size or zlib.adler32(entry) != checksum:
            if any(data[position:]):  # not the last entry, which a running server may be writing
                raise UnreadableLogError(f"{place}: entry that ends at byte {position} is damaged")
            return
        yield _transaction(entry, place)


def _transaction(entry: bytes, place: str) -> Transaction:
    reader = _Reader(entry, place)
    session, _cxid, zxid, time_ms, number = reader.take(">qiqqi")
    kind = _name(number, place)
    if number == 14:
        count = reader.integer()
        operations = tuple(_operation(*reader.part(), place) for _ in range(count))
    else:
        operations = (_operation(number, reader, place),)
    return Transaction(zxid=zxid, session=session, time_ms=time_ms, kind=kind, operations=operations)


def _operation(number: int, reader: _Reader, place: str) -> Operation:
    kind = _name(number, place)
    match kind:
        case "error":
            return Operation(kind=kind, error=reader.integer())
        case "create" | "setData":
            return Operation(kind=kind, path=reader.text(), data=reader.buffer())
        case "delete" | "check" | "setACL":
            return Operation(kind=kind, path=reader.text())
        case _:  # the beginning or end of a session
            return Operation(kind=kind)


def _name(number: int, place: str) -> str:
    try:
        return NAMES[number]
    except KeyError:
        raise UnreadableLogError(f"{place}: transaction type {number} is not known") from None


class _Reader:
    """Reads jute, ZooKeeper's serialisation format."""

    def __init__(self, data: bytes, place: str) -> None:
        self._data, self._at, self._place = data, 0, place

    def take(self, form: str) -> tuple[int, ...]:
        try:
            values = struct.unpack_from(form, self._data, self._at)
        except struct.error as exc:
            raise UnreadableLogError(f"{self._place}: an entry is too short ({exc})") from exc
        self._at += struct.calcsize(form)
        return values

    def integer(self) -> int:
        return self.take(">i")[0]

    def buffer(self) -> bytes:
        size = max(0, self.integer())  # -1 stands for "no data"
        if self._at + size > len(self._data):
            raise UnreadableLogError(f"{self._place}: an entry is too short for {size} bytes of data")
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.buffer().decode()

    def part(self) -> tuple[int, _Reader]:
        """One operation of a `multi`."""
        number = self.integer()
        return number, _Reader(self.buffer(), self._place)
