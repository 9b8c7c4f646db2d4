"""The thread `blobsync-syncer`: it owns the table, starts jobs that are due, and calls the listeners.

It blocks only on its inbox. Looks and fetches run on other threads, which put their results there.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from functools import partial

from blobsync.errors import BucketUnavailableError, SyncerClosedError
from blobsync.listeners import Listeners
from blobsync.local.store import LocalStore
from blobsync.log import LazyLog
from blobsync.progress import SyncProgress
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import RetryPolicy
from blobsync.sync.jobs import Arrival, Inspection, Transfers
from blobsync.sync.pool import DaemonPool
from blobsync.sync.readiness import Readiness, ReleaseReadiness, ReleaseState, failure_of
from blobsync.sync.table import Fetch, FindMissing, Job, ObjectCounts, SyncTable
from blobsync.sync.task_queue import DiskWatch
from blobsync.sync.waits import EnsureCalls, Holds

_log = LazyLog(__name__)

LOOK_THREADS = 3
_LOOKS = LOOK_THREADS - 1
"""Limit of looks at the same time: in an outage each waits for a timeout. One thread is left for `ensure`."""
_PUBLISH_EVERY_S = 0.1
"""Shortest time between two reports of counts. Computing them takes at most a tenth of the time. If a release
becomes ready, or stops being ready, listeners are called at once."""

_FAILED = "this syncer failed, as its log says, and begins anew: try again"

Step = Callable[[float], None]
"""A change of the loop's state, with the time as its argument. It runs on the loop's thread."""


class SyncLoop:
    """See the module. Every method except `run` may be called on any thread, and returns at once.

    Args:
        look_every_s: Interval between two looks at a ready release.
        fetches: Limit of objects that are fetched at the same time; doubled if a call of `ensure` needs it.
    """

    def __init__(
        self,
        local: LocalStore,
        inspect: Callable[[FindMissing], Inspection],
        transfers: Transfers,
        looks: DaemonPool,
        holds: Holds,
        waits: EnsureCalls,
        *,
        retry: RetryPolicy,
        look_every_s: float,
        fetches: int,
    ) -> None:
        self._local, self._inspect, self._transfers = local, inspect, transfers
        self._looks, self._holds, self._waits = looks, holds, waits
        self._inbox: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._retry = retry
        self._new_table = partial(SyncTable, retry, look_every_s, urgent_fetches=fetches)
        self._table = self._new_table()
        self._wanted: Collection[ReleaseRef] = ()
        self._stopping = threading.Event()
        self._disk_watch = DiskWatch(retry)
        self._disk_question: Future[None] | None = None
        self._looking = self._fetching = 0
        self._window = fetches
        self._publish_due_s = self._warned_s = float("-inf")
        self._dirty = False
        self._objects = ObjectCounts()
        self.readiness = Readiness()
        self.listeners: Listeners[Readiness] = Listeners()

    def want(self, refs: Collection[ReleaseRef]) -> None:
        """Replace the wanted set."""
        self._inbox.put(partial(self._want, refs))

    def _want(self, refs: Collection[ReleaseRef], now_s: float) -> None:
        self._wanted = refs
        self._table.want(refs, now_s)
        self._holds.want(refs)

    def ensure(self, ref: ReleaseRef) -> None:
        """Note that a call of `ensure` waits for a release: look at it now, and fetch its objects first."""
        self._inbox.put(lambda now_s: self._table.ensure(ref, now_s))

    def end_ensure(self, ref: ReleaseRef) -> None:
        """Note that a call of `ensure` for this release has ended. Other calls may still wait for it."""
        self._inbox.put(lambda now_s: None if ref in self._waits else self._table.end_ensure(ref, now_s))

    def retry_now(self) -> None:
        """End every back-off, and fetch damaged objects again."""
        self._transfers.damage.forget_all()
        self._inbox.put(self._table.back_offs.retry_now)

    def damaged(self, name: str) -> None:
        """Note that the scrub has found damage; see `SyncTable.damaged`."""
        self._inbox.put(partial(self._table.damaged, name))

    def disk_turned(self) -> None:
        """Note that the disk has failed, or works again."""
        self._inbox.put(lambda _now_s: self._holds.settle())

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._inbox.put(None)

    def progress(self) -> SyncProgress:
        """See `blobsync.Syncer.progress`."""
        counts, came = self._objects, self._transfers.arrivals
        done = counts.total_bytes - counts.missing_bytes + came.partial_bytes
        return SyncProgress(
            done_bytes=max(0, min(done, counts.total_bytes)),
            total_bytes=counts.total_bytes,
            done_objects=counts.total - counts.missing,
            total_objects=counts.total,
            fetched_bytes=came.fetched_bytes,
            fetched_objects=came.fetched_objects,
        )

    def run(self) -> None:
        """Run until `stop`, on the thread `blobsync-syncer`.

        After a defect no release is ready, until looks with a new table have found it complete again.
        """
        failures = 0
        while not self._stopping.is_set():
            try:
                while self._turn():
                    pass
            except Exception:  # noqa: BLE001 - the top of the thread; only a defect of this package comes here
                _log.exception("syncer_failed")
                failures += 1
                self._begin_anew()
                self._stopping.wait(self._retry.wait_s(failures))

    def _begin_anew(self) -> None:
        """Forget all that the table said. Results of jobs that still run are not used."""
        refs = {*self._table.refs, *self._wanted}
        lost = (ReleaseReadiness(ref, ReleaseState.SYNCING, reason=_FAILED) for ref in refs)
        self._tell(Readiness({release.ref: release for release in lost}))
        self._waits.fail(BucketUnavailableError(_FAILED))
        self._table = self._new_table()
        self._inbox.put(lambda now_s: self._want(self._wanted, now_s))

    def _turn(self) -> bool:
        """Run the steps of the inbox, start due jobs, report changes. False: `stop` was called."""
        for step in self._steps():
            if step is None:
                return False
            self._dirty = True
            step(time.monotonic())
        for job in self._table.start_due(time.monotonic(), *self._free()):
            with contextlib.suppress(SyncerClosedError):  # the stop is in the inbox
                self._start(job)
        self._watch_disk(time.monotonic())
        self._publish(time.monotonic())
        return True

    def _steps(self) -> Iterator[Step | None]:
        with contextlib.suppress(queue.Empty):
            yield self._inbox.get(timeout=self._wait_s())
        while not self._inbox.empty():
            yield self._inbox.get()

    def _wait_s(self) -> float | None:
        dues = (self._table.next_due_s(*self._free()), self._disk_watch.due_s)
        times = [due for due in dues if due is not None]
        if self._dirty:
            times.append(self._publish_due_s)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _free(self) -> tuple[int, int]:
        """Number of looks and of fetches that may be started. Below 0 while urgent ones exceed the limit."""
        return _LOOKS - self._looking, self._window - self._fetching

    def _looked(
        self,
        table: SyncTable,
        job: FindMissing,
        began_s: float,
        result: Inspection | BaseException,
        now_s: float,
    ) -> None:
        self._looking -= 1
        if table is not self._table:
            return
        waits = self._waits.of([job.ref])
        if isinstance(result, BaseException):
            self._failed(job, str(job.ref), result, now_s)
            for wait in waits:
                wait.look_failed(result, began_s)
            return
        self._holds.settle()
        self._table.looked(job.ref, result.known, result.missing, now_s)
        if result.asked_store:
            self._table.back_offs.store_answered(now_s)
        if not result.missing:
            for wait in waits:
                wait.found_complete()

    def _fetched(
        self, table: SyncTable, job: Fetch, began_s: float, result: Arrival | BaseException, now_s: float
    ) -> None:
        self._fetching -= 1
        if table is not self._table:
            return
        name = job.item.name
        waits = self._waits.of(self._table.needing(name))
        match result:
            case BaseException():
                self._failed(job, name, result, now_s)
                for wait in waits:
                    wait.fetch_failed(name, result, began_s)
            case Arrival.ELSEWHERE:
                self._table.elsewhere(name, now_s)
            case Arrival.HERE | Arrival.FETCHED:
                self._holds.settle()
                self._table.fetched(name, now_s)
                if result is Arrival.FETCHED:
                    self._table.back_offs.store_answered(now_s)
                for wait in waits:
                    wait.came(name)

    def _failed(self, job: Job, what: str, error: BaseException, now_s: float) -> None:
        failure = failure_of(error)
        self._table.failed(job, failure, now_s)
        if failure.state in {ReleaseState.ABSENT, ReleaseState.CORRUPT}:
            self._table.back_offs.store_answered(now_s)
        # In an outage ten thousand fetches fail alike. Log one line a second; readiness has all of them.
        loud = now_s >= self._warned_s + 1
        self._warned_s = now_s if loud else self._warned_s
        log = _log.warning if loud else _log.debug
        log("sync_failed", what=what, state=failure.state.value, reason=failure.reason)

    def _start(self, job: Job) -> None:
        table, began_s = self._table, time.monotonic()
        if isinstance(job, FindMissing):
            look = self._looks.submit(partial(self._inspect, job))
            self._looking += 1
            look.add_done_callback(
                lambda done: self._inbox.put(partial(self._looked, table, job, began_s, _outcome(done)))
            )
        else:
            self._transfers.fetch(
                job, lambda result: self._inbox.put(partial(self._fetched, table, job, began_s, result))
            )
            self._fetching += 1

    def _watch_disk(self, now_s: float) -> None:
        """Test a failed disk: if no write is left to do, nothing else would notice that it works again."""
        if not self._disk_watch.is_due(self._local.disk_state().ok, now_s):
            return
        if self._table.back_offs.waits_for_disk:  # the next try of that task tests the disk, with more bytes
            return
        if self._disk_question is None or self._disk_question.done():  # one test at a time: a disk may hang
            with contextlib.suppress(SyncerClosedError):  # the stop is in the inbox
                self._disk_question = self._looks.submit(self._local.ask_disk)

    def _publish(self, now_s: float) -> None:
        if not self._dirty or not (self._table.turned or now_s >= self._publish_due_s):
            return
        self._dirty = self._table.turned = False
        self._objects = self._table.objects()
        fresh = self._table.readiness(self._local.disk_state())
        if fresh != self.readiness:
            self._tell(fresh)
        took_s = time.monotonic() - now_s
        self._publish_due_s = now_s + max(_PUBLISH_EVERY_S, 10 * took_s)

    def _tell(self, readiness: Readiness) -> None:
        self.readiness = readiness
        self.listeners.tell(readiness)


def _outcome(done: Future[Inspection]) -> Inspection | BaseException:
    return SyncerClosedError() if done.cancelled() else done.exception() or done.result()
