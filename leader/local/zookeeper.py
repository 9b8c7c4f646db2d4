"""A ZooKeeper in memory: nodes, sessions, watches, transactions.

It answers the requests of `leader.protocol.requests` as a real ZooKeeper does; tests/leader/contract runs the
same cases on both. Sessions end only when they are closed. Not thread-safe. No call waits.

    zookeeper = MemoryZooKeeper(clock)
    connection = zookeeper.connect(on_watch)
    stat = connection.run(exists("/election/epoch", watch=True))
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, assert_never

from leader.clock import Clock
from leader.errors import ZooKeeperUnavailableError
from leader.protocol import requests as rq
from leader.protocol.requests import drive

_INT32 = 1 << 32
_HALF = 1 << 31


class TreeNode(NamedTuple):
    """One node. `made` counts the children ever created below it; it is the next sequence number."""

    data: bytes = b""
    version: int = 0
    owner: int = 0
    created: int = 0
    modified: int = 0
    modified_ms: int = 0
    made: int = 0
    children: int = 0

    @property
    def stat(self) -> rq.Stat:
        """The `Stat` that clients get."""
        return rq.Stat(self.version, self.owner, self.created, self.modified, self.modified_ms)


Changes = dict[str, TreeNode | None]
"""The result of a transaction: each node that it changed, by path; None for a deleted node."""

OnWatch = Callable[[str, bool], None]
"""Called when a watch fires, with its path, and True if the node is gone."""


class Tree:
    """One server's copy of the nodes, and the watches of the clients connected to it.

    A watch fires once. Each client has at most one watch of a kind on a path.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, TreeNode] = {"/": TreeNode()}
        self._names: dict[str, dict[str, None]] = {"/": {}}
        self._on_node: dict[str, dict[OnWatch, None]] = {}
        self._on_children: dict[str, dict[OnWatch, None]] = {}

    def get(self, path: str) -> TreeNode | None:
        """Return the node at `path`, or None."""
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Names of the children of a node that exists."""
        return list(self._names[path])

    def owned_by(self, session_id: int) -> list[str]:
        """Paths of the ephemeral nodes of a session."""
        return [path for path, node in self._nodes.items() if node.owner == session_id]

    def below(self, path: str) -> list[str]:
        """Paths of the node and of all nodes below it, deepest first."""
        paths = [known for known in self._nodes if known == path or known.startswith(f"{path}/")]
        return sorted(paths, key=lambda known: -known.count("/"))

    def read(self, request: rq.Read, on_watch: OnWatch) -> Any:
        """Answer from this copy. NodeMissingError for those requests whose docstring names it."""
        if isinstance(request, rq.GetEach):
            return tuple(self._each(path) for path in request.paths)
        path = request.path
        node = self.get(path)
        if isinstance(request, rq.GetChildren):
            if node is None:
                raise rq.NodeMissingError(path)
            if request.watch:
                self._on_children.setdefault(path, {})[on_watch] = None
            return self.children(path)
        if node is None and isinstance(request, rq.Get):
            raise rq.NodeMissingError(path)
        if request.watch:
            self._on_node.setdefault(path, {})[on_watch] = None
        if node is None:
            return None
        return (node.data, node.stat) if isinstance(request, rq.Get) else node.stat

    def _each(self, path: str) -> tuple[bytes, rq.Stat] | rq.RequestRefusedError:
        node = self.get(path)
        return rq.NodeMissingError(path) if node is None else (node.data, node.stat)

    def apply(self, changes: Changes) -> None:
        """Apply the result of a transaction; then call the watches that it fires."""
        fired: list[tuple[OnWatch, str, bool]] = []
        for path, node in changes.items():
            fired += self._fired(path, self.get(path), node)
        for path, node in changes.items():
            self._put(path, node)
        for on_watch, path, gone in fired:
            on_watch(path, gone)

    def _put(self, path: str, node: TreeNode | None) -> None:
        parent, name = split(path)
        if node is None:
            self._nodes.pop(path, None)
            self._names.pop(path, None)
            if parent in self._names:
                self._names[parent].pop(name, None)
            return
        if path not in self._nodes and path != "/":
            self._names.setdefault(path, {})
            self._names[parent][name] = None
        self._nodes[path] = node

    def _fired(
        self, path: str, before: TreeNode | None, after: TreeNode | None
    ) -> list[tuple[OnWatch, str, bool]]:
        parent = split(path)[0]
        if before is None and after is None:  # created and deleted in one transaction: fires as created
            fired = [(watch, parent, False) for watch in self._on_children.pop(parent, ())]
            return fired + [(watch, path, False) for watch in self._on_node.pop(path, ())]
        was, now = before and before.created, after and after.created
        gone = before is not None and was != now  # also if a new node is at this path
        fired = []
        if was != now:
            fired += [(watch, parent, False) for watch in self._on_children.pop(parent, ())]
        if gone:
            fired += [(watch, path, True) for watch in self._on_children.pop(path, ())]
        if was != now or (before and before.version) != (after and after.version):
            fired += [(watch, path, gone) for watch in self._on_node.pop(path, ())]
        return fired

    def forget(self, on_watch: OnWatch) -> None:
        """Remove the watches of a client that is no longer connected."""
        for watches in (self._on_node, self._on_children):
            for watchers in watches.values():
                watchers.pop(on_watch, None)

    def copy(self) -> Tree:
        """Return another tree with the same nodes, without watches."""
        other = Tree()
        other._nodes = dict(self._nodes)
        other._names = {path: dict(names) for path, names in self._names.items()}
        return other


class OpenTransaction:
    """A transaction before its commit. Its later operations see the changes of the earlier ones."""

    def __init__(self, tree: Tree, *, session_id: int, zxid: int, now_ms: int) -> None:
        self._tree, self._session_id, self._zxid, self._now_ms = tree, session_id, zxid, now_ms
        self.changes: Changes = {}

    def do(self, request: rq.Write) -> Any:
        """Execute a write. If this raises a refusal, the caller must discard the draft."""
        match request:
            case rq.Create():
                return self._create(request)
            case rq.SetData(path, data, version):
                return self._set(path, data, version)
            case rq.Delete(path, version):
                self.delete(path, version)
                return None
            case rq.EnsurePath(path):
                self._ensure(path)
                return None
            case rq.Transaction(operations):
                return tuple(self._operation(index, operation) for index, operation in enumerate(operations))
            case _:
                assert_never(request)

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node without children."""
        node = self._known(path, version)
        if node.children:
            raise rq.NotEmptyError(path)
        parent_path, _ = split(path)
        parent = self._get(parent_path)
        self.changes[path] = None
        if parent is not None:
            self.changes[parent_path] = parent._replace(children=parent.children - 1)

    def _operation(self, index: int, operation: rq.Operation) -> Any:
        try:
            if isinstance(operation, rq.Check):
                self._known(operation.path, operation.version)
                return True
            return self.do(operation)
        except rq.RequestRefusedError as exc:
            raise rq.TransactionFailedError(index, exc) from exc

    def _create(self, request: rq.Create) -> str:
        parent_path, _ = split(request.path)
        parent = self._get(parent_path)
        if parent is None:
            raise rq.NodeMissingError(request.path)
        path = request.path + (sequence(parent.made) if request.sequential else "")
        if self._get(path) is not None:
            raise rq.NodeExistsError(path)
        if parent.owner:
            raise rq.NotPermittedError(path)  # ephemeral nodes cannot have children
        owner = self._session_id if request.ephemeral else 0
        self.changes[path] = TreeNode(request.data, 0, owner, self._zxid, self._zxid, self._now_ms)
        self.changes[parent_path] = parent._replace(made=parent.made + 1, children=parent.children + 1)
        return path

    def _set(self, path: str, data: bytes, version: int) -> rq.Stat:
        node = self._known(path, version)
        changed = node._replace(
            data=data, version=node.version + 1, modified=self._zxid, modified_ms=self._now_ms
        )
        self.changes[path] = changed
        return changed.stat

    def _ensure(self, path: str) -> None:
        if path == "/" or self._get(path) is not None:
            return
        self._ensure(split(path)[0])
        self._create(rq.Create(path))

    def _known(self, path: str, version: int) -> TreeNode:
        node = self._get(path)
        if node is None:
            raise rq.NodeMissingError(path)
        if version not in (-1, node.version):
            raise rq.VersionMismatchError(path)
        return node

    def _get(self, path: str) -> TreeNode | None:
        return self.changes[path] if path in self.changes else self._tree.get(path)


