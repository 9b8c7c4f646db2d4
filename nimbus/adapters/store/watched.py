"""A cache of nodes that are read often, such as all entries of a list; read again when they change."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from nimbus.adapters.store.calls import Calls, WatchCallback
from nimbus.ports import Enqueue, StoreUnavailableError

Value = TypeVar("Value")
PATIENCE_S = 30.0
"""Longest wait for another thread that reads the same nodes: the first read of 10,000 takes about 2 s."""


class WatchedNodes(Generic[Value]):
    """The values of some nodes, by name. Any thread.

    Args:
        calls: The store. kazoo also calls all watches when the connection is lost.
        read: Reads nodes by name, with a watch on each. Missing and unreadable nodes are left out.
        on_change: Called for each change of a node. Must not block.
    """

    def __init__(
        self,
        calls: Calls,
        read: Callable[[Mapping[str, Enqueue]], Mapping[str, Value]],
        on_change: Enqueue = lambda: None,
    ) -> None:
        self._calls, self._read, self._on_change = calls, read, on_change
        self._known: dict[str, Value] = {}
        self._changed: deque[str] = deque()
        """Filled by kazoo's thread."""
        self._lock = threading.Lock()

    def values(self, names: Collection[str]) -> dict[str, Value]:
        """The current values of the existing `names`; all others are dropped. StoreUnavailableError."""
        if not self._lock.acquire(timeout=PATIENCE_S):
            raise StoreUnavailableError("another request still reads the same records; try again.")
        try:
            self._calls.await_watches()
            self._forget(names)
            new = [name for name in names if name not in self._known]
            self._known |= self._read({name: WatchCallback(self._note, name) for name in new})
            return dict(self._known)
        finally:
            self._lock.release()

    def _note(self, name: str) -> None:
        self._changed.append(name)
        self._on_change()

    def _forget(self, names: Collection[str]) -> None:
        while self._changed:
            self._known.pop(self._changed.popleft(), None)
        for name in self._known.keys() - names:
            del self._known[name]
