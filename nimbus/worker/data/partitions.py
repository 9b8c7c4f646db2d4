"""Partition columns of a table: their values are in folders, `day=2026-01-01/region=eu`, as in Spark.

The types of the columns are in the metadata of each file. Pure; pyarrow is imported when it is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Optional, Tuple

if TYPE_CHECKING:
    import pyarrow as pa

Values = Tuple[Tuple[str, Optional[str]], ...]
"""Partition columns of a file, with the text of their values; None: null."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_KEY = b"nimbus.partitions"
_ROW = "\0row"


def columns_of(option: str) -> tuple[str, ...]:
    """Names in the option `partitionBy`, separated by commas."""
    return tuple(name.strip() for name in option.split(",") if name.strip())


def fault_of(names: Sequence[str], schema: pa.Schema) -> str | None:
    """Why a table of this schema cannot be partitioned by these columns; None: it can."""
    import pyarrow as pa

    if len(set(names)) < len(names):
        return f"partitionBy has a column twice: {', '.join(names)}"
    for name in names:
        if name not in schema.names:
            return f"partitionBy has {name}, and the table has {', '.join(schema.names)}"
        kind = schema.field(name).type
        fits = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)
        if not (fits or _is_text(kind)):
            return f"partitionBy has {name} of type {kind}: cast it to a string, integer, boolean or date"
    if len(names) == len(schema.names):
        return "partitionBy has all columns of the table, and a file needs one"
    return None


def split(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each partition, without its columns, with its folder; "" without `names`."""
    import pyarrow as pa

    if not names:
        yield "", batch
        return
    texts = [batch[name].cast(pa.string()) for name in names]
    rows = batch.select([name for name in batch.schema.names if name not in names])
    numbered = pa.table([*texts, pa.array(range(batch.num_rows), pa.int64())], names=[*names, _ROW])
    for group in numbered.group_by(list(names), use_threads=False).aggregate([(_ROW, "list")]).to_pylist():
        taken = rows.take(pa.array(group[f"{_ROW}_list"], pa.int64()))
        yield _folder_of((name, group[name]) for name in names), taken


def described(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The schema of a partition's file: without the partition columns, which its metadata describe."""
    import pyarrow as pa

    if not names:
        return schema
    kinds = {name: "string" if _is_text(kind := schema.field(name).type) else str(kind) for name in names}
    rest = [field for field in schema if field.name not in names]
    return pa.schema(rest, {_KEY: json.dumps(kinds).encode()})


def with_partitions(schema: pa.Schema, values: Values) -> pa.Schema:
    """The schema of the whole table, from that of a file; a column that no metadata describe is text."""
    import pyarrow as pa

    kinds = json.loads((schema.metadata or {}).get(_KEY, b"{}"))
    own = [pa.field(name, pa.type_for_alias(kinds.get(name, "string"))) for name, _ in values]
    return pa.schema([*(field for field in schema if field.name not in dict(values)), *own])


def column_of(text: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """A partition column of a file with this number of rows."""
    import pyarrow as pa

    return pa.nulls(rows, kind) if text is None else pa.repeat(pa.array([text]).cast(kind)[0], rows)


def values_of(folder: PurePosixPath) -> Values | None:
    """The partition columns of a file in this folder, relative to its table; None: it is of another table."""
    if not all("=" in part for part in folder.parts):
        return None
    split_parts = (part.partition("=") for part in folder.parts)
    return tuple(
        (_unescaped(name), None if text == _NULL else _unescaped(text)) for name, _, text in split_parts
    )


def _folder_of(values: Iterable[tuple[str, str | None]]) -> str:
    return "/".join(f"{_escaped(name)}={_escaped(text) if text else _NULL}" for name, text in values)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _unescaped(text: str) -> str:
    return re.sub("%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