def split(path: str) -> tuple[str, str]:
    """Return the path of the parent, and the name below it."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def sequence(made: int) -> str:
    """Return the number that ZooKeeper appends to the name: ten digits of a signed 32-bit integer."""
    return f"{(made + _HALF) % _INT32 - _HALF:010d}"


T = TypeVar("T")

_FIRST_SESSION = 0x1000


class MemoryZooKeeper:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._last_session = _FIRST_SESSION
        self.zxid = 0
        self.tree = Tree()
        self.sessions: set[int] = set()

    def connect(self, on_watch: OnWatch) -> MemoryConnection:
        """Open a session, and a connection for it."""
        return MemoryConnection(self, self.open_session(), on_watch)

    def open_session(self) -> int:
        """Open a session. Returns its id."""
        self._last_session += 1
        self.zxid += 1
        self.sessions.add(self._last_session)
        return self._last_session

    def close_session(self, session_id: int) -> None:
        """End a session and delete its ephemeral nodes. Does nothing if it is over."""
        if session_id not in self.sessions:
            return
        self.sessions.remove(session_id)
        draft = self._draft(0)
        for path in self.tree.owned_by(session_id):
            draft.delete(path)
        self._commit(draft.changes)

    def write(self, request: rq.Write, session_id: int = 0) -> Any:
        """Commit a write. Session 0 stands for an operator without a session, who owns no ephemeral nodes.

        If the session is over, ZooKeeperUnavailableError, and nothing was changed.
        """
        if session_id and session_id not in self.sessions:
            raise ZooKeeperUnavailableError("the session is over")
        draft = self._draft(session_id)
        answer = draft.do(request)
        self._commit(draft.changes)
        return answer

    def _draft(self, session_id: int) -> OpenTransaction:
        self.zxid += 1
        now_ms = self.clock() // timedelta(milliseconds=1)
        return OpenTransaction(self.tree, session_id=session_id, zxid=self.zxid, now_ms=now_ms)

    def _commit(self, changes: Changes) -> None:
        self.tree.apply(changes)


class MemoryConnection:
    """One client's connection: it answers requests and reports watches."""

    def __init__(self, zookeeper: MemoryZooKeeper, session_id: int, on_watch: OnWatch) -> None:
        self._zookeeper, self.session_id, self._on_watch = zookeeper, session_id, on_watch

    def answer(self, request: rq.Request) -> Any:
        """Answer one request. ZooKeeperUnavailableError if the session is over."""
        if self.session_id not in self._zookeeper.sessions:
            raise ZooKeeperUnavailableError("the session is over")
        if isinstance(request, rq.Read):
            return self._zookeeper.tree.read(request, self._on_watch)
        return self._zookeeper.write(request, self.session_id)

    def run(self, steps: rq.Steps[T]) -> T:
        """Run `steps` to their end. Raises what they raise."""
        return drive(steps, self.answer)

    def close(self) -> None:
        """End the session, and remove the client's watches."""
        self._zookeeper.tree.forget(self._on_watch)
        self._zookeeper.close_session(self.session_id)
