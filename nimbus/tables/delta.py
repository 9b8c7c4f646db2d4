"""Replaces a part of a Delta table, with the library `deltalake` or with Spark: the mark is in the commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nimbus.tables.marks import NewerWriteError, mark_of, until_committed


def replace(
    uri: str, table: Any, *, where: str | None = None, storage_options: Mapping[str, str] | None = None
) -> None:
    """Replace a part of a Delta table, which is created if it is missing, without partitions.

    Args:
        uri: Where the table is.
        table: The new rows: a `pyarrow` table, or what `pyarrow.table` accepts.
        where: Predicate of the rows to replace, such as `day = '2026-01-01'`, which the new rows must fulfil.
            It names the part, so spell it always alike. None: all rows.
        storage_options: As for `deltalake.DeltaTable`.

    Raises:
        NewerWriteError: a newer run or attempt has replaced this part.
        CommitFailedError: of `deltalake`: other writers were first at each of 20 tries.
    """
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError

    rows, mark, options = pa.table(table), mark_of(where or ""), dict(storage_options or {})
    properties = CommitProperties(app_transactions=[Transaction(mark.key, mark.version)])

    def write() -> None:
        DeltaTable.create(uri, rows.schema, mode="ignore", storage_options=options)
        # The number is read and written with one handle: then a commit in between is a conflict.
        handle = DeltaTable(uri, storage_options=options)
        stands = handle.transaction_version(mark.key)
        if stands is not None and stands > mark.version:
            raise NewerWriteError(uri, mark, stands)
        write_deltalake(handle, rows, mode="overwrite", predicate=where, commit_properties=properties)

    until_committed(write, CommitFailedError)


def spark_options(where: str | None = None) -> dict[str, str]:
    """Options of Spark's writer `delta` in mode `overwrite`, for the same.

    Delta itself ignores a write with an older number, without an error.

    Args:
        where: As for `replace`.
    """
    mark = mark_of(where or "")
    options = {"txnAppId": mark.key, "txnVersion": str(mark.version)}
    return options if where is None else {**options, "replaceWhere": where}
