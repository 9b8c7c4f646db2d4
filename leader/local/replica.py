"""One server's copy of the nodes, and the watches of the clients that are connected to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leader.local.tree import Changes, Node, Tree, split
from leader.protocol import requests as rq

OnWatch = Callable[[str, bool], None]
"""Called with the path of a watch that fired and whether the node is gone."""


class Replica:
    """See the module. A watch fires once; there is at most one of a kind for each client and path."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._on_node: dict[str, dict[OnWatch, None]] = {}
        self._on_children: dict[str, dict[OnWatch, None]] = {}

    def read(self, request: rq.Read, on_watch: OnWatch) -> Any:
        """Answer from this copy. Raises NodeMissingError where the request says so."""
        if isinstance(request, rq.GetEach):
            return tuple(self._each(path) for path in request.paths)
        path = request.path
        node = self.tree.get(path)
        if isinstance(request, rq.GetChildren):
            if node is None:
                raise rq.NodeMissingError(path)
            if request.watch:
                self._on_children.setdefault(path, {})[on_watch] = None
            return self.tree.children(path)
        if node is None and isinstance(request, rq.Get):
            raise rq.NodeMissingError(path)
        if request.watch:
            self._on_node.setdefault(path, {})[on_watch] = None
        if node is None:
            return None
        return (node.data, node.stat) if isinstance(request, rq.Get) else node.stat

    def _each(self, path: str) -> tuple[bytes, rq.Stat] | rq.RefusedError:
        node = self.tree.get(path)
        return rq.NodeMissingError(path) if node is None else (node.data, node.stat)

    def apply(self, changes: Changes) -> None:
        """Take over a transaction; tell who watched."""
        fired: list[tuple[OnWatch, str, bool]] = []
        for path, node in changes.items():
            fired += self._fired(path, self.tree.get(path), node)
        self.tree.apply(changes)
        for on_watch, path, gone in fired:
            on_watch(path, gone)

    def _fired(self, path: str, before: Node | None, after: Node | None) -> list[tuple[OnWatch, str, bool]]:
        if before is None and after is None:  # made and deleted in one transaction: its making is told
            parent = split(path)[0]
            told = [(one, parent, False) for one in self._on_children.pop(parent, ())]
            return told + [(one, path, False) for one in self._on_node.pop(path, ())]
        was, now = before and before.created, after and after.created
        gone = before is not None and was != now  # also if another is there by now
        fired: list[tuple[OnWatch, str, bool]] = []
        if was != now:
            parent = split(path)[0]
            fired += [(one, parent, False) for one in self._on_children.pop(parent, ())]
        if gone:
            fired += [(one, path, True) for one in self._on_children.pop(path, ())]
        if was != now or (before and before.version) != (after and after.version):
            fired += [(one, path, gone) for one in self._on_node.pop(path, ())]
        return fired

    def forget(self, on_watch: OnWatch) -> None:
        """A client is not connected any more."""
        for watches in (self._on_node, self._on_children):
            for watchers in watches.values():
                watchers.pop(on_watch, None)
