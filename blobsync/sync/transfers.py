"""Brings objects from their sources into the local store, on the threads of a pool.

Small objects are one call of a pool. Chunks of a large blob are one call each, so that several threads work
on one blob, and others have their turn between two chunks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import partial

from blobsync.errors import BlobSyncError, SyncerClosedError
from blobsync.local.incoming import Incoming
from blobsync.local.store import LocalStore
from blobsync.release.blob import PACKED_BYTES, Blob
from blobsync.release.objects import StoredObject
from blobsync.retry import read_again_if_wrong
from blobsync.sync.meter import Meter
from blobsync.sync.pool import DaemonPool, Lane
from blobsync.sync.sources import RangeCopier


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring one object. What has the lower `order` goes first."""

    item: StoredObject
    order: int = 0


class Arrival(Enum):
    """What came of a fetch."""

    FETCHED = "fetched"
    HERE = "here"
    """It was here already."""
    ELSEWHERE = "elsewhere"
    """Somebody else of this host receives it now. Ask again soon."""


Ended = Callable[[Arrival | BaseException], None]
"""Called once when a fetch has ended, on any thread: what came of it, or the error."""


class Transfers:
    """Fetches objects. Thread-safe.

    Args:
        local: Where to.
        copier: Copies from where they are.
        pool: Whose threads do it.
        meter: Counts.
    """

    def __init__(self, local: LocalStore, copier: RangeCopier, pool: DaemonPool, meter: Meter) -> None:
        self._local, self._copier, self._pool, self._meter = local, copier, pool, meter

    def fetch(self, job: Fetch, ended: Ended) -> None:
        """Bring one object. If another thread or process of this host receives it, that is `ELSEWHERE`.

        Wrong bytes are fetched a second time, from the object store alone, before that is an error.

        Args:
            job: Which.
            ended: Told what came of it, or an error of `ObjectStore.copy`, `LocalStore.receive`,
                `Incoming.install`, or SyncerClosedError.

        Raises:
            SyncerClosedError: the pool was closed.
        """

        def finish(result: Arrival | BaseException) -> None:
            if result not in {Arrival.HERE, Arrival.ELSEWHERE}:
                self._meter.end(job.item.name, good=result is Arrival.FETCHED)
            ended(result)

        def cancelled(call: Future[None]) -> None:
            if call.cancelled():
                finish(SyncerClosedError("this syncer was closed; make a new one"))

        is_large = job.item.size_bytes > PACKED_BYTES and isinstance(job.item, Blob)
        begin = partial(self._begin, job, finish)
        call = self._pool.submit(begin, lane=Lane.LARGE if is_large else Lane.SMALL, rank=(job.order, 1))
        call.add_done_callback(cancelled)

    def _begin(self, job: Fetch, ended: Ended) -> None:
        """On a thread of the pool. The last chunk of a large blob ends it, anything else is brought here."""
        item, result = job.item, None
        try:
            if not (isinstance(item, Blob) and item.chunks):
                result = read_again_if_wrong(lambda again: self._bring(item, store_only=again))
            elif (incoming := self._local.receive(item)) is None:
                result = self._here_or_elsewhere(item)
            else:
                _Chunks(item, incoming, self._copier, self._pool, self._meter, job.order, ended).start()
        except BaseException as exc:  # noqa: BLE001 - told to whoever asked
            ended(exc)
        else:
            if result is not None:
                ended(result)

    def _bring(self, item: StoredObject, *, store_only: bool) -> Arrival:
        """Bring an object that has no chunks. Wrong bytes may be what an earlier process left."""
        incoming = self._local.receive(item)
        if incoming is None:
            return self._here_or_elsewhere(item)
        with incoming:
            missing = incoming.missing()
            self._meter.begin(item.name, item.size_bytes - sum(size for _, size in missing))
            for start, size in missing:
                self._copier.copy(item, incoming, start, size, store_only=store_only)
            incoming.install()
        return Arrival.FETCHED

    def _here_or_elsewhere(self, item: StoredObject) -> Arrival:
        return Arrival.HERE if self._local.has(item) else Arrival.ELSEWHERE


class _Chunks:
    """Brings one large blob, chunk by chunk, on as many threads of a pool as are free. Begun by `start`.

    Args:
        item: The blob.
        incoming: Its file; closed by us.
        copier: Copies a chunk.
        pool: Whose threads do it.
        meter: Counts.
        order: Of the blob.
        ended: See `Ended`. Called when no thread works on it any more.
    """

    def __init__(
        self,
        item: Blob,
        incoming: Incoming,
        copier: RangeCopier,
        pool: DaemonPool,
        meter: Meter,
        order: int,
        ended: Ended,
    ) -> None:
        self._item, self._incoming = item, incoming
        self._copier, self._pool, self._meter = copier, pool, meter
        self._order = order
        self._ended = ended
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, int]] = deque()
        self._working = 0
        self._error: BaseException | None = None

    def start(self) -> None:
        """Find out what is missing, and let as many threads as may be of use begin."""
        try:
            self._waiting.extend(self._incoming.missing())
        except BaseException as exc:  # noqa: BLE001 - told to whoever waits for the blob
            self._error = exc
        left = sum(size for _, size in self._waiting)
        self._meter.begin(self._item.name, self._item.size_bytes - left)
        starters = max(1, min(self._pool.size, len(self._waiting)))
        with self._lock:
            self._working = starters
        for _ in range(starters):
            self._submit()

    def _submit(self) -> None:
        try:
            # Chunks of a blob that has begun go before the next blob begins.
            submitted = self._pool.submit(self._one, lane=Lane.LARGE, rank=(self._order, 0))
            submitted.add_done_callback(self._done)
        except BlobSyncError as exc:
            self._stopped(exc)

    def _one(self) -> None:
        """Bring one chunk. On a thread of the pool."""
        with self._lock:
            if self._error is not None or not self._waiting:
                return
            start, size = self._waiting.popleft()
        read_again_if_wrong(
            lambda again: self._copier.copy(self._item, self._incoming, start, size, store_only=again)
        )

    def _done(self, done: Future[None]) -> None:
        if done.cancelled():
            self._stopped(SyncerClosedError("this syncer was closed while a blob arrived"))
        elif (error := done.exception()) is not None:
            self._stopped(error)
        elif self._waiting and self._error is None:
            self._submit()
        else:
            self._stopped(None)

    def _stopped(self, error: BaseException | None) -> None:
        """One thread has nothing more to do. The last one installs."""
        with self._lock:
            if self._error is None:
                self._error = error
            self._working -= 1
            if self._working:
                return
        self._finish()

    def _finish(self) -> None:
        result: Arrival | BaseException = Arrival.FETCHED
        try:
            with self._incoming:
                self._install()
        except BaseException as exc:  # noqa: BLE001 - told to whoever waits for the blob
            result = exc
        self._ended(result)

    def _install(self) -> None:
        if self._error is not None:
            raise self._error
        self._incoming.install()
