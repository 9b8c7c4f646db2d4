"""A session with the store of the live state, ZooKeeper or SQLite, and the calls that it answers."""

from __future__ import annotations

from leader import ZooKeeperSession
from nimbus.adapters.sqlite.calls import SqliteCalls
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.zookeeper.calls import Calls

StoreSession = ZooKeeperSession | SqliteSession


def calls_on(session: StoreSession) -> Calls:
    """The calls of a session; the adapters are the same for both stores."""
    return SqliteCalls(session) if isinstance(session, SqliteSession) else Calls(session)
