"""The nodes of a ZooKeeper in memory, and what each request does to them. No sessions, time or network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, assert_never

from leader.protocol import requests as rq

_INT32 = 1 << 32
_HALF = 1 << 31


class Node(NamedTuple):
    """One node. `made` counts the children it ever had; the next sequence number is taken from it."""

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
        """As told to clients."""
        return rq.Stat(self.version, self.owner, self.created, self.modified, self.modified_ms)


Changes = dict[str, Node | None]
"""What a transaction leaves: nodes as they are now; None for those that are gone."""


class Tree:
    """The nodes as one server sees them."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {"/": Node()}
        self._names: dict[str, dict[str, None]] = {"/": {}}

    def get(self, path: str) -> Node | None:
        """The node, if there is one."""
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Names of the children of a node that is there."""
        return list(self._names[path])

    def owned_by(self, session_id: int) -> list[str]:
        """Paths of the ephemeral nodes of a session."""
        return [path for path, node in self._nodes.items() if node.owner == session_id]

    def below(self, path: str) -> list[str]:
        """Paths of the node and of all below it, deepest first."""
        found = [known for known in self._nodes if known == path or known.startswith(f"{path}/")]
        return sorted(found, key=lambda known: -known.count("/"))

    def apply(self, changes: Mapping[str, Node | None]) -> None:
        """Take over what a transaction left."""
        for path, node in changes.items():
            parent, name = split(path)
            if node is None:
                self._nodes.pop(path, None)
                self._names.pop(path, None)
                if parent in self._names:
                    self._names[parent].pop(name, None)
                continue
            if path not in self._nodes and path != "/":
                self._names.setdefault(path, {})
                self._names[parent][name] = None
            self._nodes[path] = node

    def copy(self) -> Tree:
        """Another tree with the same nodes."""
        other = Tree()
        other._nodes = dict(self._nodes)
        other._names = {path: dict(names) for path, names in self._names.items()}
        return other


class Draft:
    """A transaction in the making: what it has changed is seen by its later operations."""

    def __init__(self, tree: Tree, *, session_id: int, zxid: int, now_ms: int) -> None:
        self._tree, self._session_id, self._zxid, self._now_ms = tree, session_id, zxid, now_ms
        self.changes: Changes = {}

    def do(self, request: rq.Write) -> Any:
        """Do what a write asks for. Raises its refusals; then the draft is to be thrown away."""
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
                return tuple(self._operation(index, one) for index, one in enumerate(operations))
            case _:
                assert_never(request)

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node without children."""
        node = self._known(path, version)
        if node.children:
            raise rq.NotEmptyError(path)
        parent_path, _ = split(path)
        parent = self._look(parent_path)
        self.changes[path] = None
        if parent is not None:
            self.changes[parent_path] = parent._replace(children=parent.children - 1)

    def _operation(self, index: int, operation: rq.Operation) -> Any:
        try:
            if isinstance(operation, rq.Check):
                self._known(operation.path, operation.version)
                return True
            return self.do(operation)
        except rq.RefusedError as exc:
            raise rq.TransactionFailedError(index, exc) from exc

    def _create(self, request: rq.Create) -> str:
        parent_path, _ = split(request.path)
        parent = self._look(parent_path)
        if parent is None:
            raise rq.NodeMissingError(request.path)
        path = request.path + (sequence(parent.made) if request.sequential else "")
        if self._look(path) is not None:
            raise rq.NodeExistsError(path)
        if parent.owner:
            raise rq.NotPermittedError(path)  # ephemeral nodes have no children
        owner = self._session_id if request.ephemeral else 0
        self.changes[path] = Node(request.data, 0, owner, self._zxid, self._zxid, self._now_ms)
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
        if path == "/" or self._look(path) is not None:
            return
        self._ensure(split(path)[0])
        self._create(rq.Create(path))

    def _known(self, path: str, version: int) -> Node:
        node = self._look(path)
        if node is None:
            raise rq.NodeMissingError(path)
        if version not in (-1, node.version):
            raise rq.VersionMismatchError(path)
        return node

    def _look(self, path: str) -> Node | None:
        return self.changes[path] if path in self.changes else self._tree.get(path)


def split(path: str) -> tuple[str, str]:
    """Path of the parent, and name below it."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def sequence(made: int) -> str:
    """The number that ZooKeeper adds to the name: ten digits of a signed number of 32 bits."""
    return f"{(made + _HALF) % _INT32 - _HALF:010d}"
