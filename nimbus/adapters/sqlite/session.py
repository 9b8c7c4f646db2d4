"""One process's session with the state in SQLite: its connection, its watches, and its liveness.

A session lives as long as its process, which is identified by pid, start time and boot; it has no timeout and
no heartbeats. Every second each session checks the processes of the others, and removes ephemeral nodes of
dead ones.

Thread `nimbus-store`: delivers changes of other processes, within `DELIVERY_PAUSE_S`.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import Enum
from pathlib import Path

import structlog

from leader import ForkedError, SessionState
from nimbus.adapters.sqlite.tree import CHANGED, SCHEMA, DoneOperation, SqliteTree, parent_of
from nimbus.ports import Enqueue, StoreUnavailableError

LAYOUT = 1
"""Version of the tables; the records in them have their own schemas."""
_DAMAGED = (
    ". The database is damaged: stop the scheduler, keep a copy of the folder, and restore the folder from a "
    "backup, or import an exported state with `nimbus cluster import` into an empty one"
)
_ADVICE = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FULL: ". Free some space on its disk; the scheduler then goes on by itself",
    sqlite3.SQLITE_READONLY: ". Its file, folder or file system is read-only for this user: permit writes",
    sqlite3.SQLITE_CANTOPEN: ". Check the permissions of its folder",
    sqlite3.SQLITE_IOERR: ". Its disk returns errors: look into the kernel's log",
}
"""What to do, by SQLite's primary result code."""
DELIVERY_PAUSE_S = 0.02
SESSIONS_CHECKED_S = 1.0

_log = structlog.get_logger(__name__)


Follower = Callable[[Sequence[DoneOperation] | None], None]
"""Called with all changes, in order; None: some changes were lost. It must only enqueue."""


class WatchedPart(Enum):
    """Which part of a node is watched."""

    NODE = "node"
    CHILDREN = "children"


class UnusableStoreError(StoreUnavailableError):
    """The database is damaged, or of a newer release. A restart does not help, so none is wanted."""

    exit_code = 2


class SqliteSession:
    """See the module. Any thread. All processes must see the same pids: no containers that share the file.

    Args:
        file: The database; it and its folder are created on first use. On a local disk: SQLite's log needs
            memory that processes share.
        call_timeout: Longest wait for other writers.
    """

    def __init__(self, file: Path, call_timeout: timedelta = timedelta(seconds=10)) -> None:
        self.file = file
        self._call_timeout = call_timeout
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._id, self._pid = 0, os.getpid()
        self._trouble = ""
        self._watches: dict[tuple[WatchedPart, str], dict[Enqueue, int]] = {}
        """Watches, each with the last operation that its reader has seen."""
        self._delivered = 0
        self._followers: list[Follower] = []
        self._delivering = threading.Lock()
        self._due: deque[Enqueue] = deque()
        """Fired watches whose callbacks were not called yet."""
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="nimbus-store", daemon=True)

    @property
    def session_id(self) -> int:
        return self._id

    @property
    def trouble(self) -> str:
        """Why the database could not be used; empty: it was written since then, or never failed."""
        return self._trouble if self._database is not None else f"{self.file} is closed"

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Never called: a session ends with its process, and not before."""

    def start(self) -> None:
        """Open the database, and begin the session. Raises StoreUnavailableError: it cannot be opened."""
        with _translated_errors(f"open {self.file}"):
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = _opened(self.file, self._call_timeout)
        with self.writing() as tree:
            self._id = tree.begin_session(self._pid, _start_of(self._pid) or "")
            self._delivered = tree.last()
        self._end_dead_sessions()
        self._thread.start()

    def close(self, timeout: timedelta) -> None:
        """End the session and remove its ephemeral nodes. Safe to repeat."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout.total_seconds())
        if self._database is None:
            return
        with suppress(StoreUnavailableError), self.writing() as tree:  # other sessions detect the end anyway
            tree.end_sessions([self._id])
        with self._lock:
            self._database.close()
            self._database = None

    @contextmanager
    def reading(self) -> Iterator[SqliteTree]:
        """A consistent snapshot of the nodes.

        StoreUnavailableError; ForkedError: the session belongs to the process of which this one is a fork.
        """
        with self._transaction("BEGIN") as tree:
            yield tree

    @contextmanager
    def writing(self) -> Iterator[SqliteTree]:
        """Change nodes in a transaction: durable when the block ends, rolled back if it raises.

        Raises as `reading`.
        """
        with self._transaction("BEGIN IMMEDIATE") as tree:
            yield tree
            tree.forget_old_changes()
        self._trouble = ""
        self._wake.set()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[SqliteTree]:
        if os.getpid() != self._pid:
            raise ForkedError(made_in=self._pid)
        with _translated_errors(str(self.file)), self._lock:
            if self._database is None:
                raise StoreUnavailableError(f"{self.file} is closed")
            try:
                self._database.execute(begin)
                yield SqliteTree(self._database)
                self._database.execute("COMMIT")
            except BaseException as exc:
                if isinstance(exc, sqlite3.Error):
                    self._trouble = f"{self.file}: {exc}{_advice(exc)}"
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def watch(self, tree: SqliteTree, kind: WatchedPart, path: str, changed: Enqueue) -> None:
        """Call `changed` once after the next change of data read from `tree`. It must only enqueue."""
        self._watches.setdefault((kind, path), {})[changed] = tree.last()

    @property
    def delivered(self) -> int:
        """The last operation that was delivered to watches and followers."""
        return self._delivered

    def follow(self, follower: Follower) -> None:
        """Deliver all changes from now on to `follower`."""
        with self._delivering:
            self._followers = [*self._followers, follower]

    def unfollow(self, follower: Follower) -> None:
        with self._delivering:
            self._followers = [other for other in self._followers if other != follower]

    def deliver(self) -> None:
        """Call the watches for all operations that were not delivered yet."""
        with self._delivering:
            with self.reading() as tree:
                changes, last = tree.changes(self._delivered), tree.last()
                self._due.extend(self._every_watch() if changes is None else self._concerned(changes))
            for follower in self._followers if changes is None or changes else ():
                follower(changes)
            self._delivered = last
            while self._due:
                self._due.popleft()()

    def _every_watch(self) -> Iterator[Enqueue]:
        for watches in self._watches.values():
            yield from watches
        self._watches.clear()

    def _concerned(self, changes: Iterable[DoneOperation]) -> Iterator[Enqueue]:
        for change in changes:
            for key in concerned(change):
                watches = self._watches.get(key, {})
                for changed in [callback for callback, seen in watches.items() if seen < change.zxid]:
                    del watches[changed]
                    yield changed
                if not watches:
                    self._watches.pop(key, None)

    def _run(self) -> None:
        rounds = 0
        while not self._closing.is_set():
            try:
                self.deliver()
                if rounds % int(SESSIONS_CHECKED_S / DELIVERY_PAUSE_S) == 0:
                    self._end_dead_sessions()
            except StoreUnavailableError as exc:
                _log.warning("store_unavailable", error=str(exc))
                self._closing.wait(SESSIONS_CHECKED_S)
            except Exception:  # noqa: BLE001 - top of the thread: one watch that fails must not end all others
                _log.exception("store_watch_failed")
            rounds += 1
            self._wake.wait(DELIVERY_PAUSE_S)
            self._wake.clear()

    def _end_dead_sessions(self) -> None:
        with self.reading() as tree:
            ended = [session for session, pid, started in tree.sessions() if _has_ended(pid, started)]
        if ended:
            with self.writing() as tree:
                tree.end_sessions(ended)


