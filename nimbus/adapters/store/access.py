"""The tokens and the session key that schedulers share."""

from __future__ import annotations

import secrets
from contextlib import suppress

from kazoo.exceptions import NodeExistsError

from nimbus.adapters.store.calls import Calls
from nimbus.adapters.store.leader_store import read_settings
from nimbus.adapters.store.paths import Paths
from nimbus.domain.settings import ClusterSettings
from nimbus.ports import Enqueue


class TreeAccess:
    """See `nimbus.ports.AccessStore`. One thread, except for the watches."""

    def __init__(self, calls: Calls, root: str) -> None:
        self._calls, self._paths = calls, Paths(root)

    def settings(self, changed: Enqueue) -> ClusterSettings:
        """The settings, which contain tokens and grants, with a watch on their record."""
        self._calls.ensure(self._paths.settings)
        return read_settings(self._calls, self._paths, changed)

    def session_key(self) -> bytes:
        """Read the secret, or create it. If several schedulers create it, the first one wins."""
        self._calls.ensure(self._paths.root)
        while (key := self._calls.get(self._paths.session_key)) is None:
            with suppress(NodeExistsError):
                self._calls.create(self._paths.session_key, secrets.token_bytes(32))
        return key
