"""A tree of nodes in an SQLite database, with ZooKeeper's semantics. No threads, no locks.

Each operation gets the next number, `zxid`, and adds a row to the table `changes`, for watches.
The caller begins and ends transactions.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from typing import NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)

CHANGES_KEPT = 10_000
"""How many changes are kept. A session that falls further behind must read everything."""

CREATED, CHANGED, DELETED = "created", "changed", "deleted"

SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL DEFAULT 0,
    owner INTEGER NOT NULL DEFAULT 0, czxid INTEGER NOT NULL, ctime_ms INTEGER NOT NULL,
    pzxid INTEGER NOT NULL, made INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS nodes_of_parent ON nodes (parent);
CREATE INDEX IF NOT EXISTS nodes_of_owner ON nodes (owner) WHERE owner <> 0;
CREATE TABLE IF NOT EXISTS changes (
    zxid INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, what TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, started TEXT NOT NULL);
"""


class NodeRow(NamedTuple):
    """The metadata of a node."""

    version: int
    owner: int
    """Session of an ephemeral node; 0: it is persistent."""
    czxid: int
    ctime_ms: int
    pzxid: int
    """Operation that last created or removed a child."""


class DoneOperation(NamedTuple):
    """One operation that was done."""

    zxid: int
    path: str
    what: str


class SqliteTree:
    """The nodes. All raise sqlite3.Error when the file cannot be read or written."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._do = database.execute

    def get(self, path: str) -> bytes | None:
        row = self._do("SELECT data FROM nodes WHERE path = ?", (path,)).fetchone()
        return None if row is None else bytes(row[0])

    def stat(self, path: str) -> NodeRow | None:
        row = self._do(
            "SELECT version, owner, czxid, ctime_ms, pzxid FROM nodes WHERE path = ?", (path,)
        ).fetchone()
        return None if row is None else NodeRow(*row)

    def children(self, path: str) -> tuple[str, ...] | None:
        """Names of the children, sorted; None if the node does not exist."""
        rows = self._do("SELECT path FROM nodes WHERE parent = ? ORDER BY path", (path,)).fetchall()
        if not rows and self.stat(path) is None:
            return None
        return tuple(row[0].rpartition("/")[2] for row in rows)

    def create(self, path: str, data: bytes = b"", *, owner: int = 0, sequence: bool = False) -> str:
        """Create a node and return its path. NodeExistsError, NoNodeError and other errors of the parent."""
        parent = parent_of(path)
        row = self._do("SELECT made, owner FROM nodes WHERE path = ?", (parent,)).fetchone()
        if row is None:
            raise NoNodeError(path)
        if sequence:
            path += f"{row[0]:010d}"
        if self.stat(path) is not None:
            raise NodeExistsError(path)
        if row[1]:
            raise NoChildrenForEphemeralsError(path)
        zxid = self._note(path, CREATED)
        self._do(
            "INSERT INTO nodes (path, parent, data, owner, czxid, ctime_ms, pzxid)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (path, parent, data, owner, zxid, time.time_ns() // 1_000_000, zxid),
        )
        self._do("UPDATE nodes SET made = made + 1, pzxid = ? WHERE path = ?", (zxid, parent))
        return path

    def ensure(self, path: str) -> None:
        if path != "/" and self.stat(path) is None:
            self.ensure(parent_of(path))
            self.create(path)

    def set_data(self, path: str, data: bytes, *, version: int | None = None) -> None:
        """Replace a node's data and set its version; default: the next version. NoNodeError."""
        if not self._do(
            "UPDATE nodes SET data = ?, version = coalesce(?, version + 1) WHERE path = ?",
            (data, version, path),
        ).rowcount:
            raise NoNodeError(path)
        self._note(path, CHANGED)

    def delete(self, path: str) -> None:
        """Remove a node. NoNodeError, NotEmptyError."""
        if self._do("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmptyError(path)
        if not self._do("DELETE FROM nodes WHERE path = ?", (path,)).rowcount:
            raise NoNodeError(path)
        zxid = self._note(path, DELETED)
        self._do("UPDATE nodes SET pzxid = ? WHERE path = ?", (zxid, parent_of(path)))

    def check(self, path: str, version: int = -1) -> None:
        """Check that a node exists in this version; -1: in any version. NoNodeError, BadVersionError."""
        stat = self.stat(path)
        if stat is None:
            raise NoNodeError(path)
        if version not in (-1, stat.version):
            raise BadVersionError(path)

    def number(self) -> int:
        """A random number of this database: others are created in the same millisecond. 0: it is older."""
        (number,) = self._do("PRAGMA application_id").fetchone()
        return int(number)

    def last(self) -> int:
        """Number of the last operation; 0: there was none."""
        (zxid,) = self._do("SELECT max(zxid) FROM changes").fetchone()
        return int(zxid or 0)

    def changes(self, after: int) -> list[DoneOperation] | None:
        """The changes since the operation `after`; None if some of them were removed."""
        operations = [
            DoneOperation(*row)
            for row in self._do("SELECT zxid, path, what FROM changes WHERE zxid > ? ORDER BY zxid", (after,))
        ]
        return None if operations and operations[0].zxid > after + 1 else operations

    def forget_old_changes(self) -> None:
        self._do("DELETE FROM changes WHERE zxid <= ?", (self.last() - CHANGES_KEPT,))

    def begin_session(self, pid: int, started: str) -> int:
        made = self._do("INSERT INTO sessions (pid, started) VALUES (?, ?)", (pid, started)).lastrowid
        return int(made or 0)

    def sessions(self) -> list[tuple[int, int, str]]:
        """Number, process and its start of each session."""
        return self._do("SELECT id, pid, started FROM sessions").fetchall()

    def end_sessions(self, sessions: Iterable[int]) -> None:
        """Remove sessions and their ephemeral nodes. Safe to repeat."""
        for session in sessions:
            owned = self._do("SELECT path FROM nodes WHERE owner = ?", (session,)).fetchall()
            for (path,) in owned:
                self.delete(path)
            self._do("DELETE FROM sessions WHERE id = ?", (session,))

    def _note(self, path: str, what: str) -> int:
        made = self._do("INSERT INTO changes (path, what) VALUES (?, ?)", (path, what)).lastrowid
        return int(made or 0)


def parent_of(path: str) -> str:
    """Path of a node's parent."""
    return path.rpartition("/")[0] or "/"
