"""Prints the first rows of a file as JSON, for `nimbus.web.task.output`.

`python -I -m nimbus.web.task.first_rows KIND`, with the file on its standard input. It is a process of its
own, because the bytes are those of a task, and it limits itself. It prints `columns` (names and types) and
`rows`, or `text`, or `why`.
"""

from __future__ import annotations

import csv
import json
import re
import resource
import signal
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

CPU_S = 5.0
"""Limit of processor time. To import pyarrow takes half a second."""
MEMORY_BYTES = 1 << 30
"""Limit of address space, most of which the libraries of pyarrow take."""
ROWS, COLUMNS = 20, 40
_CELL, _LINE, _TOTAL = 120, 300, 40_000
"""Limits in characters of a cell, of a line of text, and of all together."""
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "text", dict: "object", list: "list"}
_NUMBER = re.compile(r"[+-]?(\d+)?(\.\d*)?([eE][+-]?\d+)?")


def shown(kind: str, data: bytes) -> dict[str, Any]:
    """The first rows of a file, of which `data` is the beginning, or all."""
    if kind == "parquet":
        return _parquet(data)
    if b"\0" in data:
        return {"why": "It is no text."}
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    if kind == "csv":
        return _csv(text)
    try:
        return (_json(text) if kind == "json" else None) or _text(text)
    except (ValueError, RecursionError):
        return _text(text)


def _parquet(data: bytes) -> dict[str, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return {"why": "To show Parquet, this scheduler needs the package pyarrow."}
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        fields = list(file.schema_arrow)
        names = [field.name for field in fields[:COLUMNS]] if len(fields) > COLUMNS else None
        batch = next(file.iter_batches(ROWS, columns=names, use_threads=False), None)
        types = [(field.name, str(field.type)) for field in (fields if batch is None else batch.schema)]
        rows = [] if batch is None else zip(*(column.to_pylist() for column in batch.columns), strict=True)
        table = _table(types, list(rows))
    except (pa.ArrowException, OSError, ValueError) as exc:
        return {"why": f"It cannot be read as Parquet: {str(exc)[:_LINE]}"}
    return table | {"columns_total": len(fields), "rows_total": file.metadata.num_rows}


def _csv(text: str) -> dict[str, Any]:
    csv.field_size_limit(len(text) + 1)
    mark = max(",;\t|", key=text.partition("\n")[0].count)
    try:
        header, *rows = list(islice(csv.reader(text.splitlines(keepends=True), delimiter=mark), ROWS + 1))
    except (csv.Error, ValueError):
        return _text(text)
    columns = [
        (name, _type_of_texts(row[at] for row in rows if at < len(row))) for at, name in enumerate(header)
    ]
    return _table(columns, rows)


def _type_of_texts(texts: Iterable[str]) -> str:
    numbers = [_NUMBER.fullmatch(text) for text in texts if text]
    if not numbers or not all(match and (match[1] or match[2]) for match in numbers):
        return "text"
    return "number" if any(match and (match[2] or match[3]) for match in numbers) else "integer"


def _json(text: str) -> dict[str, Any] | None:
    """A list of objects, or an object in each line, as a table; None: it is neither."""
    try:
        given = json.loads(text)
    except ValueError:
        given = [json.loads(line) for line in islice(filter(str.strip, text.splitlines()), ROWS)]
    if isinstance(given, dict):
        return _table([("key", "text"), ("value", "")], list(given.items()))
    if not isinstance(given, list) or not given or not all(isinstance(row, dict) for row in given[:ROWS]):
        return None
    names = list(dict.fromkeys(name for row in given[:ROWS] for name in row))
    columns = []
    for name in names:
        kinds = {_TYPES.get(type(row[name]), "") for row in given[:ROWS] if row.get(name) is not None}
        columns.append((name, " or ".join(sorted(kinds))))
    return _table(columns, [[row.get(name) for name in names] for row in given])


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    named = [(_cell(name), kind[:_CELL]) for name, kind in columns[:COLUMNS]]
    left = _TOTAL - sum(len(name) + len(kind) for name, kind in named)
    cells_of_rows = []
    for row in rows[:ROWS]:
        cells = [_cell(value) for value in row[: len(named)]]
        left -= sum(map(len, cells))
        if left < 0:
            break
        cells_of_rows.append(cells)
    return {"columns": named, "columns_total": len(columns), "rows": cells_of_rows}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = value[:_CELL].hex()
    if isinstance(value, float):
        return str(round(value, 4) if abs(value) >= 0.01 else float(f"{value:.4g}"))
    said = (
        value[: _CELL + 1] if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    )
    return said if len(said) <= _CELL else f"{said[:_CELL]}…"


def _text(text: str) -> dict[str, Any]:
    lines = text[: _TOTAL // 2].splitlines()[: 5 * ROWS]
    return {"text": "\n".join(line if len(line) <= _LINE else f"{line[:_LINE]}…" for line in lines)}


def main(kind: str) -> int:
    """Print the first rows of the file on standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)  # its signal ends the process, also within a call into C
    try:
        answer = shown(kind, sys.stdin.buffer.read())
    except MemoryError:
        answer = {"why": f"To read it takes more than {MEMORY_BYTES >> 20} MiB of memory."}
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
