"""Tables of each kind that `nimbus.tables` writes, and writes to them as a task's attempt makes them."""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, Protocol
from unittest.mock import patch

from nimbus import tables
from nimbus.domain.runs.run_number import next_number
from nimbus.task import CONTEXT_VARIABLE, context

ROWS = 20
Row = tuple[str, int, int, int]
"""Day, run, attempt, number of the row."""


class Batch(NamedTuple):
    """What one attempt writes: the rows of one day."""

    day: str
    run: int
    """1 for the first run."""
    attempt: int = 1

    def rows(self) -> list[Row]:
        return [(self.day, self.run, self.attempt, number) for number in range(ROWS)]


class Store(Protocol):
    """A table of days."""

    library: str
    """The module that it needs."""
    commit: tuple[str, str]
    """Module or class, and its function, in or before which the helper commits."""

    def create(self) -> None:
        """Create the table."""
        ...

    def replace(self, batch: Batch) -> None:
        """Replace a day, in a task."""
        ...

    def rows(self, day: str) -> list[Row]:
        """The rows of a day, sorted."""
        ...


@contextmanager
def task_of(batch: Batch, folder: Path) -> Iterator[None]:
    """Make this process an attempt of a task, which runs once for each run."""
    number = 0
    for _ in range(batch.run):
        number = next_number(1, number)
    document = {
        "pipeline": "p",
        "release": "a" * 64,
        "cluster": "c",
        "run_id": f"r{batch.run}",
        "run_number": number,
        "task": "t",
        "attempt": batch.attempt,
        "logical_date": "2026-01-01T00:00:00+00:00",
        "parameters": {},
        "inputs": {},
        "output": "out",
        "release_root": "release",
    }
    place = folder / f"context-{os.getpid()}.json"
    place.write_text(json.dumps(document))
    with patch.dict(os.environ, {CONTEXT_VARIABLE: str(place)}):
        context.cache_clear()
        try:
            yield
        finally:
            context.cache_clear()


def write(store: Store, batch: Batch, folder: Path, near_commit: Callable[[], None] = lambda: None) -> None:
    """Write a batch as its attempt does. `near_commit` is called before the helper commits."""
    name, function = store.commit
    module: Any = resolve_name(name)
    commits = getattr(module, function)

    def committing(*args: Any, **more: Any) -> Any:
        near_commit()
        return commits(*args, **more)

    with task_of(batch, folder), patch.object(module, function, committing):
        store.replace(batch)


@dataclass(frozen=True)
class SqlStore:
    """Rows are inserted one by one, so that a write has a middle."""

    connect: Callable[[], Any]
    mark: str
    library: str
    commit = ("tests.nimbus.table_stores", "before_the_end")

    def create(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute(tables.sql.CREATE_MARKS)
            connection.execute("CREATE TABLE orders (day text, run int, attempt int, number int)")
            connection.commit()

    def replace(self, batch: Batch) -> None:
        where = f"day = {self.mark}"
        with (
            closing(self.connect()) as connection,
            tables.sql.replace(connection, "orders", where, [batch.day]) as cursor,
        ):
            for row in batch.rows():
                cursor.execute(f"INSERT INTO orders VALUES ({', '.join([self.mark] * 4)})", row)
            before_the_end()

    def rows(self, day: str) -> list[Row]:
        with closing(self.connect()) as connection:
            found = connection.execute(f"SELECT * FROM orders WHERE day = {self.mark}", (day,)).fetchall()
        return sorted(map(tuple, found))


def before_the_end() -> None:
    """Called at the end of the block of a write to SQL."""


@dataclass(frozen=True)
class Opening:
    """Opens connections; unlike a function, it can be sent to another process."""

    library: str
    address: str

    def __call__(self) -> Any:
        if self.library == "sqlite3":
            return sqlite3.connect(self.address, timeout=60)
        return importlib.import_module(self.library).connect(self.address)


def sqlite_store(folder: Path) -> SqlStore:
    return SqlStore(Opening("sqlite3", str(folder / "tables.sqlite")), "?", "sqlite3")


def postgres_store(address: str) -> SqlStore:
    return SqlStore(Opening("psycopg", address), "%s", "psycopg")


def _arrow(rows: list[Row]) -> Any:
    import pyarrow as pa

    kinds = {"day": pa.string(), "run": pa.int32(), "attempt": pa.int32(), "number": pa.int32()}
    columns = zip(*rows, strict=True) if rows else [()] * 4
    return pa.table(dict(zip(kinds, columns, strict=True)), schema=pa.schema(kinds.items()))


def _rows_of(table: Any, day: str) -> list[Row]:
    return sorted(tuple(row.values()) for row in table.to_pylist() if row["day"] == day)  # type: ignore[misc]


@dataclass(frozen=True)
class DeltaStore:
    uri: str
    library = "deltalake"
    commit = ("deltalake", "write_deltalake")

    def create(self) -> None:
        """The first write does it."""

    def replace(self, batch: Batch) -> None:
        tables.delta.replace(self.uri, _arrow(batch.rows()), where=f"day = '{batch.day}'")

    def rows(self, day: str) -> list[Row]:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.uri):
            return []
        return _rows_of(DeltaTable(self.uri).to_pyarrow_table(), day)


@dataclass(frozen=True)
class IcebergStore:
    """Its catalog is a SQLite file."""

    folder: str
    library = "pyiceberg.catalog.sql"
    commit = ("pyiceberg.table.Table", "_do_commit")

    @property
    def catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        address = f"sqlite:///{self.folder}/catalog.sqlite?timeout=60"
        return SqlCatalog("lake", uri=address, warehouse=f"file://{self.folder}/lake")

    def create(self) -> None:
        catalog = self.catalog
        catalog.create_namespace("sales")
        catalog.create_table("sales.orders", _arrow([]).schema)

    def replace(self, batch: Batch) -> None:
        rows = _arrow(batch.rows())
        tables.iceberg.replace(self.catalog, "sales.orders", rows, where=f"day == '{batch.day}'")

    def rows(self, day: str) -> list[Row]:
        return _rows_of(self.catalog.load_table("sales.orders").scan().to_arrow(), day)


def end_threads_of_pyiceberg() -> None:
    """It keeps a pool of them as long as the process."""
    if (concurrent := sys.modules.get("pyiceberg.utils.concurrent")) is not None:
        factory = concurrent.ExecutorFactory
        if factory._instance is not None:
            factory._instance.shutdown()
            factory._instance = None


def store_at(kind: str, address: str) -> Store:
    """The table of a kind: `address` is that of a database, for `postgres`, or a folder."""
    match kind:
        case "postgres":
            return postgres_store(address)
        case "delta":
            return DeltaStore(f"{address}/delta")
        case "iceberg":
            return IcebergStore(address)
        case _:
            return sqlite_store(Path(address))
