"""Brings the local store to the wanted set of releases, in the background, for ever.

Where to read on: `Syncer` starts the thread of `loop`, which owns the table of what to do (`table`, `agenda`)
and calls the listeners. A wanted release is looked at, and the objects that it lacks are fetched and
verified (`jobs`); a look that finds nothing missing makes it ready (`readiness`). `ensure` is a want that
goes first, a wait and a pin (`waits`).

Threads: `blobsync-syncer` is the loop. `blobsync-look-<n>` find out what is missing, `blobsync-fetch-<n>`
bring it, `blobsync-scrub` verifies it anew: they do what blocks. `readiness()` and `progress()` read a value.
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
from blobsync.log import Log
from blobsync.progress import SyncProgress, Throttle
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import RetryPolicy
from blobsync.sync.jobs import Transfers, inspect
from blobsync.sync.loop import LOOK_THREADS, SyncLoop
from blobsync.sync.pool import DaemonPool
from blobsync.sync.readiness import Readiness
from blobsync.sync.scrubber import Scrubber, ScrubProgress
from blobsync.sync.waits import CLOSED, Holds, Wait, Waits

_log = Log(__name__)

THREADS = 4
SCRUB_BYTES_PER_S = 50e6
_FIRST = (-1, 0)
"""Folders are made before looks."""


class Syncer:
    """Keeps wanted releases here and verified.

    Args:
        store: Where they come from.
        local: Where they are kept. Not closed by us.
        retry: Back-off of each object; it never gives up.
        on_change: Told of each new readiness, on the thread `blobsync-syncer`: must only enqueue.
        scrub_interval: How often every byte of every kept release is hashed anew, by one process of the host.
        scrub_bytes_per_s: How fast that may read; None: as fast as the disk does.
        look_interval: How often the files of ready releases are looked at, without reading them.
        threads: How many transfers at a time; several may be of one large blob.
        bandwidth_bytes_per_s: Of all of them together; None: no limit.
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
        self._waits = Waits()
        throttle = Throttle(bandwidth_bytes_per_s, self._stopping)
        self._loop = SyncLoop(
            local,
            partial(inspect, store, local),
            Transfers(store, local, self._fetches, throttle),
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
        """Start the background work. Once."""
        self._begin()
        self._scrubber.start()

    def close(self, timeout: timedelta) -> None:
        """Stop, and wait for what is under way. What takes longer than the timeout ends with the process."""
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

        Args:
            refs: If they have an order (a list, a tuple), what the earlier ones lack is fetched first.
        """
        self._loop.want(tuple(refs) if isinstance(refs, Sequence) else frozenset(refs))

    def retry_now(self) -> None:
        """End every back-off. Returns at once."""
        self._loop.retry_now()

    def readiness(self) -> Readiness:
        """How the wanted releases stand. From memory; never waits."""
        return self._loop.readiness

    def subscribe(self, listener: Callable[[Readiness], None]) -> Callable[[], None]:
        """Be told of each new readiness, on the thread `blobsync-syncer`: must only enqueue.

        Returns:
            What ends that. One call may be under way still.
        """
        return self._loop.listeners.subscribe(listener)

    def progress(self) -> SyncProgress:
        """How much is here, what is under way included. From memory; never waits."""
        return self._loop.progress()

    def scrub_progress(self) -> ScrubProgress:
        """How far this process's scrub is. From memory; never waits."""
        return self._scrubber.progress

    def subscribe_progress(self, listener: Callable[[SyncProgress], None]) -> Callable[[], None]:
        """Be told of progress while there is any, some ten times a second. As `subscribe`."""
        return self._loop.progress_listeners.subscribe(listener)

    def is_here(self, ref: ReleaseRef) -> bool:
        """True if a release is complete and verified on this disk. Asks no store; needs no `start`.

        Raises:
            LocalStoreError: the disk does not say.
        """
        return self._local.is_here(ref)

    def ensure(self, ref: ReleaseRef, timeout: timedelta) -> Path:
        """Bring one release here, wanted or not, and give it as a folder. Blocks; needs no `start`.

        The release is protected from collection until the local store is closed; see `pinned`.

        Raises:
            ReleaseAbsentError: the store answered: it, or a file of it, does not exist.
            ReleaseCorruptError: the store serves wrong bytes, again and again, or a manifest not to be
                followed.
            StoreUnavailableError: no answer, or not complete within the timeout.
            StoreAccessDeniedError, BucketMissingError, LocalStoreError: as they say.
            SyncerClosedError: closed before or meanwhile.
        """
        until_s = time.monotonic() + timeout.total_seconds()
        self._begin()
        self._holds.pin(ref)
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
        """As `ensure`, for the use in a `with`: its end ends the protection from collection."""
        path = self.ensure(ref, timeout)
        try:
            yield path
        finally:
            self._holds.unpin(ref)

    def _begin(self) -> None:
        """Start the thread, if it was not started."""
        with self._starting:
            if self._stopping.is_set():
                raise SyncerClosedError(CLOSED)
            if self._thread.ident is None:
                self._unsubscribe = self._local.subscribe_disk(lambda _state: self._loop.disk_turned())
                self._thread.start()

    def _folder(self, wait: Wait) -> Path:
        """Wait until the release is complete, and make its folder on a thread that may hang with the disk."""
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
