"""The store of the live state in a dict: the third one below the shipped adapters, for tests.

`SqliteCalls` works on any tree with the methods of `nimbus.adapters.sqlite.tree.SqliteTree`, so `DictCalls`
only replaces tree and session. Watches are called by the thread that writes, after its transaction.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)

from nimbus.adapters.sqlite.calls import SqliteCalls
from nimbus.adapters.sqlite.session import WatchedPart, concerned
from nimbus.adapters.sqlite.tree import CHANGED, CREATED, DELETED, DoneOperation, NodeRow, parent_of
from nimbus.ports import Enqueue, StoreUnavailableError

Follower = Callable[[Sequence[DoneOperation]], None]


class _Node(NamedTuple):
    data: bytes
    version: int
    owner: int
    czxid: int
    ctime_ms: int
    pzxid: int
    made: int

    @property
    def stat(self) -> NodeRow:
        return NodeRow(self.version, self.owner, self.czxid, self.ctime_ms, self.pzxid)


class DictTree:
    """See `nimbus.adapters.sqlite.tree.SqliteTree`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._nodes = {"/": _Node(b"", 0, 0, 0, 0, 0, 0)}
        self._names: dict[str, dict[str, None]] = {"/": {}}
        self._owned: dict[int, dict[str, None]] = {}
        self._undo: list[tuple[str, _Node | None]] = []
        self._changes: list[DoneOperation] = []
        self._last = 0

    def get(self, path: str) -> bytes | None:
        node = self._nodes.get(path)
        return None if node is None else node.data

    def stat(self, path: str) -> NodeRow | None:
        node = self._nodes.get(path)
        return None if node is None else node.stat

    def children(self, path: str) -> tuple[str, ...] | None:
        names = self._names.get(path)
        return None if names is None else tuple(sorted(names))

    def create(self, path: str, data: bytes = b"", *, owner: int = 0, sequence: bool = False) -> str:
        parent_path = parent_of(path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(path)
        if sequence:
            path += f"{parent.made:010d}"
        if path in self._nodes:
            raise NodeExistsError(path)
        if parent.owner:
            raise NoChildrenForEphemeralsError(path)
        zxid = self._note(path, CREATED)
        self._put(path, _Node(data, 0, owner, zxid, self._now_ms(), zxid, 0))
        self._put(parent_path, parent._replace(made=parent.made + 1, pzxid=zxid))
        return path

    def ensure(self, path: str) -> None:
        if path not in self._nodes:
            self.ensure(parent_of(path))
            self.create(path)

    def set_data(self, path: str, data: bytes, *, version: int | None = None) -> None:
        node = self._known(path)
        self._note(path, CHANGED)
        self._put(path, node._replace(data=data, version=node.version + 1 if version is None else version))

    def delete(self, path: str) -> None:
        self._known(path)
        if self._names[path]:
            raise NotEmptyError(path)
        zxid = self._note(path, DELETED)
        self._put(path, None)
        parent = parent_of(path)
        self._put(parent, self._nodes[parent]._replace(pzxid=zxid))

    def check(self, path: str, version: int = -1) -> None:
        if version not in (-1, self._known(path).version):
            raise BadVersionError(path)

    def number(self) -> int:
        return 0

    def last(self) -> int:
        return self._last

    def end_session(self, session: int) -> None:
        """Remove the ephemeral nodes of a session."""
        for path in tuple(self._owned.get(session, ())):
            self.delete(path)

    def commit(self) -> list[DoneOperation]:
        """End a transaction; return its changes."""
        self._undo.clear()
        changes, self._changes = self._changes, []
        return changes

    def roll_back(self) -> None:
        """Undo a transaction."""
        for path, node in self._undo[::-1]:
            self._write(path, node)
        self._undo.clear()
        self._changes.clear()

    def _known(self, path: str) -> _Node:
        if (node := self._nodes.get(path)) is None:
            raise NoNodeError(path)
        return node

    def _note(self, path: str, what: str) -> int:
        self._last += 1
        self._changes.append(DoneOperation(self._last, path, what))
        return self._last

    def _put(self, path: str, node: _Node | None) -> None:
        self._undo.append((path, self._nodes.get(path)))
        self._write(path, node)

    def _write(self, path: str, node: _Node | None) -> None:
        parent, name = parent_of(path), path.rpartition("/")[2]
        before = self._nodes.get(path)
        if before is not None and before.owner:
            del self._owned[before.owner][path]
        if node is None:
            del self._nodes[path], self._names[path], self._names[parent][name]
            return
        if node.owner:
            self._owned.setdefault(node.owner, {})[path] = None
        if before is None:
            self._names[path] = {}
            self._names[parent][name] = None
        self._nodes[path] = node


class DictStore:
    """The nodes, and the sessions of all simulated processes."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.tree = DictTree(now_ms)
        self.available = True
        self.lock = threading.RLock()
        self.watches: dict[tuple[WatchedPart, str], dict[tuple[DictSession, Enqueue], None]] = {}
        self.followers: tuple[Follower, ...] = ()
        self.sessions = 0
        self._due: deque[Enqueue] = deque()

    def commit(self) -> None:
        """End the transaction of the caller, which holds the lock. Followers only enqueue."""
        changes = self.tree.commit()
        for follower in self.followers:
            follower(changes)
        for change in changes:
            for key in concerned(change):
                self._due.extend(changed for _, changed in self.watches.pop(key, ()))

    def deliver(self) -> None:
        """Call the watches for the transactions that are done."""
        with suppress(IndexError):  # another thread was faster
            while self._due:
                self._due.popleft()()

    def fire_all(self) -> None:
        """Call all watches, as when connections break."""
        with self.lock:
            self._due.extend(changed for some in self.watches.values() for _, changed in some)
            self.watches.clear()
        self.deliver()


class _Reading:
    """The tree, locked."""

    def __init__(self, store: DictStore) -> None:
        self._store = store

    def __enter__(self) -> DictTree:
        self._store.lock.acquire()
        return self._store.tree

    def __exit__(self, *_exc: object) -> None:
        self._store.lock.release()


class DictSession:
    """See `nimbus.adapters.sqlite.session.SqliteSession`. Ends when it is closed."""

    def __init__(self, store: DictStore) -> None:
        self.store = store
        store.sessions += 1
        self.session_id = store.sessions

    def reading(self) -> AbstractContextManager[DictTree]:
        self.reach()
        return _Reading(self.store)

    @contextmanager
    def writing(self) -> Iterator[DictTree]:
        self.reach()
        with self.store.lock:
            try:
                yield self.store.tree
            except BaseException:
                self.store.tree.roll_back()
                raise
            self.store.commit()
        self.store.deliver()

    def reach(self) -> None:
        """Called before each transaction. Raises StoreUnavailableError: it does not arrive."""
        if not self.store.available:
            raise StoreUnavailableError("ZooKeeper does not answer: a test switched it off")

    def watch(self, _tree: DictTree, kind: WatchedPart, path: str, changed: Enqueue) -> None:
        self.store.watches.setdefault((kind, path), {})[self, changed] = None

    @property
    def delivered(self) -> int:
        return self.store.tree.last()

    def deliver(self) -> None:
        self.reach()
        self.store.deliver()

    def follow(self, follower: Follower) -> None:
        self.store.followers += (follower,)

    def unfollow(self, follower: Follower) -> None:
        self.store.followers = tuple(one for one in self.store.followers if one != follower)

    def close(self, _timeout: object = None) -> None:
        """End the session, as after its timeout."""
        store = self.store
        with store.lock:
            for some in store.watches.values():
                for one in [one for one in some if one[0] is self]:
                    del some[one]
            store.tree.end_session(self.session_id)
            store.commit()
        store.deliver()


class DictCalls(SqliteCalls):
    """See `nimbus.adapters.store.calls.Calls`."""

    def __init__(self, session: DictSession | DictStore) -> None:
        made: Any = DictSession(session) if isinstance(session, DictStore) else session
        super().__init__(made)
        self.session: DictSession = made
