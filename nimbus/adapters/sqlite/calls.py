"""The adapters' store calls, and the feed of changes, on SQLite. Refusals raise kazoo's errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError

from leader import EpochRecord, FencedOutError, FencingToken, TransactionRefusedError
from nimbus.adapters.sqlite.session import SqliteSession, WatchedPart
from nimbus.adapters.sqlite.tree import CHANGED, DoneOperation, SqliteTree
from nimbus.adapters.store.calls import Build, Calls, NodeStat, check_size
from nimbus.adapters.store.changes import Gathered, Topics
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.ports import Enqueue, LiveChanges


class SqliteCalls(Calls):
    """See `nimbus.adapters.store.calls.Calls`. All reads of one call see the same state."""

    def __init__(self, session: SqliteSession) -> None:
        self._store = session

    @property
    def session_id(self) -> int:
        return self._store.session_id

    def get(self, path: str, changed: Enqueue | None = None) -> bytes | None:
        with self._store.reading() as tree:
            data = tree.get(path)
            if data is not None:
                self._watch(tree, WatchedPart.NODE, path, changed)
            return data

    def exists(self, path: str, changed: Enqueue | None = None) -> bool:
        with self._store.reading() as tree:
            self._watch(tree, WatchedPart.NODE, path, changed)
            return tree.stat(path) is not None

    def children(self, path: str, changed: Enqueue | None = None) -> tuple[str, ...] | None:
        with self._store.reading() as tree:
            return self._list(tree, path, changed)

    def stat(self, path: str) -> NodeStat | None:
        with self._store.reading() as tree:
            row = tree.stat(path)
            if row is None:
                return None
            # Operations of other databases have the same numbers, so the origin has the database's, too.
            origin = ((tree.number() << 32) + row.czxid, row.ctime_ms)
            return NodeStat(owner=row.owner, children_zxid=row.pzxid, origin=origin, written_at=None)

    def read_all(self, parent: str, names: Iterable[str]) -> tuple[tuple[str, bytes], ...]:
        with self._store.reading() as tree:
            nodes = [(name, tree.get(f"{parent}/{name}")) for name in names]
        return tuple((name, data) for name, data in nodes if data is not None)

    def read_watched(self, parent: str, changed: Mapping[str, Enqueue]) -> tuple[tuple[str, bytes], ...]:
        nodes = []
        with self._store.reading() as tree:
            for name, enqueue in changed.items():
                data = tree.get(f"{parent}/{name}")
                if data is not None:
                    self._watch(tree, WatchedPart.NODE, f"{parent}/{name}", enqueue)
                    nodes.append((name, data))
        return tuple(nodes)

    def await_all(self, changed: Mapping[str, Enqueue]) -> None:
        with self._store.reading() as tree:
            there = [enqueue for path, enqueue in changed.items() if tree.stat(path) is not None]
            for path, enqueue in changed.items():
                self._watch(tree, WatchedPart.NODE, path, enqueue)
        for enqueue in there:
            enqueue()

    def list_and_read(
        self, parents: Iterable[str], changed: Iterable[Enqueue | None], nodes: Iterable[str]
    ) -> tuple[list[tuple[str, ...] | None], list[bytes | None]]:
        with self._store.reading() as tree:
            names = [self._list(tree, *pair) for pair in zip(parents, changed, strict=True)]
            return names, [tree.get(node) for node in nodes]

    def await_watches(self) -> None:
        self._store.deliver()

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        check_size(path, len(data))
        with self._store.writing() as tree:
            return tree.create(path, data, owner=self.session_id if ephemeral else 0, sequence=sequence)

    def create_with(self, path: str, data: bytes, other: str, other_data: bytes) -> str:
        check_size(path, len(data))
        with self._store.writing() as tree:
            tree.create(other, other_data)
            return tree.create(path, data, sequence=True)

    def transact(self, what: str, build: Build) -> None:  # noqa: ARG002 - the errors name it
        with self._store.writing() as tree:
            build(_Transaction(tree, self.session_id))

    def fenced(self, what: str, token: FencingToken, build: Build) -> None:  # noqa: ARG002 - as above
        with self._store.writing() as tree:
            try:
                tree.check(token.path, token.version)
            except (NoNodeError, BadVersionError) as exc:
                raise FencedOutError(path=token.path, epoch=token.epoch) from exc
            transaction = _Transaction(tree, self.session_id)
            try:
                build(transaction)
            except KazooException as exc:
                refused, path = transaction.index, transaction.path
                raise TransactionRefusedError(index=refused, path=path, cause=exc) from exc

    def ensure_above(self, root: str) -> None:
        """Do nothing: there are no access lists."""

    def ensure(self, path: str) -> None:
        if self.exists(path):  # the usual case, which needs no disk write
            return
        with self._store.writing() as tree:
            tree.ensure(path)

    def set(self, path: str, data: bytes) -> bool:
        check_size(path, len(data))
        try:
            with self._store.writing() as tree:
                tree.set_data(path, data)
        except NoNodeError:
            return False
        return True

    def delete(self, path: str) -> bool:
        try:
            with self._store.writing() as tree:
                tree.delete(path)
        except NoNodeError:
            return False
        return True

    def _list(self, tree: SqliteTree, path: str, changed: Enqueue | None) -> tuple[str, ...] | None:
        names = tree.children(path)
        if names is not None:
            self._watch(tree, WatchedPart.CHILDREN, path, changed)
        return names

    def _watch(self, tree: SqliteTree, kind: WatchedPart, path: str, changed: Enqueue | None) -> None:
        if changed is not None:
            self._store.watch(tree, kind, path, changed)


class _Transaction:
    """Replaces kazoo's transaction; each added operation is executed at once."""

    def __init__(self, tree: SqliteTree, session_id: int) -> None:
        self._tree, self._session_id = tree, session_id
        self.index = -1
        """Index of the last added operation."""
        self.path = ""

    def create(self, path: str, data: bytes = b"", /, *, ephemeral: bool = False) -> None:
        self._next(path)
        self._tree.create(path, data, owner=self._session_id if ephemeral else 0)

    def set_data(self, path: str, data: bytes) -> None:
        self._next(path)
        self._tree.set_data(path, data)

    def delete(self, path: str) -> None:
        self._next(path)
        self._tree.delete(path)

    def check(self, path: str, version: int) -> None:
        self._next(path)
        self._tree.check(path, version)

    def _next(self, path: str) -> None:
        self.index += 1
        self.path = path


