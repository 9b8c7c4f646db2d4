"""Brings objects from their sources into the local store. Each is fetched once, however many ask for it.

Small objects are one call of a pool. Chunks of a large blob are one call each, so that several threads work
on one blob, and others have their turn between two chunks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    CorruptBlobError,
    InvalidPackError,
    StoreUnavailableError,
    SyncerClosedError,
)
from blobsync.local.incoming import Incoming
from blobsync.local.store import LocalStore
from blobsync.release.blob import PACKED_BYTES, Blob
from blobsync.release.layout import Pack
from blobsync.release.loose import Bundle, LooseBlob
from blobsync.release.objects import Fetchable, StoredObject
from blobsync.storage import keys
from blobsync.sync.arrival import Arrival
from blobsync.sync.chunks import Chunks
from blobsync.sync.loose import LooseFetcher
from blobsync.sync.meter import Meter
from blobsync.sync.pool import DaemonPool, Lane
from blobsync.sync.sources import Sources
from blobsync.sync.throttle import Throttle

TRANSFER_GRACE_S = 60.0
SLOWEST_BYTES_PER_S = 64 << 10
"""What comes more slowly, after the grace, is given up and tried again: others need its thread."""


class Transfers:
    """Fetches objects. Thread-safe.

    Args:
        local: Where to.
        sources: Where from.
        pool: Whose threads do it.
        throttle: Waits, to keep below a bandwidth.
        meter: Counts.
        clock: Monotonic seconds.
        grace_s: See `TRANSFER_GRACE_S`.
    """

    def __init__(
        self,
        local: LocalStore,
        sources: Sources,
        pool: DaemonPool,
        throttle: Throttle,
        meter: Meter,
        clock: Callable[[], float] = time.monotonic,
        grace_s: float = TRANSFER_GRACE_S,
    ) -> None:
        self._local = local
        self._sources = sources
        self._pool = pool
        self._throttle = throttle
        self._meter = meter
        self._clock = clock
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Arrival]] = {}
        self._loose = LooseFetcher(sources.store, local, throttle, meter, clock, self._allowed_s)

    def fetch(self, item: Fetchable, order: int = 0) -> Future[Arrival]:
        """Bring one object. Who asks while it is under way gets the same answer: do not cancel it.

        The future raises what `ObjectStore.copy`, `LocalStore.receive` and `Incoming.install` raise. Wrong
        bytes are fetched a second time, from the object store alone, before that is an error.

        Raises:
            SyncerClosedError: the pool was closed.
        """
        with self._lock:
            under_way = self._under_way.get(item.name)
            if under_way is not None:
                return under_way
            future: Future[Arrival] = Future()
            future.set_running_or_notify_cancel()  # nobody can cancel it: others wait for it
            self._under_way[item.name] = future
        lane = Lane.LARGE if item.size_bytes > PACKED_BYTES and isinstance(item, Blob) else Lane.SMALL
        try:
            begun = self._pool.submit(partial(self._begin, item, order, future), lane=lane, rank=(order, 1))
        except BlobSyncError:
            self._forget(item.name)
            raise
        begun.add_done_callback(lambda done: self._begun(item, future, done))
        return future

    def _begin(self, item: Fetchable, order: int, future: Future[Arrival]) -> Arrival | None:
        """On a thread of the pool. None: chunks of it are under way, the last of them ends it."""
        if isinstance(item, Bundle):
            return self._loose.fetch(item)
        incoming = self._local.receive(item)
        if incoming is None:
            return Arrival.HERE if self._local.has(item) else Arrival.ELSEWHERE
        if not isinstance(item, Pack) and item.chunks:
            Chunks(self, item, incoming, order, lambda error: self._end(item, future, error)).start()
            return None
        try:
            self._bring(item, incoming, store_only=False)
        except (CorruptBlobError, InvalidPackError):
            # Damage on the way, or of what an earlier process left, heals by a second try; at the source not.
            again = self._local.receive(item)
            if again is None:
                return Arrival.ELSEWHERE
            self._bring(item, again, store_only=True)
        return Arrival.FETCHED

    def _bring(self, item: StoredObject, incoming: Incoming, *, store_only: bool) -> None:
        with incoming:
            missing = incoming.missing()
            self._meter.begin(item.name, item.size_bytes - sum(size for _, size in missing))
            for start, size in missing:
                self.copy(item, incoming, start, size, store_only=store_only)
                incoming.took(start, size)
            incoming.install()

    def copy(
        self, item: StoredObject, incoming: Incoming, start: int, size: int, *, store_only: bool
    ) -> None:
        """Copy one range, within the bandwidth, and not for ever."""
        key = _key(item)
        came = 0
        until_s = self._clock() + self._allowed_s(size)

        def going_on(more: int) -> None:
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
                key,
                incoming.fd,
                start=start,
                size_bytes=size,
                going_on=going_on,
                store_only=store_only or isinstance(item, LooseBlob),
            )
        except StoreUnavailableError as exc:
            self._meter.came(item.name, -came)
            if isinstance(item, LooseBlob):
                self._refuse_other_size(item, exc)
            raise
        except BaseException:
            self._meter.came(item.name, -came)
            raise

    def _refuse_other_size(self, item: LooseBlob, why: StoreUnavailableError) -> None:
        """A plain object that somebody replaced by a shorter one breaks off for ever; that is no outage."""
        found = self._sources.store.size(item.key)
        if found is None:
            raise BlobNotFoundError(item.key) from why
        if found != item.size_bytes:
            raise CorruptBlobError(f"{item.key} has {found} bytes, not {item.size_bytes}") from why

    def _allowed_s(self, size_bytes: int) -> float:
        """How long so many bytes may take."""
        return self._grace_s + size_bytes / SLOWEST_BYTES_PER_S

    def submit(self, call: Callable[[], None], order: int) -> Future[None]:
        """Run a part of a large blob. Those of one that has begun go before the next blob begins."""
        return self._pool.submit(call, lane=Lane.LARGE, rank=(order, 0))

    @property
    def threads(self) -> int:
        """How many may work on one blob."""
        return self._pool.size

    @property
    def meter(self) -> Meter:
        """What counts."""
        return self._meter

    def _begun(self, item: Fetchable, future: Future[Arrival], done: Future[Arrival | None]) -> None:
        if done.cancelled():
            self._finish(item, future, SyncerClosedError("this syncer was closed; make a new one"))
        elif (error := done.exception()) is not None:
            self._finish(item, future, error)
        elif (arrival := done.result()) is not None:
            self._finish(item, future, arrival)

    def _end(self, item: StoredObject, future: Future[Arrival], error: BaseException | None) -> None:
        self._finish(item, future, Arrival.FETCHED if error is None else error)

    def _finish(self, item: Fetchable, future: Future[Arrival], what: Arrival | BaseException) -> None:
        self._meter.end(item.name, good=what is Arrival.FETCHED)
        self._forget(item.name)
        with suppress(InvalidStateError):
            if isinstance(what, Arrival):
                future.set_result(what)
            else:
                future.set_exception(_told(item, what))

    def _forget(self, name: str) -> None:
        with self._lock:
            self._under_way.pop(name, None)


def _key(item: StoredObject) -> str:
    if isinstance(item, Pack):
        return keys.pack(item.name)
    return item.key if isinstance(item, LooseBlob) else keys.blob(item.name)


def _told(item: Fetchable, error: BaseException) -> BaseException:
    """An error that says what to do, where publishing again is not it."""
    if isinstance(item, LooseBlob) and isinstance(error, CorruptBlobError):
        return CorruptBlobError(
            f"{item.key} has other bytes than when it was adopted; nothing of it was used. If they are "
            f"wanted, adopt its prefix again ({error})"
        )
    return error