def concerned(change: DoneOperation) -> list[tuple[WatchedPart, str]]:
    """The watches that a change fires: the same as in ZooKeeper."""
    node = (WatchedPart.NODE, change.path)
    if change.what == CHANGED:
        return [node]
    return [node, (WatchedPart.CHILDREN, change.path), (WatchedPart.CHILDREN, parent_of(change.path))]


def _opened(file: Path, call_timeout: timedelta) -> sqlite3.Connection:
    with suppress(FileExistsError):  # closing an existing file would drop SQLite's locks on it
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(
        file, timeout=call_timeout.total_seconds(), isolation_level=None, check_same_thread=False
    )
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        prepare(database)
    except BaseException:
        database.close()  # and its transaction, which would lock out all other processes
        raise
    return database


def prepare(database: sqlite3.Connection) -> None:
    """Create the tables and the root of the tree, unless they exist.

    Raises:
        UnusableStoreError: a newer release created the file.
    """
    database.execute("BEGIN IMMEDIATE")
    (schema,) = database.execute("PRAGMA user_version").fetchone()
    if schema > LAYOUT:
        raise UnusableStoreError(
            f"the database has layout {schema}, this release knows {LAYOUT}; use a newer one"
        )
    if schema < LAYOUT:
        database.execute(f"PRAGMA user_version = {LAYOUT}")
        database.execute(f"PRAGMA application_id = {secrets.randbits(31)}")  # see `Tree.number`
    for statement in SCHEMA.split(";"):
        database.execute(statement)
    database.execute(
        "INSERT OR IGNORE INTO nodes (path, parent, data, czxid, ctime_ms, pzxid)"
        " VALUES ('/', '', x'', 0, 0, 0)"
    )
    database.execute("COMMIT")


def _has_ended(pid: int, started: str) -> bool:
    """True if the process with this pid and start has ended. OSError: as of `_start_of`."""
    try:
        return _start_of(pid) != started
    except PermissionError:
        # `hidepid` hides processes of other users. It may be a new process with this pid, but also a live one
        # with this session: root can open the file of another user. So this is no proof of an end.
        return False


def _start_of(pid: int) -> str | None:
    """Start time of a process, and the boot id; None if there is no such process, or it has ended.

    Raises:
        OSError: it is not known, for example because this process has no file descriptor left.
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if state in "ZXx":
        return None
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {rest[18]}"


@contextmanager
def _translated_errors(what: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as exc:
        advice = _advice(exc)
        kind = UnusableStoreError if advice == _DAMAGED else StoreUnavailableError
        raise kind(f"{what}: {exc}{advice}") from exc


def _advice(exc: sqlite3.Error | OSError) -> str:
    code = getattr(exc, "sqlite_errorcode", None)
    return "" if code is None else _ADVICE.get(code & 0xFF, "")  # the other bits say more of the same