def last_term(session: SqliteSession, path: str) -> EpochRecord:
    """Epoch and schema of the last term in this store, from its node; 0 and the newest if there was none."""
    with session.reading() as tree:
        stat, data = tree.stat(path), tree.get(path)
    return EpochRecord(0 if stat is None else stat.version, schema=int(data or NEWEST_SCHEMA))


def begin_term(session: SqliteSession, token: FencingToken) -> FencingToken:
    """Fence all terms before that of `token`; return this store's fencing token for the term.

    The version of the node is the epoch, so no two terms of any process have the same one. Its data is the
    schema: a single scheduler writes the newest at once.

    Raises:
        FencedOutError: a later term has begun here.
    """
    with session.writing() as tree:
        tree.ensure(token.path)
        stat = tree.stat(token.path)
        if stat is not None and stat.version > token.epoch:
            raise FencedOutError(path=token.path, epoch=token.epoch)
        tree.set_data(token.path, b"%d" % NEWEST_SCHEMA, version=token.epoch)
    return FencingToken(path=token.path, version=token.epoch, epoch=token.epoch)


class SqliteChanges:
    """See `nimbus.ports.ChangeFeed`. A version is the number of an operation."""

    def __init__(self, session: SqliteSession, root: str) -> None:
        self._session, self._topics = session, Topics(root)
        self._gathered = Gathered(self._topics, lambda: None)
        self._upto = 0
        self._lost = True
        """Set by the thread that delivers changes."""

    def version(self) -> int:
        return self._session.delivered

    def start(self, told: Enqueue) -> None:
        self._gathered, self._lost = Gathered(self._topics, told), True
        self._session.follow(self._on_changes)

    def take(self, *, beats: bool) -> LiveChanges:
        self._session.deliver()
        version, lost = self._session.delivered, self._lost
        self._lost = False
        taken = self._gathered.take(beats=beats or lost)
        return LiveChanges(taken, version, max(version, self._upto), lost=lost)

    def stop(self) -> None:
        self._session.unfollow(self._on_changes)

    def _on_changes(self, changes: Sequence[DoneOperation] | None) -> None:
        if changes is None:
            self._lost = True
            return
        for change in changes:
            self._upto = change.zxid
            self._gathered.add(change.path, is_change=change.what == CHANGED)
