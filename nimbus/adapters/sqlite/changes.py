"""The feed of changes in a single scheduler's database, by topic."""

from __future__ import annotations

from collections.abc import Sequence

from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.sqlite.tree import CHANGED, Change
from nimbus.adapters.store.changes import Gathered, Topics
from nimbus.ports import Changed, Enqueue


class SqliteChanges:
    """See `nimbus.ports.ChangeFeed`. A version is the number of an operation."""

    def __init__(self, session: SqliteSession, root: str) -> None:
        self._session, self._topics = session, Topics(root)
        self._gathered = Gathered(self._topics, lambda: None)
        self._upto = 0
        self._lost = True
        """Set by the thread that delivers changes."""

    def version(self) -> int:
        """The last operation that was delivered to this process."""
        return self._session.told

    def start(self, told: Enqueue) -> None:
        """Follow the table of changes."""
        self._gathered, self._lost = Gathered(self._topics, told), True
        self._session.follow(self._on_changes)

    def take(self, *, beats: bool) -> Changed:
        """The changes since the last call."""
        self._session.tell()
        version, lost = self._session.told, self._lost
        self._lost = False
        found = self._gathered.take(beats=beats or lost)
        return Changed(found, version, max(version, self._upto), lost=lost)

    def stop(self) -> None:
        """Stop following."""
        self._session.unfollow(self._on_changes)

    def _on_changes(self, changes: Sequence[Change] | None) -> None:
        if changes is None:
            self._lost = True
            return
        for change in changes:
            self._upto = change.zxid
            self._gathered.add(change.path, is_change=change.what == CHANGED)
