"""Keeps the wanted releases in the local store, in the background.

`Syncer` starts the thread of `loop`, which owns the table of due work (`table`, `task_queue`) and calls the
listeners. A look at a wanted release finds the objects that it lacks; they are fetched and verified (`jobs`).
If a look finds nothing missing, the release is ready (`readiness`). `ensure` wants a release before all
others, waits for it and pins it (`waits`).

Threads: `blobsync-syncer` is the loop. Blocking work is done by `blobsync-look-<n>` (looks),
`blobsync-fetch-<n>` (fetches) and `blobsync-scrub`. `readiness()` and `progress()` only read a value.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from blobsync.bucket.ports import ObjectStore
from blobsync.errors import BlobSyncConfigError, BlobSyncError, SyncerClosedError
from blobsync.local.store import LocalStore
from blobsync.log import LazyLog
from blobsync.progress import SyncProgress, Throttle
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import RetryPolicy
from blobsync.sync.damage import DamagedObjects
from blobsync.sync.jobs import Transfers, inspect
from blobsync.sync.loop import LOOK_THREADS, SyncLoop
from blobsync.sync.pool import DaemonPool
from blobsync.sync.readiness import Readiness
from blobsync.sync.scrubber import Scrubber, ScrubProgress
from blobsync.sync.waits import EnsureCall, EnsureCalls, Holds

_log = LazyLog(__name__)

THREADS = 4
SCRUB_BYTES_PER_S = 50e6
_FIRST = (-1, 0)
"""Rank of making a tree: before all looks."""


class Syncer:
    """Keeps wanted releases here and verified.

    Args:
        local: The local store. The syncer does not close it.
        retry: Back-off of each object. Retries never end.
        on_change: Called with each new readiness, on the thread `blobsync-syncer`: must only enqueue.
        scrub_interval: How often one process of the host hashes every byte of every kept release again.
        scrub_bytes_per_s: Limit of the rate of that; None: no limit.
        look_interval: How often the files of ready releases are checked without reading them.
        threads: Limit of transfers at the same time; several may belong to one large blob.
        bandwidth_bytes_per_s: Limit of all transfers together; None: no limit.
    """

    def __init__(
        self,
        store: ObjectStore,
        local: LocalStore,
        *,
        retry: RetryPolicy,
        on_change: Callable[[Readiness], None] | None = None,
        scrub_interval: timedelta = timedelta(hours=1),
        scrub_bytes_per_s: float | None = SCRUB_BYTES_PER_S,
        look_interval: timedelta = timedelta(seconds=30),
        threads: int = THREADS,
        bandwidth_bytes_per_s: float | None = None,
    ) -> None:
        _check(scrub_interval, look_interval, threads)
        self._local, self._retry = local, retry
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._fetches = DaemonPool(threads, "blobsync-fetch")
        self._looks = DaemonPool(LOOK_THREADS, "blobsync-look")
        self._holds = Holds(local)
        self._waits = EnsureCalls()
        throttle = Throttle(bandwidth_bytes_per_s, self._stopping)
        self._loop = SyncLoop(
            local,
            partial(inspect, store, local),
            Transfers(store, local, self._fetches, throttle, DamagedObjects(store, retry.first_wait)),
            self._looks,
            self._holds,
            self._waits,
            retry=retry,
            look_every_s=look_interval.total_seconds(),
            fetches=2 * threads,
        )
        if on_change is not None:
            self._loop.listeners.subscribe(on_change)
        self._scrubber = Scrubber(
            local,
            interval=scrub_interval,
            bytes_per_s=scrub_bytes_per_s,
            stopping=self._stopping,
            damaged=self._loop.damaged,
        )
        self._unsubscribe: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._loop.run, name="blobsync-syncer", daemon=True)

    def start(self) -> None:
        """Start the background work. Call it once."""
        self._begin()
        self._scrubber.start()

    def close(self, timeout: timedelta) -> None:
        """Stop, and wait for running work. Threads that need more than the timeout end with the process."""
        until_s = time.monotonic() + timeout.total_seconds()
        with self._starting:
            self._stopping.set()
        self._waits.close()
        self._loop.stop()
        self._unsubscribe()
        if self._thread.ident is not None:
            self._thread.join(max(0.0, until_s - time.monotonic()))
        ended = [pool.close(max(0.0, until_s - time.monotonic())) for pool in (self._fetches, self._looks)]
        ended.append(self._scrubber.join(max(0.0, until_s - time.monotonic())))
        if not all(ended):
            _log.warning("syncer_closed_late", timeout_s=timeout.total_seconds())

    def want(self, refs: Collection[ReleaseRef]) -> None:
        """Replace the wanted set. Returns at once.

        Of a list or tuple, the objects of earlier releases are fetched first.
        """
        self._loop.want(tuple(refs) if isinstance(refs, Sequence) else frozenset(refs))

    def retry_now(self) -> None:
        """End every back-off, and fetch damaged objects again. Returns at once."""
        self._loop.retry_now()

    def readiness(self) -> Readiness:
        """State of the wanted releases. From memory; never waits."""
        return self._loop.readiness

    def subscribe(self, listener: Callable[[Readiness], None]) -> Callable[[], None]:
        """Call a listener with each new readiness, on the thread `blobsync-syncer`: must only enqueue.

        Returns a function that removes the listener. One call may still be under way.
        """
        return self._loop.listeners.subscribe(listener)

    def progress(self) -> SyncProgress:
        """How much has arrived, with unfinished transfers. From memory; never waits."""
        return self._loop.progress()

    def scrub_progress(self) -> ScrubProgress:
        """Progress of this process's scrub. From memory; never waits."""
        return self._scrubber.progress

    def is_here(self, ref: ReleaseRef) -> bool:
        """True if a release is complete and verified on this disk. Makes no request; needs no `start`."""
        return self._local.is_here(ref)

    def ensure(self, ref: ReleaseRef, timeout: timedelta) -> Path:
        """Fetch one release, wanted or not, and return its tree. Blocks; needs no `start`.

        The release is protected from collection until the local store is closed; see `pinned`.

        Raises:
            ReleaseAbsentError: the store answered that the release, or an object of it, does not exist.
            ReleaseCorruptError: the store repeatedly returned wrong bytes, or the manifest is invalid.
            BucketUnavailableError: the store did not answer, or the release was not complete in time.
            BucketAccessDeniedError, BucketMissingError, LocalStoreError: see there.
            SyncerClosedError: the syncer was closed, before or meanwhile.
        """
        until_s = time.monotonic() + timeout.total_seconds()
        self._begin()
        self._holds.pin(ref, until_s)
        try:
            with self._waits.open(ref, until_s) as wait:
                return self._folder(wait)
        except BaseException:
            self._holds.unpin(ref)
            raise
        finally:
            self._loop.end_ensure(ref)

    @contextlib.contextmanager
    def pinned(self, ref: ReleaseRef, timeout: timedelta) -> Iterator[Path]:
        """Like `ensure`, for use in a `with`, whose end also ends the protection from collection."""
        path = self.ensure(ref, timeout)
        try:
            yield path
        finally:
            self._holds.unpin(ref)

    def _begin(self) -> None:
        """Start the thread, if it was not started."""
        with self._starting:
            if self._stopping.is_set():
                raise SyncerClosedError
            if self._thread.ident is None:
                self._unsubscribe = self._local.subscribe_disk(lambda _state: self._loop.disk_turned())
                self._thread.start()

    def _folder(self, wait: EnsureCall) -> Path:
        """Wait until the release is complete. Its tree is made on another thread, since the disk may hang."""
        while True:
            self._loop.ensure(wait.ref)
            wait.complete()
            try:
                made = self._looks.submit(partial(self._local.materialise, wait.ref), rank=_FIRST)
                return wait.result(made)
            except BlobSyncError as exc:
                failures = wait.folder_failed(exc)
            wait.pause(self._retry.wait_s(failures))


def _check(scrub_interval: timedelta, look_interval: timedelta, threads: int) -> None:
    if scrub_interval <= timedelta(0) or look_interval <= timedelta(0):
        raise BlobSyncConfigError(
            f"scrub_interval ({scrub_interval}) and look_interval ({look_interval}) must be above 0"
        )
    if threads < 1:
        raise BlobSyncConfigError(f"a syncer needs at least 1 thread, not {threads}")
