"""A large blob on its way, chunk by chunk, on as many threads of a pool as are free."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from blobsync.errors import BlobSyncError, CorruptBlobError, SyncerClosedError
from blobsync.local.incoming import Incoming
from blobsync.release.objects import StoredObject

if TYPE_CHECKING:
    from blobsync.sync.transfers import Transfers


class Chunks:
    """Brings one blob. Begun by `start`.

    Args:
        transfers: Whose blob it is.
        item: The blob.
        incoming: Its file; closed by us.
        order: Of the blob.
        ended: Called once, with the error, if any, when nobody works on it any more.
    """

    def __init__(
        self,
        transfers: Transfers,
        item: StoredObject,
        incoming: Incoming,
        order: int,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._transfers = transfers
        self._item = item
        self._incoming = incoming
        self._order = order
        self._ended = ended
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, int]] = deque()
        self._wrong: set[int] = set()
        self._working = 0
        self._error: BaseException | None = None

    def start(self) -> None:
        """Find out what is missing, and let as many threads as may be of use begin."""
        try:
            self._waiting.extend(self._incoming.missing())
        except BaseException as exc:  # noqa: BLE001 - told to whoever waits for the blob
            self._error = exc
        left = sum(size for _, size in self._waiting)
        self._transfers.meter.begin(self._item.name, self._item.size_bytes - left)
        starters = max(1, min(self._transfers.threads, len(self._waiting)))
        with self._lock:
            self._working = starters
        for _ in range(starters):
            self._submit()

    def _submit(self) -> None:
        try:
            self._transfers.submit(self._one, self._order).add_done_callback(self._done)
        except BlobSyncError as exc:
            self._stopped(exc)

    def _one(self) -> None:
        """Bring one chunk. On a thread of the pool."""
        with self._lock:
            if self._error is not None or not self._waiting:
                return
            start, size = self._waiting.popleft()
            store_only = start in self._wrong
        self._transfers.copy(self._item, self._incoming, start, size, store_only=store_only)
        try:
            self._incoming.took(start, size)
        except CorruptBlobError:
            self._transfers.meter.came(self._item.name, -size)
            with self._lock:
                if start in self._wrong:
                    raise
                self._wrong.add(start)
                self._waiting.append((start, size))

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
        error: BaseException | None = None
        try:
            with self._incoming:
                self._install()
        except BaseException as exc:  # noqa: BLE001 - told to whoever waits for the blob
            error = exc
        self._ended(error)

    def _install(self) -> None:
        if self._error is not None:
            raise self._error
        self._incoming.install()
