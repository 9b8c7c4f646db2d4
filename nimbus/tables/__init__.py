"""Exactly-once writes to tables outside of Nimbus: Delta, Iceberg, SQL databases.

A helper replaces a part of a table, or all of it, and keeps a *mark* in the same transaction of that table:
which part was replaced, and by which run and attempt. An attempt that is killed before the commit has changed
nothing. The next one replaces the part, also when the one before did commit. A zombie, or an older run that
ends late, is refused: `NewerWriteError`.

For the code of tasks; the libraries of the tables are imported when they are used.
"""

from nimbus.tables import delta, iceberg, sql
from nimbus.tables.marks import NewerWriteError

__all__ = ["NewerWriteError", "delta", "iceberg", "sql"]
