"""Changes of a cluster in memory, for tests and demos."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from nimbus.ports import Changed, Enqueue


class MemoryChangeLog:
    """Every change so far. A thread that adds one must hold the cluster's lock."""

    def __init__(self) -> None:
        self.changes: list[tuple[tuple[str, ...], bool]] = []
        """Topics, and whether it is a beat. The version of a change is its position, from 1."""
        self.told: list[Enqueue] = []

    def note(self, *topics: str, is_beat: bool = False) -> None:
        """Add a change."""
        self.changes.append((topics, is_beat))
        for told in () if is_beat else tuple(self.told):
            told()


class MemoryChanges:
    """See `nimbus.ports.ChangeFeed`. `check` raises while the store is down."""

    def __init__(self, log: MemoryChangeLog, check: Callable[[], None]) -> None:
        self._log, self._check = log, check
        self._told: Enqueue = lambda: None
        self._seen = 0
        self._beats: set[str] = set()
        self._lost = True

    def version(self) -> int:
        """The number of changes."""
        return len(self._log.changes)

    def start(self, told: Enqueue) -> None:
        """Begin with the next change."""
        self._check()
        self._told, self._seen, self._lost = told, self.version(), True
        self._log.told.append(told)

    def take(self, *, beats: bool) -> Changed:
        """The changes since the last call."""
        self._check()
        version, found = self.version(), set[str]()
        for topics, is_beat in self._log.changes[self._seen : version]:
            (self._beats if is_beat else found).update(topics)
        if beats:
            found |= self._beats
            self._beats.clear()
        lost, self._lost, self._seen = self._lost, False, version
        return Changed(frozenset(found), version, version, lost=lost)

    def stop(self) -> None:
        """Stop following."""
        with suppress(ValueError):
            self._log.told.remove(self._told)
