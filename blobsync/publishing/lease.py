"""The lease of a publish: while it is held, nothing that the publish found or uploaded is collected.

One thread, `blobsync-publish-lease`, writes it again and again; it ends with the publish. The format, and how
publishes and collections see each other, is in `blobsync.bucket.leases`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from blobsync.bucket import keys
from blobsync.bucket.leases import BucketLease, Lease, boottime_s
from blobsync.bucket.ports import PatientStore
from blobsync.errors import BlobSyncError, PublishLapsedError, StoreUnavailableError
from blobsync.log import Log

TTL = timedelta(minutes=30)
REFRESHES_PER_TTL = 6
COLLECTION_PATIENCE = timedelta(minutes=10)
"""How long a publish waits for a collection that is deleting. That takes seconds."""

_log = Log(__name__)


class PublishLease(BucketLease):
    """Held from entering to leaving. Not reusable.

    Args:
        store: Where to.
        subject: What is published.
        holder: Who does it.
        ttl: How long collectors honour it after it was last written.
        clock_s: Never set back; counts sleep of the host.
    """

    def __init__(
        self,
        store: PatientStore,
        *,
        subject: str,
        holder: str,
        ttl: timedelta = TTL,
        clock_s: Callable[[], float] = boottime_s,
    ) -> None:
        lease = Lease(subject, holder, datetime.now(UTC), ttl)
        super().__init__(
            store, keys.publish_lease(uuid.uuid4().hex), lease, partial(_lapsed, subject), clock_s
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="blobsync-publish-lease", daemon=True)

    def __enter__(self) -> Self:
        """Write it, then wait until no collection is deleting.

        Raises:
            StoreUnavailableError: also when a collection takes too long.
            BlobSyncError: as of `BucketLease`.
        """
        super().__enter__()
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
        """End the thread, and delete the lease."""
        self._end()

    def _wait_for_collectors(self) -> None:
        until_s = self._clock_s() + COLLECTION_PATIENCE.total_seconds()
        while self.look(keys.COLLECT_LEASES)[1]:
            self._store.stopping.wait(1.0)
            self._store.raise_if_stopped()
            if self._clock_s() > until_s:
                raise StoreUnavailableError(
                    f"a collection has been deleting for {COLLECTION_PATIENCE} in the bucket; publish again "
                    f"when the leases below {keys.COLLECT_LEASES} are gone"
                )
            self.write()

    def _renew(self) -> None:
        pause_s = self._lease.ttl.total_seconds() / REFRESHES_PER_TTL
        while not self._ended.wait(pause_s):
            try:
                self.write_once(self._store.store)
            except PublishLapsedError:
                return  # `check` tells the publisher
            except BlobSyncError as exc:
                _log.warning("publish_lease_not_renewed", key=self.key, error=str(exc))

    def _end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._delete()


def _lapsed(subject: str, gap_s: float) -> PublishLapsedError:
    return PublishLapsedError(
        f"publish of {subject} could not renew its lease for {gap_s:.0f} s, so what it counts on may have "
        f"been collected; nothing became visible. Publish again: what is still there is not sent again"
    )
