"""Replaces a part of an Iceberg table, with the library `pyiceberg`: the mark is a property of the table."""

from __future__ import annotations

from typing import Any

from nimbus.tables.marks import NewerWriteError, mark_of, until_committed

_PREFIX = "nimbus.mark."
_RETRIES = "commit.retry.num-retries"
_FORGOTTEN = "nimbus.forgotten"
MAX_MARKS = 1000
"""How many marks a table keeps: each commit writes all properties. Those with the lowest numbers go first. Of
them the table keeps the largest number: a part without a mark refuses what is older."""


def replace(catalog: Any, name: str, table: Any, *, where: Any = None) -> None:
    """Replace a part of an Iceberg table, which must exist.

    Args:
        catalog: A catalog of `pyiceberg`.
        name: Name of the table, such as `sales.orders`.
        table: The new rows: a `pyarrow` table, or what `pyarrow.table` accepts.
        where: Filter of the rows to replace, such as `day == '2026-01-01'`. It names the part, so spell it
            always alike. None: all rows.

    Raises:
        NewerWriteError: a newer run or attempt has replaced this part.
        CommitFailedException: of `pyiceberg`: other writers were first at each of 20 tries.
    """
    import pyarrow as pa
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.expressions import AlwaysTrue

    rows, mark = pa.table(table), mark_of("" if where is None else str(where))

    def write() -> None:
        handle = catalog.load_table(name)
        marks = {key: int(value) for key, value in handle.properties.items() if key.startswith(_PREFIX)}
        own = _PREFIX + mark.key
        forgotten = int(handle.properties.get(_FORGOTTEN, 0))
        if (stands := marks.pop(own, forgotten)) > mark.version:
            raise NewerWriteError(name, mark, stands)
        # The library would commit again after a conflict, without a look at the mark. On this handle alone.
        unretried = {**handle.properties, _RETRIES: "0"}
        handle.metadata = handle.metadata.model_copy(update={"properties": unretried})
        with handle.transaction() as transaction:
            transaction.overwrite(rows, AlwaysTrue() if where is None else where)
            transaction.set_properties({own: str(mark.version)})
            if surplus := sorted(marks, key=lambda key: marks[key])[: max(0, len(marks) + 1 - MAX_MARKS)]:
                transaction.remove_properties(*surplus)
                transaction.set_properties({_FORGOTTEN: str(max(forgotten, marks[surplus[-1]]))})

    until_committed(write, CommitFailedException)
