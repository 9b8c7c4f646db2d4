"""The lease of a collection that deletes: while it is held, no publish goes on.

See `blobsync.storage.leases` for how publishes and collections see each other. There is no thread: whoever
deletes calls `keep` before each step.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from blobsync.collection.access import Access
from blobsync.errors import BlobSyncError
from blobsync.storage import keys
from blobsync.storage.leases import Lease, LiveLease, live_leases, store_time
from blobsync.storage.ports import ObjectStore

TTL = timedelta(minutes=10)


class CollectLapsedError(BlobSyncError):
    """A collection could not keep its lease. The next run goes on."""

    code = "collect_lapsed"


class CollectLease:
    """Held from entering to leaving. Not reusable.

    Args:
        access: The store.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._key = keys.collect_lease(uuid.uuid4().hex)
        holder = f"{socket.gethostname()} {os.getpid()}"
        self._lease = Lease("collection", holder, datetime.now(UTC), TTL)
        self._written_s = 0.0
        self.began_s = 0.0
        """When it was taken, by the collection's clock."""

    def __enter__(self) -> Self:
        """Write it.

        Raises:
            BlobSyncError: as of `ObjectStore.write`.
        """
        self.began_s = self._written_s = self._access.clock_s()
        try:
            self._write()
        except BaseException:
            self._end()  # the store may have taken it all the same
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it back. If that fails, it runs out by itself."""
        self._end()

    def publishers(self) -> tuple[datetime, list[LiveLease]]:
        """What time it is at the store, and who publishes there."""

        def ask(store: ObjectStore) -> tuple[datetime, list[LiveLease]]:
            now = store_time(store, self._key)
            return now, live_leases(store, keys.PUBLISH_LEASES, now)

        return self._access.call(ask, "look for publishes")

    def keep(self) -> None:
        """Make sure that it has been held without a gap, and will be for half of its time yet.

        Raises:
            CollectLapsedError: it has not; a publish may have begun.
            BlobSyncError: as of `ObjectStore.write`.
        """
        self._check()
        if self._access.clock_s() - self._written_s > TTL.total_seconds() / 4:
            self._write()

    def _write(self) -> None:
        """Each try counts from its own beginning, and not after a gap: that cannot be mended."""

        def attempt(store: ObjectStore) -> None:
            began_s = self._access.clock_s()
            self._check()
            store.write(self._key, self._lease.encode(datetime.now(UTC)))
            self._written_s = began_s

        self._access.call(attempt, "write collect lease")
        self._check(TTL / 2)  # the last try may have taken long

    def _check(self, limit: timedelta = TTL) -> None:
        gap_s = self._access.clock_s() - self._written_s
        if gap_s >= limit.total_seconds():
            raise CollectLapsedError(
                f"the collection could not renew its lease for {gap_s:.0f} s, so a publish may have begun; "
                f"nothing more was deleted. The next run goes on"
            )

    def _end(self) -> None:
        with suppress(BlobSyncError):
            self._access.store.delete(self._key)
