"""Brings the local store to the wanted set of releases, in the background, for ever.

Threads: `blobsync-syncer` owns the table of what to do and calls `on_change`; up to four
`blobsync-fetch-<n>` do what blocks, and only put their result on the inbox. `readiness()` and `progress()`
read a value and never wait.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Set
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import structlog

from blobsync.errors import BlobSyncConfigError, BlobSyncError, SyncerClosedError
from blobsync.local.store import LocalStore
from blobsync.release.manifest import Manifest, ReleaseRef
from blobsync.retry import RetryPolicy
from blobsync.storage.ports import ObjectStore
from blobsync.sync.fetcher import Fetcher, Looked
from blobsync.sync.on_demand import ensure
from blobsync.sync.pool import DaemonPool
from blobsync.sync.readiness import Failure, Readiness, ReleaseState, failure_of
from blobsync.sync.table import Fetch, Job, Look, SyncTable

_log = structlog.get_logger(__name__)
Result = TypeVar("Result")

THREADS = 4
_WINDOW = 16 * THREADS
"""Jobs handed out at a time: choosing costs a walk over all that is missing, so it is done for many."""
_PUBLISH_EVERY_S = 0.1
"""While files arrive by the thousand, readiness is computed at most so often."""


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """How much of the wanted releases is here, as far as their manifests are known."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class _Want:
    refs: frozenset[ReleaseRef]


@dataclass(frozen=True, slots=True)
class _RetryNow:
    pass


@dataclass(frozen=True, slots=True)
class _LookNow:
    ref: ReleaseRef


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


@dataclass(frozen=True, slots=True)
class _Done:
    job: Job
    result: Looked | bool | Failure


@dataclass(frozen=True, slots=True)
class _Scrubbed:
    result: list[tuple[Manifest, frozenset[str]]] | Failure


_Message = _Want | _RetryNow | _LookNow | _Stop | _Done | _Scrubbed


