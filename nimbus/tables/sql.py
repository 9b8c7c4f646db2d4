"""Replaces rows of a table in PostgreSQL or SQLite: the mark and the rows are one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from nimbus.tables.marks import NewerWriteError, mark_of

CREATE_MARKS = "CREATE TABLE IF NOT EXISTS nimbus_marks (key text PRIMARY KEY, version bigint NOT NULL)"
"""Creates the table of marks, which must be there before the first write."""
_CLAIM = (
    "INSERT INTO nimbus_marks (key, version) VALUES ({0}, {0}) ON CONFLICT (key) "
    "DO UPDATE SET version = excluded.version WHERE nimbus_marks.version <= excluded.version"
)


@contextmanager
def replace(
    connection: Any, table: str, where: str | None = None, parameters: Sequence[Any] = ()
) -> Iterator[Any]:
    """Replace rows: deletes them, and yields a cursor that inserts the new ones. Commits at the end.

    If the block raises, everything is rolled back. The block must neither commit nor roll back: in SQLite,
    `executescript` commits.

    Args:
        connection: A DB-API connection of `sqlite3` or `psycopg`, not in autocommit mode.
        table: The table, as the database spells it. Together with `where` and `parameters`, it names the
            part that is replaced.
        where: Condition of the rows to delete, such as `day = %s`; None: all rows.
        parameters: Values for the placeholders in `where`.

    Raises:
        NewerWriteError: a newer run or attempt has replaced these rows.
        ValueError: the connection is in autocommit mode.
    """
    is_sqlite = isinstance(connection, sqlite3.Connection)
    if getattr(connection, "autocommit", False) is True or (is_sqlite and connection.isolation_level is None):
        raise ValueError("the connection commits each statement; open it without autocommit")
    mark = mark_of(f"{table}/{where}/{list(map(str, parameters))}" if where else table)
    with closing(connection.cursor()) as cursor:
        try:
            # The row's lock makes another writer of these rows wait until this transaction has ended.
            cursor.execute(_CLAIM.format("?" if is_sqlite else "%s"), mark)
            if not cursor.rowcount:
                raise NewerWriteError(table, mark)  # noqa: TRY301 - it rolls back, too
            delete = f"DELETE FROM {table}" + (f" WHERE {where}" if where else "")  # noqa: S608 - the task's
            cursor.execute(delete, tuple(parameters))
            yield cursor
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
