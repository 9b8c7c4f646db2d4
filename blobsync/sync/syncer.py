"""Brings the local store to the wanted set of releases, in the background, for ever.

Threads: `blobsync-syncer` owns the table of what to do and calls the listeners. `blobsync-look-<n>` find out
what is missing, `blobsync-fetch-<n>` bring it, `blobsync-scrub` verifies it anew: they do what blocks, and
only put their result on the inbox. `readiness()` and `progress()` read a value and never wait.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

from blobsync.errors import BlobSyncConfigError, BlobSyncError, SyncerClosedError
from blobsync.listeners import Listeners
from blobsync.local.store import LocalStore
from blobsync.log import Log
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import RetryPolicy
from blobsync.storage.ports import ObjectStore
from blobsync.sync.arrival import Arrival
from blobsync.sync.disk_watch import DiskWatch
from blobsync.sync.holds import Holds
from blobsync.sync.looker import Looked, Looker
from blobsync.sync.messages import (
    Damaged,
    DiskTurned,
    HasAskedDisk,
    HasFetched,
    HasLooked,
    LookNow,
    Message,
    RetryNow,
    Stop,
    Want,
)
from blobsync.sync.meter import Meter, SyncProgress
from blobsync.sync.on_demand import OnDemand
from blobsync.sync.pool import DaemonPool
from blobsync.sync.readiness import Failure, Readiness, ReleaseState, failure_of
from blobsync.sync.scrub_progress import ScrubProgress
from blobsync.sync.scrubber import Scrubber
from blobsync.sync.sources import ObjectSource, Sources
from blobsync.sync.table import Fetch, Look, SyncTable
from blobsync.sync.throttle import Throttle
from blobsync.sync.transfers import Transfers

_log = Log(__name__)

THREADS = 4
SCRUB_BYTES_PER_S = 50e6
_LOOK_THREADS = 3
_LOOKS = _LOOK_THREADS - 1
"""Looks under way at a time: in an outage each waits for a timeout, and `ensure` is not to wait for them."""
_PUBLISH_EVERY_S = 0.1
"""While objects arrive by the thousand, counts are told at most so often, and no more than a tenth of the
time is spent on them. That a release is ready, or is so no more, is told at once."""


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
        peers: Asked before the object store; see `blobsync.sync.sources`.
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
        peers: Sequence[ObjectSource] = (),
    ) -> None:
        _check(scrub_interval, look_interval, threads)
        self._local = local
        self._stopping = threading.Event()
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._listeners: Listeners[Readiness] = Listeners()
        self._progress_listeners: Listeners[SyncProgress] = Listeners()
        if on_change is not None:
            self._listeners.subscribe(on_change)
        self._meter = Meter()
        self._fetches = DaemonPool(threads, "blobsync-fetch")
        self._looks = DaemonPool(_LOOK_THREADS, "blobsync-look")
        self._holds = Holds(local)
        self._looker = Looker(store, local)
        self._transfers = Transfers(
            local,
            Sources(store, peers),
            self._fetches,
            Throttle(bandwidth_bytes_per_s, self._stopping),
            self._meter,
        )
        self._on_demand = OnDemand(
            local, self._looker, self._transfers, self._looks, self._holds, retry, self._stopping
        )
        self._scrubber = Scrubber(
            local,
            interval=scrub_interval,
            bytes_per_s=scrub_bytes_per_s,
            stopping=self._stopping,
            damaged=lambda name: self._inbox.put(Damaged(name)),
        )
        self._table = SyncTable(retry, look_interval.total_seconds())
        self._disk_watch = DiskWatch(retry)
        self._looking = self._fetching = 0
        self._window = 2 * threads
        self._publish_due_s = self._warned_s = float("-inf")
        self._dirty = False
        self._readiness = Readiness()
        self._totals = (0, 0, 0, 0)
        self._told_progress = SyncProgress()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="blobsync-syncer", daemon=True)

    def start(self) -> None:
        """Start the background work. Once."""
        self._unsubscribe = self._local.subscribe_disk(lambda _state: self._inbox.put(DiskTurned()))
        self._thread.start()
        self._scrubber.start()

    def close(self, timeout: timedelta) -> None:
        """Stop, and wait for what is under way. What takes longer than the timeout ends with the process."""
        until_s = time.monotonic() + timeout.total_seconds()
        self._stopping.set()
        self._inbox.put(Stop())
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
        self._inbox.put(Want(tuple(refs) if isinstance(refs, Sequence) else frozenset(refs)))

    def retry_now(self) -> None:
        """End every back-off. Returns at once."""
        self._inbox.put(RetryNow())

    def readiness(self) -> Readiness:
        """How the wanted releases stand. From memory; never waits."""
        return self._readiness

    def subscribe(self, listener: Callable[[Readiness], None]) -> Callable[[], None]:
        """Be told of each new readiness, on the thread `blobsync-syncer`: must only enqueue.

        Returns:
            What ends that. One call may be under way still.
        """
        return self._listeners.subscribe(listener)

    def progress(self) -> SyncProgress:
        """How much is here, what is under way included. From memory; never waits."""
        total_objects, total_bytes, missing_objects, missing_bytes = self._totals
        done = total_bytes - missing_bytes + self._meter.partial_bytes
        return SyncProgress(
            done_bytes=max(0, min(done, total_bytes)),
            total_bytes=total_bytes,
            done_objects=total_objects - missing_objects,
            total_objects=total_objects,
            fetched_bytes=self._meter.fetched_bytes,
            fetched_objects=self._meter.fetched_objects,
        )

    def scrub_progress(self) -> ScrubProgress:
        """How far this process's scrub is. From memory; never waits."""
        return self._scrubber.tally.progress

    def subscribe_progress(self, listener: Callable[[SyncProgress], None]) -> Callable[[], None]:
        """Be told of progress while there is any, some ten times a second. As `subscribe`."""
        return self._progress_listeners.subscribe(listener)

    def is_here(self, ref: ReleaseRef) -> bool:
        """Whether a release is complete and verified on this disk. Asks no store; needs no `start`.

        Raises:
            LocalStoreError: the disk does not say.
        """
        return self._looker.is_here(ref)

    def ensure(self, ref: ReleaseRef, timeout: timedelta) -> Path:
        """Bring one release here, wanted or not, and give it as a folder. Blocks; needs no `start`.

        The release is protected from collection until `let_go`.

        Raises:
            ReleaseAbsentError: the store answered: it, or a file of it, does not exist.
            ReleaseCorruptError: the store serves wrong bytes, again and again, or a manifest not to be
                followed.
            StoreUnavailableError: no answer, or not complete within the timeout.
            StoreAccessDeniedError, BucketMissingError, LocalStoreError: as they say.
            SyncerClosedError: closed before or meanwhile.
        """
        path = self._on_demand.ensure(ref, timeout)
        self._inbox.put(LookNow(ref))  # if it is wanted too, readiness learns of it now
        return path

    def let_go(self, ref: ReleaseRef) -> None:
        """What `ensure` gave is not used any more."""
        self._holds.unpin(ref)

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception:  # noqa: BLE001 - the top of the thread; only a defect of ours comes here
            # Nobody may believe in a readiness that is not kept up: from now on nothing is ready.
            _log.exception("syncer_failed")
            self._tell(Readiness())

    def _turn(self) -> bool:
        """Take what has come, start what is due, tell what has changed. False: told to stop."""
        for message in self._messages():
            if isinstance(message, Stop):
                return False
            self._handle(message, time.monotonic())
        looks, fetches = _LOOKS - self._looking, self._window - self._fetching
        for job in self._table.start_due(time.monotonic(), looks, fetches):
            self._submit(job)
        self._watch_disk(time.monotonic())
        self._publish(time.monotonic())
        return True

    def _watch_disk(self, now_s: float) -> None:
        """Nothing may be left to write, and then nothing else would notice that the disk is well again."""
        self._disk_watch.seen(self._local.disk_state().ok, now_s)
        if not self._disk_watch.is_due(now_s):
            return
        if self._table.waits_for_disk:  # that asks it, with more bytes than we would
            self._disk_watch.asked(now_s)
            return
        self._disk_watch.asking()
        with contextlib.suppress(SyncerClosedError):  # the stop is in the inbox
            asked = self._looks.submit(self._local.ask_disk)
            asked.add_done_callback(lambda _: self._inbox.put(HasAskedDisk()))

    def _messages(self) -> list[Message]:
        try:
            messages = [self._inbox.get(timeout=self._wait_s())]
        except queue.Empty:
            return []
        while not self._inbox.empty():
            messages.append(self._inbox.get())
        return messages

    def _wait_s(self) -> float | None:
        due_s = self._table.next_due_s(looks=self._looking < _LOOKS, fetches=self._fetching < self._window)
        times = [due for due in (due_s, self._disk_watch.next_due_s()) if due is not None]
        if self._dirty or self._fetching:
            times.append(self._publish_due_s)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _handle(self, message: Message, now_s: float) -> None:
        self._dirty = True
        match message:
            case Want(refs):
                self._table.want(refs, now_s)
                self._hold(lambda: self._holds.want(refs))
            case RetryNow():
                self._table.retry_now(now_s)
            case LookNow(ref):
                self._table.look_now(ref, now_s)
            case Damaged(name):
                self._table.damaged(name, now_s)
            case HasLooked(job, result):
                self._looking -= 1
                self._looked(job, result, now_s)
            case HasFetched(fetch, arrival):
                self._fetching -= 1
                self._fetched(fetch, arrival, now_s)
            case DiskTurned():
                self._hold(self._holds.settle)
            case HasAskedDisk():
                self._disk_watch.asked(now_s)
            case Stop():
                pass

    def _looked(self, job: Look, result: Looked | Failure, now_s: float) -> None:
        if isinstance(result, Failure):
            self._failed(job, str(job.ref), result, now_s)
            return
        self._hold(self._holds.settle)
        self._table.looked(job.ref, result.known, result.lacking, now_s)
        if result.asked_store:
            self._table.store_answered(now_s)

    def _fetched(self, job: Fetch, result: Arrival | Failure, now_s: float) -> None:
        match result:
            case Failure():
                self._failed(job, job.item.name, result, now_s)
            case Arrival.ELSEWHERE:
                self._table.elsewhere(job.item.name, now_s)
            case Arrival.HERE | Arrival.FETCHED:
                self._hold(self._holds.settle)
                self._table.fetched(job.item.name, now_s)
                if result is Arrival.FETCHED:
                    self._table.store_answered(now_s)

    def _failed(self, job: Look | Fetch, what: str, failure: Failure, now_s: float) -> None:
        self._table.failed(job, failure, now_s)
        if failure.state in {ReleaseState.ABSENT, ReleaseState.CORRUPT}:
            self._table.store_answered(now_s)
        # An outage fails ten thousand fetches alike: one line a second says it, readiness has the rest.
        loud = now_s >= self._warned_s + 1
        self._warned_s = now_s if loud else self._warned_s
        log = _log.warning if loud else _log.debug
        log("sync_failed", what=what, state=failure.state.value, reason=failure.reason)

    @staticmethod
    def _hold(write: Callable[[], None]) -> None:
        try:
            write()
        except BlobSyncError as exc:  # the looks will meet the same disk, and tell it in readiness
            _log.warning("holds_not_written", error=str(exc))

    def _submit(self, job: Look | Fetch) -> None:
        try:
            if isinstance(job, Look):
                self._looking += 1
                self._look(job)
            else:
                self._fetching += 1
                self._fetch(job)
        except SyncerClosedError:
            return  # the stop is in the inbox

    def _look(self, job: Look) -> None:
        def done(future: Future[Looked]) -> None:
            self._inbox.put(HasLooked(job, _failure(future) or future.result()))

        self._looks.submit(
            lambda: self._looker.look(job.ref, job.known, fresh_layout=job.fresh_layout)
        ).add_done_callback(done)

    def _fetch(self, job: Fetch) -> None:
        def done(future: Future[Arrival]) -> None:
            self._inbox.put(HasFetched(job, _failure(future) or future.result()))

        self._transfers.fetch(job.item, job.order).add_done_callback(done)

    def _publish(self, now_s: float) -> None:
        if not (self._table.turned or now_s >= self._publish_due_s):
            return
        if self._dirty:
            self._dirty = self._table.turned = False
            self._totals = self._table.objects()
            fresh = self._table.readiness(self._local.disk_state())
            if fresh != self._readiness:
                self._tell(fresh)
        self._tell_progress()
        took_s = time.monotonic() - now_s
        self._publish_due_s = now_s + max(_PUBLISH_EVERY_S, 10 * took_s)

    def _tell(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._listeners.tell(readiness)

    def _tell_progress(self) -> None:
        progress = self.progress()
        if progress != self._told_progress:
            self._told_progress = progress
            self._progress_listeners.tell(progress)


def _check(scrub_interval: timedelta, look_interval: timedelta, threads: int) -> None:
    if scrub_interval <= timedelta(0) or look_interval <= timedelta(0):
        raise BlobSyncConfigError(
            f"scrub_interval ({scrub_interval}) and look_interval ({look_interval}) must be above 0"
        )
    if threads < 1:
        raise BlobSyncConfigError(f"a syncer needs at least 1 thread, not {threads}")


def _failure(future: Future[Any]) -> Failure | None:
    if future.cancelled():
        return Failure(ReleaseState.SYNCING, "closed")
    error = future.exception()
    return None if error is None else failure_of(error)
