"""A session with the store of the live state, ZooKeeper or SQLite, and its calls."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from leader import ZooKeeperSession
from nimbus.adapters.store.calls import Calls
from nimbus.adapters.zookeeper.calls import ZooKeeperCalls

if TYPE_CHECKING:  # with ZooKeeper, no process needs the 1.1 MiB of SQLite and its adapter
    from nimbus.adapters.sqlite.session import SqliteSession

StoreSession: TypeAlias = "ZooKeeperSession | SqliteSession"


def calls_on(session: StoreSession, patience: timedelta | None = None) -> Calls:
    """The calls of a session. The adapters are the same for both stores. `patience`: see `ZooKeeperCalls`."""
    if isinstance(session, ZooKeeperSession):
        return ZooKeeperCalls(session, patience)
    from nimbus.adapters.sqlite.calls import SqliteCalls

    return SqliteCalls(session)