class Syncer:
    """Keeps wanted releases here and verified.

    Args:
        store: Where they come from.
        local: Where they are kept. Not closed by us.
        retry: Back-off of each artifact; it never gives up.
        on_change: Told of each new readiness, on the thread `blobsync-syncer`: must only enqueue.
        scrub_interval: How often every byte of every ready release is hashed anew.
        look_interval: How often the files of ready releases are looked at, without reading them.
    """

    def __init__(
        self,
        store: ObjectStore,
        local: LocalStore,
        *,
        retry: RetryPolicy,
        on_change: Callable[[Readiness], None],
        scrub_interval: timedelta = timedelta(hours=1),
        look_interval: timedelta = timedelta(seconds=30),
    ) -> None:
        if scrub_interval <= timedelta(0) or look_interval <= timedelta(0):
            raise BlobSyncConfigError(
                f"scrub_interval ({scrub_interval}) and look_interval ({look_interval}) must be above 0"
            )
        self._local = local
        self._retry = retry
        self._on_change = on_change
        self._scrub_every_s = scrub_interval.total_seconds()
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._fetcher = Fetcher(store, local)
        self._pool = DaemonPool(THREADS, "blobsync-fetch")
        self._table = SyncTable(retry, look_interval.total_seconds())
        self._running = 0
        self._scrubbing = False
        self._scrub_due_s = time.monotonic() + self._scrub_every_s
        self._published_s = self._warned_s = float("-inf")
        self._dirty = False
        self._readiness = Readiness()
        self._thread = threading.Thread(target=self._run, name="blobsync-syncer", daemon=True)

    def start(self) -> None:
        """Start the thread. Once."""
        self._thread.start()

    def close(self, timeout: timedelta) -> None:
        """Stop, and wait for what is under way. What takes longer than the timeout ends with the process."""
        until = time.monotonic() + timeout.total_seconds()
        self._fetcher.stop()
        self._inbox.put(_Stop())
        if self._thread.ident is not None:
            self._thread.join(max(0.0, until - time.monotonic()))
        if not self._pool.close(max(0.0, until - time.monotonic())):
            _log.warning("syncer_closed_late", timeout_s=timeout.total_seconds())

    def want(self, refs: Set[ReleaseRef]) -> None:
        """Replace the wanted set. Returns at once."""
        self._inbox.put(_Want(frozenset(refs)))

    def retry_now(self) -> None:
        """End every back-off. Returns at once."""
        self._inbox.put(_RetryNow())

    def readiness(self) -> Readiness:
        """How the wanted releases stand. From memory; never waits."""
        return self._readiness

    def progress(self) -> SyncProgress:
        """How many bytes are here, those under way included. From memory; never waits."""
        now = self._readiness
        done = now.total_bytes - now.missing_bytes + self._fetcher.partial_bytes()
        return SyncProgress(min(done, now.total_bytes), now.total_bytes)

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
        path = ensure(self._fetcher, self._local, self._pool, self._retry, ref, timeout)
        self._inbox.put(_LookNow(ref))  # if it is wanted too, readiness learns of it now
        return path

    def let_go(self, ref: ReleaseRef) -> None:
        """What `ensure` gave is not used any more."""
        self._fetcher.unpin(ref)

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
            if isinstance(message, _Stop):
                return False
            self._handle(message, time.monotonic())
        now = time.monotonic()
        if self._running <= self._window // 2:
            for job in self._table.start_due(now, self._window - self._running):
                self._submit(job)
        if now >= self._scrub_due_s and not self._scrubbing:
            self._scrub()
        self._publish(now)
        return True

    @property
    def _window(self) -> int:
        """Jobs handed out at a time. Few in an outage: a look need not wait behind many that time out."""
        return THREADS if self._table.in_outage else _WINDOW

    def _messages(self) -> list[_Message]:
        try:
            first = self._inbox.get(timeout=self._wait_s())
        except queue.Empty:
            return []
        messages = [first]
        while not self._inbox.empty():
            messages.append(self._inbox.get())
        return messages

    def _wait_s(self) -> float:
        now = time.monotonic()
        times = [] if self._scrubbing else [self._scrub_due_s]
        if self._dirty:
            times.append(self._published_s + _PUBLISH_EVERY_S)
        if self._running <= self._window // 2 and (due := self._table.next_due_s()) is not None:
            times.append(due)
        return max(0.0, min(times, default=now + _PUBLISH_EVERY_S) - now)

    def _handle(self, message: _Message, now: float) -> None:
        self._dirty = True
        match message:
            case _Want(refs):
                self._table.want(refs, now)
                self._keep_only(refs)
            case _RetryNow():
                self._table.retry_now(now)
            case _LookNow(ref):
                self._table.look_now(ref, now)
            case _Done(job, result):
                self._running -= 1
                self._finished(job, result, now)
            case _Scrubbed(result):
                self._scrubbed(result, now)
            case _Stop():
                pass

    def _finished(self, job: Job, result: Looked | bool | Failure, now: float) -> None:
        match job, result:
            case _, Failure() as failure:
                self._failed(job, failure, now)
            case Look(ref), Looked() as found:
                self._table.looked(ref, found.manifest, found.missing, now)
                if found.asked_store:
                    self._table.store_answered(now)
            case Fetch(), bool() as asked_store:
                self._table.fetched(job, now)
                if asked_store:
                    self._table.store_answered(now)

    def _failed(self, job: Job, failure: Failure, now: float) -> None:
        self._table.failed(job, failure, now)
        if failure.state in {ReleaseState.ABSENT, ReleaseState.CORRUPT}:
            self._table.store_answered(now)
        # An outage fails ten thousand fetches alike: one line a second says it, readiness has the rest.
        loud = now >= self._warned_s + 1
        self._warned_s = now if loud else self._warned_s
        what = job.sha256 if isinstance(job, Fetch) else str(job.ref)
        log = _log.warning if loud else _log.debug
        log("sync_failed", what=what, state=failure.state.value, reason=failure.reason)

    def _keep_only(self, refs: frozenset[ReleaseRef]) -> None:
        try:
            self._fetcher.keep_only(refs)
        except BlobSyncError as exc:  # the looks will meet the same disk, and tell it in readiness
            _log.warning("holds_not_written", error=str(exc))

    def _submit(self, job: Job) -> None:
        self._running += 1

        def call() -> Looked | bool:
            if isinstance(job, Fetch):
                return self._fetcher.fetch(job.sha256, job.size_bytes)
            return self._fetcher.look(job.ref, job.manifest)

        def done(future: Future[Looked | bool]) -> None:
            outcome = _outcome(future)
            self._inbox.put(_Done(job, outcome))

        try:
            self._pool.submit(call).add_done_callback(done)
        except SyncerClosedError:
            return  # the stop is in the inbox

    def _scrub(self) -> None:
        self._scrubbing = True
        manifests = self._table.complete()

        def done(future: Future[list[tuple[Manifest, frozenset[str]]]]) -> None:
            outcome = _outcome(future)
            self._inbox.put(_Scrubbed(outcome))

        try:
            self._pool.submit(lambda: self._fetcher.scrub(manifests)).add_done_callback(done)
        except SyncerClosedError:
            return

    def _scrubbed(self, result: list[tuple[Manifest, frozenset[str]]] | Failure, now: float) -> None:
        self._scrubbing = False
        self._scrub_due_s = now + self._scrub_every_s
        if isinstance(result, Failure):
            _log.warning("scrub_failed", reason=result.reason)
            return
        damaged = {sha256 for _, missing in result for sha256 in missing}
        self._table.quarantined_count += len(damaged)
        for manifest, missing in result:
            if missing:
                self._table.looked(manifest.ref, manifest, missing, now)
        _log.info("scrub_finished", releases=len(result), damaged=len(damaged))

    def _publish(self, now: float) -> None:
        if not self._dirty or now < self._published_s + _PUBLISH_EVERY_S:
            return
        self._dirty, self._published_s = False, now
        fresh = self._table.readiness()
        if fresh != self._readiness:
            self._tell(fresh)

    def _tell(self, readiness: Readiness) -> None:
        self._readiness = readiness
        try:
            self._on_change(readiness)
        except Exception:  # noqa: BLE001 - a listener's defect must not stop the sync
            _log.exception("readiness_listener_failed")


def _outcome(future: Future[Result]) -> Result | Failure:
    if future.cancelled():
        return Failure(ReleaseState.SYNCING, "closed")
    error = future.exception()
    return future.result() if error is None else failure_of(error)
