"""Columns of a published table, from the footer of its first Parquet file, for people to see.

A file that is broken or unusual has no columns, and nothing fails. The beginning of the footer is read here,
and not by a library: that would parse the task's bytes in the process that ends the attempt.

Source: Apache Parquet, `parquet.thrift` (SchemaElement, LogicalType); Apache Thrift, compact protocol.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from nimbus.domain.data.publications import Table
from nimbus.worker.data.tree import folders_of

MAX_COLUMNS = 100
MAX_BYTES = 4096
"""Limit of the columns as JSON: END has them."""
_MAX_TYPE = 200
"""Characters of a type; the rest is cut."""
_MAX_FOOTER = 1 << 20
_DEEPEST = 40
_LONGEST = 63
"""Bits of a number."""
_TAIL = 8
_MAIN = "data"
"""The folder of the table that SQL tasks see under the name of the read."""
_SCHEMA = 2
_TYPE, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = 1, 3, 4, 5, 6, 7, 8, 10
"""Fields of SchemaElement."""
_REPEATED = 2
_MAP, _LIST, _DECIMAL, _TIMESTAMP, _INTEGER = 2, 3, 5, 8, 10
"""Fields of LogicalType."""
_OLD_LISTS, _OLD_MAPS, _OLD_DECIMAL = (3,), (1, 2), 5
"""Values of ConvertedType."""
_PRIMITIVES = ("boolean", "int", "bigint", "timestamp", "float", "double", "binary", "binary")
_LOGICAL_NAMES = {1: "string", 4: "string", 6: "date", 7: "time", 11: "void", 12: "json", 13: "bson"}
_CONVERTED_NAMES = {
    0: "string",
    4: "string",
    6: "date",
    7: "time",
    8: "time",
    9: "timestamp",
    10: "timestamp",
}
_INTEGERS = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}


def table_in(output: Path) -> Table | None:
    """The columns of the table in an output: of that in its folder `data`, or of its first Parquet file.

    Names and types as in Spark SQL; a column that only names of folders have is of type `partition`. None: no
    such file, or it cannot be read.
    """
    try:
        return next((table for top in (output / _MAIN, output) for table in _tables(top)), None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # whatever the task has written there


def _tables(top: Path) -> Iterator[Table]:
    if top.is_symlink() or not top.is_dir():
        return
    for folder in folders_of(top, other=lambda _path: None):
        for name in folder.files:
            if name.endswith(".parquet") and name[0] not in "._":
                columns = {node.name: node.shown for node in _columns(_footer(name, folder.fd))}
                keys = [part.partition("=")[0] for part in folder.path.split("/") if "=" in part]
                yield _bounded(columns | {unquote(key): "partition" for key in keys})


def _bounded(columns: Mapping[str, str]) -> Table:
    shown: dict[str, str] = {}
    for name, kind in columns.items():
        more = {**shown, name: kind if len(kind) <= _MAX_TYPE else f"{kind[: _MAX_TYPE - 1]}…"}
        if len(more) > MAX_COLUMNS or len(json.dumps(more)) > MAX_BYTES:
            break
        shown = more
    return Table(columns=shown, more=len(columns) - len(shown))


def _footer(name: str, folder: int) -> bytes:
    """The beginning of a file's footer. Raises ValueError: it has none, or is encrypted."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size < _TAIL:
            raise ValueError(f"{name} is no Parquet file")
        tail = os.pread(fd, _TAIL, status.st_size - _TAIL)
        start = status.st_size - _TAIL - int.from_bytes(tail[:4], "little")
        if tail[4:] != b"PAR1" or start < 0:
            raise ValueError(f"{name} has no footer")
        return os.pread(fd, min(_MAX_FOOTER, status.st_size - _TAIL - start), start)
    finally:
        os.close(fd)


@dataclass(frozen=True)
class _Node:
    said: Mapping[int, Any]
    below: list[_Node]

    @property
    def name(self) -> str:
        return str(self.said[_NAME].decode())

    @property
    def shown(self) -> str:
        return f"array<{self.type}>" if self.said.get(_REPETITION) == _REPEATED else self.type

    @property
    def type(self) -> str:
        """Its type, without regard to its repetition."""
        logical, converted = self.said.get(_LOGICAL, {}), self.said.get(_CONVERTED)
        if _CHILDREN not in self.said:
            return self._primitive(logical, converted)
        inner = self.below[0] if self.below else self
        if _LIST in logical or converted in _OLD_LISTS:
            return f"array<{inner.below[0].shown if len(inner.below) == 1 else inner.type}>"
        if _MAP in logical or converted in _OLD_MAPS:
            return f"map<{','.join(node.shown for node in inner.below)}>"
        return f"struct<{','.join(f'{node.name}:{node.shown}' for node in self.below)}>"

    def _primitive(self, logical: Mapping[int, Any], converted: int | None) -> str:
        if _DECIMAL in logical or converted == _OLD_DECIMAL:
            return f"decimal({self.said.get(_PRECISION, 0)},{self.said.get(_SCALE, 0)})"
        if _TIMESTAMP in logical:
            return "timestamp" if logical[_TIMESTAMP].get(1) else "timestamp_ntz"
        if _INTEGER in logical:
            return _INTEGERS[logical[_INTEGER][1]] + ("" if logical[_INTEGER].get(2) else " unsigned")
        named = next((_LOGICAL_NAMES[field] for field in logical if field in _LOGICAL_NAMES), None)
        named = named or _CONVERTED_NAMES.get(-1 if converted is None else converted)
        return named or _PRIMITIVES[self.said[_TYPE]]


def _columns(footer: bytes) -> list[_Node]:
    for field, value in _Compact(footer).fields():
        if field == _SCHEMA:
            return _node(iter(value), 0).below
    raise ValueError("no schema")


def _node(elements: Iterator[Mapping[int, Any]], depth: int) -> _Node:
    """The next element, with those below it."""
    said = next(elements, None)
    if said is None or depth > _DEEPEST:
        raise ValueError("the schema is cut off, or nested too deep")
    return _Node(said, [_node(elements, depth + 1) for _ in range(said.get(_CHILDREN, 0))])


class _Compact:
    """A reader of Thrift's compact protocol. Raises IndexError at the end of the bytes, ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def fields(self, depth: int = 0) -> Iterator[tuple[int, Any]]:
        """The fields of a struct, by number."""
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            yield field, kind == 1 if kind in (1, 2) else self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        match kind:
            case 1 | 2:  # an element of a list
                return self._byte() == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                head = self._byte()
                size = head >> 4 if head >> 4 != 15 else self._varint()
                return [self._value(head & 15, depth + 1) for _ in range(size)]
            case 12:
                return dict(self.fields(depth + 1))
            case _:
                raise ValueError(f"type {kind}")

    def _signed(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number |= (byte & 127) << shift
            shift += 7
            if shift > _LONGEST:
                raise ValueError("a number is too long")
        return number | byte << shift

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ValueError("cut off")
        self._at += size
        return self._data[self._at - size : self._at]
