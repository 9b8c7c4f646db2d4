"""The lease of a publish: while it is held, nothing that the publish found or uploaded is collected.

One thread, `blobsync-publish-lease`, writes it again and again; it ends with the publish. The format, and how
collectors read it, is in `blobsync.storage.leases`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from blobsync.errors import BlobNotFoundError, BlobSyncError, PublishLapsedError, StoreUnavailableError
from blobsync.log import Log
from blobsync.retry import RetryPolicy, call_retrying
from blobsync.storage import keys
from blobsync.storage.leases import Lease, live_leases, store_time
from blobsync.storage.ports import ObjectStore

TTL = timedelta(minutes=30)
REFRESHES_PER_TTL = 6
COLLECTION_PATIENCE = timedelta(minutes=10)
"""How long a publish waits for a collection that is deleting. That takes seconds."""

_log = Log(__name__)


def boottime_s() -> float:
    """Seconds since the host started, sleep included; nobody sets this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class PublishLease:
    """Held from entering to leaving. Not reusable.

    Args:
        store: Where to.
        subject: What is published.
        holder: Who does it.
        retry: For the first write.
        stopping: When set, waiting ends.
        ttl: How long collectors honour it after it was last written.
        clock_s: Never set back; counts sleep of the host.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        subject: str,
        holder: str,
        retry: RetryPolicy,
        stopping: threading.Event,
        ttl: timedelta = TTL,
        clock_s: Callable[[], float] = boottime_s,
    ) -> None:
        self._store, self._retry, self._stopping, self._clock_s = store, retry, stopping, clock_s
        self._lease = Lease(subject, holder, datetime.now(UTC), ttl)
        self.key = keys.publish_lease(uuid.uuid4().hex)
        self._written_s = clock_s()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="blobsync-publish-lease", daemon=True)

    def __enter__(self) -> Self:
        """Write it, then wait until no collection is deleting.

        Raises:
            StoreUnavailableError: also when a collection takes too long.
            BlobSyncError: as of `ObjectStore.write`.
        """
        call_retrying(self._write, self._retry, what="write publish lease", stopping=self._stopping)
        self._thread.start()
        try:
            self._wait_for_collectors()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it back. If that fails, it runs out by itself."""
        self._end()

    def check(self) -> None:
        """Make sure that it has been held without a gap up to now.

        Raises:
            PublishLapsedError: it has not; the host slept, or the store was away for too long.
        """
        gap_s = self._clock_s() - self._written_s
        if gap_s >= self._lease.ttl.total_seconds():
            raise PublishLapsedError(
                f"publish of {self._lease.subject} could not renew its lease for {gap_s:.0f} s, so what it "
                f"counts on may have been collected; nothing became visible. Publish again: what is still "
                f"there is not sent again"
            )

    def _wait_for_collectors(self) -> None:
        until_s = self._clock_s() + COLLECTION_PATIENCE.total_seconds()
        while call_retrying(
            self._collectors, self._retry, what="look for collections", stopping=self._stopping
        ):
            if self._clock_s() > until_s or self._stopping.wait(1.0):
                raise StoreUnavailableError(
                    f"a collection has been deleting for {COLLECTION_PATIENCE} in the bucket; publish again "
                    f"when the leases below {keys.COLLECT_LEASES} are gone"
                )
            call_retrying(self._write, self._retry, what="write publish lease", stopping=self._stopping)

    def _collectors(self) -> bool:
        try:
            now = store_time(self._store, self.key)
        except BlobNotFoundError as exc:
            # Seen once with rclone under load. What is not listed protects nothing: no collection sees it.
            self._write()
            raise StoreUnavailableError(
                f"the store does not list the lease {self.key}, written a moment ago; it was written again"
            ) from exc
        return bool(live_leases(self._store, keys.COLLECT_LEASES, now))

    def _write(self) -> None:
        began_s = self._clock_s()
        self.check()  # a gap cannot be mended by writing again
        self._store.write(self.key, self._lease.encode(datetime.now(UTC)))
        self._written_s = began_s

    def _refresh(self) -> None:
        pause_s = self._lease.ttl.total_seconds() / REFRESHES_PER_TTL
        while not self._ended.wait(pause_s):
            try:
                self._write()
            except PublishLapsedError:
                return  # `check` tells the publisher
            except BlobSyncError as exc:
                _log.warning("publish_lease_not_renewed", key=self.key, error=str(exc))

    def _end(self) -> None:
        self._ended.set()
        self._thread.join()
        with suppress(BlobSyncError):
            self._store.delete(self.key)
