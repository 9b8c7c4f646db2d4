"""The feed of changes of the live state, by topic, for event streams.

There may be thousands of changes per second, so they arrive over a separate session: the session of the
leader's writes is not delayed, and its watches are not affected (see `watch_below_async` in
`leader.zookeeper.kazoo_client`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from kazoo.protocol.states import EventType, WatchedEvent

from leader import ZooKeeperSession
from nimbus.adapters.store.changes import Gathered, Topics
from nimbus.adapters.zookeeper.calls import in_our_words
from nimbus.ports import Changed, Enqueue, StoreUnavailableError

_CLOSE = timedelta(seconds=1)


class ZooKeeperChanges:
    """See `nimbus.ports.ChangeFeed`.

    Args:
        connect: Opens a separate session. Raises LeaderError.
        root: The cluster's root.
        version: See the port.
    """

    def __init__(
        self, connect: Callable[[], ZooKeeperSession], root: str, version: Callable[[], int]
    ) -> None:
        self._connect, self._root, self.version = connect, root, version
        self._topics = Topics(root)
        self._session: ZooKeeperSession | None = None
        self._gathered = Gathered(self._topics, lambda: None)
        self._armed: int | None = None
        """The connection that has our watches."""

    def start(self, told: Enqueue) -> None:
        """Connect."""
        self._gathered, self._armed = Gathered(self._topics, told), None
        with in_our_words("follow changes"):
            self._session = self._connect()
        self._session.tell_below(self._on_event)
        self._session.add_listener(lambda _state: told())

    def take(self, *, beats: bool) -> Changed:
        """The changes since the last call."""
        session = self._session
        if session is None:
            raise StoreUnavailableError("changes are not followed.")
        with in_our_words("follow changes"):
            generation, armed = session.generation, self._armed
            self._armed = None  # if one of these fails, the next call starts again
            lost = generation != armed
            if lost:
                self._arm(session, self._topics.parents)
            version = self._look(session)
            found = self._gathered.take(beats=beats or lost)
            upto = self._look(session) if found else version
            self._armed = generation
        return Changed(found, version, upto, lost=lost)

    def stop(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close(_CLOSE)
            self._session = None

    def _arm(self, session: ZooKeeperSession, parents: Iterable[str]) -> None:
        for parent in parents:
            session.watch_below(parent)

    def _look(self, session: ZooKeeperSession) -> int:
        """The server's last transaction. All earlier changes have been delivered."""
        session.call(session.client.exists_async, self._root)
        return session.last_zxid

    def _on_event(self, event: WatchedEvent) -> None:
        """Called on kazoo's connection thread."""
        self._gathered.add(event.path, is_change=event.type == EventType.CHANGED)
