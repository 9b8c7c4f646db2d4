"""Reads ZooKeeper's transaction log, which does not depend on an adapter.

Source: ZooKeeper 3.9, `FileTxnLog` and `zookeeper.jute` (FileHeader, TxnHeader, MultiTxn, CreateTxn,
SetDataTxn).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_FILE_HEADER = 16
_HEADER = struct.Struct(">qiqqi")
_INT = struct.Struct(">i")
_ENTRY = struct.Struct(">qi")
_CREATES = (1, 15)
_SET = 5
_MULTI = 14


class NodeWrite(NamedTuple):
    """One node that a transaction created or changed."""

    path: str
    size_bytes: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One committed transaction.

    Args:
        session: Id of the session that requested it.
        at_ms: Time on the server's wall clock.
        size_bytes: Size in the log.
    """

    session: int
    zxid: int
    at_ms: int
    size_bytes: int
    writes: tuple[NodeWrite, ...]


def entries(data_dir: Path, after_zxid: int = 0) -> Iterator[Entry]:
    """All transactions after `since`, oldest first. The server may write at the same time."""
    logs = sorted(data_dir.glob("version-2/log.*"), key=lambda log: int(log.suffix[1:], 16))
    for log in logs:
        yield from (entry for entry in _read(log.read_bytes()) if entry.zxid > after_zxid)


def _read(data: bytes) -> Iterator[Entry]:
    place = _FILE_HEADER
    while place + _ENTRY.size <= len(data):
        _checksum, length = _ENTRY.unpack_from(data, place)
        if length <= 0:  # allocated in advance, not written yet
            return
        begin = place + _ENTRY.size
        session, _cxid, zxid, at_ms, kind = _HEADER.unpack_from(data, begin)
        place = begin + length + 1
        writes = tuple(_writes(kind, data, begin + _HEADER.size))
        yield Entry(session, zxid, at_ms, _ENTRY.size + length + 1, writes)


def _writes(kind: int, data: bytes, place: int) -> Iterator[NodeWrite]:
    if kind == _MULTI:
        (count,) = _INT.unpack_from(data, place)
        place += _INT.size
        for _ in range(count):
            inner, length = struct.unpack_from(">ii", data, place)
            place += 2 * _INT.size
            yield from _writes(inner, data, place)
            place += length
    elif kind in (*_CREATES, _SET):
        (length,) = _INT.unpack_from(data, place)
        place += _INT.size
        path = data[place : place + length].decode()
        (size,) = _INT.unpack_from(data, place + length)
        yield NodeWrite(path, max(0, size), kind != _SET)
