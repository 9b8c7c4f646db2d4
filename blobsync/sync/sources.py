"""Where objects are copied from: peers that were told of, in order, and then the object store.

A peer is asked as a favour. Whatever it cannot give comes from the next, and at last from the object store,
whose word alone counts: only it can say that an object does not exist. What any of them gives is verified
like anything else; after wrong bytes, the object store is asked at once. A range is copied within a bandwidth
and a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectStore, OnProgress
from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    LocalStoreError,
    StoreUnavailableError,
    SyncerClosedError,
)
from blobsync.local.incoming import Incoming
from blobsync.log import Log
from blobsync.release.layout import Pack
from blobsync.release.objects import StoredObject
from blobsync.sync.meter import Meter, Throttle

_log = Log(__name__)

_REST_S = 30.0
"""A source that failed is not asked again for so long."""
TRANSFER_GRACE_S = 60.0
SLOWEST_BYTES_PER_S = 64 << 10
"""A range that comes more slowly, after the grace, is given up and tried again: others need its thread."""


class ObjectSource(Protocol):
    """A place that may have objects, such as another host of the same cluster. Thread-safe."""

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, on_progress: OnProgress) -> None:
        """Write a range of an object into an open file, at the same offset.

        Args:
            key: As of `blobsync.bucket.keys`.
            fd: Open for writing.
            start: First byte.
            size_bytes: How many.
            on_progress: See `OnProgress`; call it at least once a second. What it raises passes through.

        Raises:
            BlobNotFoundError: it does not have that.
            LocalStoreError: the file cannot be written.
            BlobSyncError: anything else; it is left alone for a while.
        """
        ...


class Sources:
    """Asks one after the other. Thread-safe.

    Args:
        store: The object store, asked last.
        peers: Asked before, in this order.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        store: ObjectStore,
        peers: Sequence[ObjectSource] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._peers = tuple(peers)
        self._clock = clock
        self._resting_until_s = [float("-inf")] * len(self._peers)

    def copy(
        self,
        key: str,
        fd: int,
        *,
        start: int,
        size_bytes: int,
        on_progress: OnProgress,
        store_only: bool = False,
    ) -> None:
        """Write a range of an object into an open file. As of `ObjectStore.copy`.

        Args:
            key: What.
            fd: Where to.
            start: First byte.
            size_bytes: How many.
            on_progress: See `OnProgress`. Bytes that a peer gave before it failed are taken back from
                it, as a negative number.
            store_only: Peers are left out: one of them gave wrong bytes.
        """
        for number in () if store_only else range(len(self._peers)):
            if self._clock() >= self._resting_until_s[number] and self._copied(
                number, key, fd, start, size_bytes, on_progress
            ):
                return
        self._store.copy(key, fd, start=start, size_bytes=size_bytes, on_progress=on_progress)

    def _copied(
        self, number: int, key: str, fd: int, start: int, size_bytes: int, on_progress: OnProgress
    ) -> bool:
        """Copy from a peer. False: it does not have that, or failed, and what it gave is taken back."""
        got = 0

        def count(more: int) -> None:
            nonlocal got
            got += more
            on_progress(more)

        try:
            self._peers[number].copy(key, fd, start=start, size_bytes=size_bytes, on_progress=count)
        except BlobNotFoundError:
            pass
        except (LocalStoreError, SyncerClosedError):
            raise
        except BlobSyncError as exc:
            self._resting_until_s[number] = self._clock() + _REST_S
            _log.warning("peer_failed", peer=number, key=key, error=str(exc))
        else:
            return True
        on_progress(-got)
        return False


class RangeCopier:
    """Copies ranges of objects into their files. Thread-safe.

    Args:
        sources: Where from.
        throttle: Waits, to keep below a bandwidth.
        meter: Counts.
        clock: Monotonic seconds.
        grace_s: See `TRANSFER_GRACE_S`.
    """

    def __init__(
        self,
        sources: Sources,
        throttle: Throttle,
        meter: Meter,
        clock: Callable[[], float] = time.monotonic,
        grace_s: float = TRANSFER_GRACE_S,
    ) -> None:
        self._sources, self._throttle, self._meter = sources, throttle, meter
        self._clock, self._grace_s = clock, grace_s

    def copy(
        self, item: StoredObject, incoming: Incoming, start: int, size: int, *, store_only: bool
    ) -> None:
        """Copy a range, then verify it if it is a chunk.

        Args:
            item: The object.
            incoming: Its file.
            start: Of the range.
            size: Of the range.
            store_only: Ask no peer.

        Raises:
            CorruptBlobError: a chunk with other bytes.
            BlobSyncError: as of `ObjectStore.copy` and `Incoming.took`.
        """
        key = keys.pack(item.name) if isinstance(item, Pack) else keys.blob(item.name)
        came = 0
        until_s = self._clock() + self._grace_s + size / SLOWEST_BYTES_PER_S

        def on_progress(more: int) -> None:
            nonlocal came, until_s
            came += more
            self._meter.came(item.name, more)
            until_s += self._throttle.take(max(0, more))  # our own waiting is not the sender's fault
            if self._clock() > until_s:
                raise StoreUnavailableError(
                    f"{key} came too slowly: {came} of {size} bytes from {start} on; it is tried again"
                )

        try:
            self._sources.copy(
                key, incoming.fd, start=start, size_bytes=size, on_progress=on_progress, store_only=store_only
            )
            incoming.took(start, size)
        except BaseException:
            self._meter.came(item.name, -came)
            raise
