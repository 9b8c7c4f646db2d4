"""Calls of `ensure` that wait for a release, and the releases that are protected from collection.

Thread-safe. The thread `blobsync-syncer` passes results and failures to each call. A failure that a retry
cannot repair ends the call at once; otherwise the call raises the last failure when its time is over.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import TypeVar

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    BucketUnavailableError,
    InvalidPackError,
    LocalStoreError,
    ReleaseAbsentError,
    ReleaseCorruptError,
    SyncerClosedError,
)
from blobsync.local.disk import LOCKED_AT_MOST_S
from blobsync.local.store import LocalStore
from blobsync.log import LazyLog
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import WRONG_BYTES, WRONG_BYTES_TRIES

_log = LazyLog(__name__)

_FOLDER = "folder"
Result = TypeVar("Result")


class EnsureCall:
    """One call of `ensure`, until the deadline `until_s` by the monotonic clock."""

    def __init__(self, ref: ReleaseRef, until_s: float) -> None:
        self.ref = ref
        self._began_s, self._until_s = time.monotonic(), until_s
        self._changed = threading.Condition()
        self._complete = False
        self._error: BaseException | None = None
        self._failures: dict[str, tuple[int, BaseException]] = {}
        """By name: number of failures, and the last error. The newest failure is at the end."""

    def found_complete(self) -> None:
        """Note that a look found the release complete."""
        with self._changed:
            self._complete = True
            self._failures = {what: failure for what, failure in self._failures.items() if what == _FOLDER}
            self._changed.notify_all()

    def came(self, name: str) -> None:
        """Note that an object of the release is here. Its failures do not count any more."""
        with self._changed:
            self._failures.pop(name, None)

    def look_failed(self, error: BaseException, began_s: float) -> None:
        """Note that a look at the release failed. Ignored if the look began before this wait."""
        if began_s >= self._began_s:
            self._failed("look", error, tries=1)

    def fetch_failed(self, name: str, error: BaseException, began_s: float) -> None:
        """Note that a missing object of the release could not be fetched.

        After the first failure the layout is read again: it may name another pack now.
        """
        moved = isinstance(error, BlobNotFoundError | InvalidPackError)
        if began_s >= self._began_s:
            self._failed(name, error, tries=2 if moved else 1)

    def folder_failed(self, error: BlobSyncError) -> int:
        """Note that the tree of the release could not be made. Returns the number of failures."""
        return self._failed(_FOLDER, error, tries=1)

    def end(self, error: BaseException) -> None:
        """End the wait with this error, unless it has ended with another one."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def complete(self) -> None:
        """Wait for the next look that finds the release complete.

        Raises the error that ended the wait, or the last failure when the time is over.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._complete, self._left_s())
            if self._error is not None:
                raise self._error
            if not self._complete:
                raise self._late()
            self._complete = False

    def result(self, call: Future[Result]) -> Result:
        """Wait for a call on another thread, which may hang.

        Raises as `complete`, or the error of the call.
        """
        try:
            return call.result(self._left_s())
        except CancelledError:
            error: BaseException = SyncerClosedError()
        except FutureTimeoutError:
            error = self._late()
        finally:
            call.cancel()
        self.end(error)
        raise error

    def pause(self, seconds: float) -> None:
        """Wait before the next try, at most until the wait ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._error, min(seconds, self._left_s()))

    def _failed(self, what: str, error: BaseException, *, tries: int) -> int:
        with self._changed:
            count = self._failures.pop(what, (0, error))[0] + 1
            self._failures[what] = count, error
        if isinstance(error, BlobSyncError) and error.retryable:
            tries = WRONG_BYTES_TRIES if isinstance(error, WRONG_BYTES) else count + 1
        if count >= tries:
            self.end(error)
        return count

    def _left_s(self) -> float:
        return max(0.0, self._until_s - time.monotonic())

    def _late(self) -> BaseException:
        """The error of a call at its deadline: one that a retry cannot repair, or else the newest one."""
        with self._changed:
            errors = [error for _, error in reversed(self._failures.values())]
        late = BucketUnavailableError(
            f"{self.ref} was not complete here in time; if it is wanted, the sync continues: call again later"
        )
        return min(errors, key=lambda error: getattr(error, "retryable", False), default=late)


class EnsureCalls:
    """The calls of `ensure` that are under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: dict[ReleaseRef, list[EnsureCall]] = {}
        self._closed = False

    def __contains__(self, ref: ReleaseRef) -> bool:
        with self._lock:
            return ref in self._waits

    def of(self, refs: Iterable[ReleaseRef]) -> list[EnsureCall]:
        """The calls that wait for one of these releases."""
        with self._lock:
            return [wait for ref in refs for wait in self._waits.get(ref, ())]

    @contextmanager
    def open(self, ref: ReleaseRef, until_s: float) -> Iterator[EnsureCall]:
        """Wait for a release. Errors of the object store in the `with` are raised as those of the release.

        SyncerClosedError if the syncer was closed.
        """
        wait = EnsureCall(ref, until_s)
        with self._lock:
            if self._closed:
                raise SyncerClosedError
            self._waits.setdefault(ref, []).append(wait)
        try:
            yield wait
        except BlobNotFoundError as exc:
            raise ReleaseAbsentError(f"{ref} is not in the object store: {exc}") from exc
        except WRONG_BYTES as exc:
            raise ReleaseCorruptError(f"{ref} cannot be used as the object store has it: {exc}") from exc
        finally:
            with self._lock:
                self._waits[ref].remove(wait)
                if not self._waits[ref]:
                    del self._waits[ref]

    def fail(self, error: BlobSyncError) -> None:
        """End all calls that wait now."""
        with self._lock:
            waits = [wait for waits in self._waits.values() for wait in waits]
        for wait in waits:
            wait.end(error)

    def close(self) -> None:
        """End all calls that wait now, and refuse new ones."""
        with self._lock:
            self._closed = True
        self.fail(SyncerClosedError())


class Holds:
    """Protects wanted and pinned releases from collection: keeps the list of this session up to date."""

    def __init__(self, local: LocalStore) -> None:
        self._local = local
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        self._pins: Counter[str] = Counter()
        self._writing = threading.Lock()  # apart, so that only writers wait for the disk
        self._written: frozenset[str] = frozenset()

    def want(self, refs: Iterable[ReleaseRef]) -> None:
        """Protect exactly these releases and the pinned ones. If the disk fails: see `settle`."""
        with self._lock:
            self._wanted = frozenset(ref.digest for ref in refs)
        self._try_to_write(LOCKED_AT_MOST_S)

    def settle(self) -> None:
        """Write the list if it was not written before. Until then the earlier list still protects.

        Waits for nobody who has locked the store, since it is called after each look and fetch.
        """
        if self._needed() != self._written:
            self._try_to_write(0)

    def pin(self, ref: ReleaseRef, until_s: float) -> None:
        """Protect a release, wanted or not, until `unpin` was called as often as `pin`.

        Waits until `until_s` by `time.monotonic` for others that write or have locked the store.
        LocalStoreError if the disk failed, or time ran out; the release is not pinned then.
        """
        self._count(ref, 1)
        try:
            self._write(min(LOCKED_AT_MOST_S, until_s - time.monotonic()))
        except BaseException:
            if ref.digest not in self._written:
                self._count(ref, -1)
                raise

    def unpin(self, ref: ReleaseRef) -> None:
        """Undo one `pin`. If the list cannot be written now, the release stays protected until `settle`."""
        self._count(ref, -1)
        self._try_to_write(0)

    def _count(self, ref: ReleaseRef, change: int) -> None:
        with self._lock:
            self._pins[ref.digest] += change
            self._pins = +self._pins  # without those at 0

    def _needed(self) -> frozenset[str]:
        with self._lock:
            return self._wanted | self._pins.keys()

    def _try_to_write(self, at_most_s: float) -> None:
        try:
            self._write(at_most_s)
        except LocalStoreError as exc:  # if the disk fails, looks fail, too, so readiness shows it
            _log.warning("holds_not_written", error=str(exc))

    def _write(self, at_most_s: float) -> None:
        """Write the list if it changed. So a protected release can be used on a full disk."""
        until_s = time.monotonic() + at_most_s
        if not self._writing.acquire(timeout=max(at_most_s, 0)):
            raise LocalStoreError(
                "what this process needs could not be noted in time: an earlier note is still being written, "
                "so the disk hangs, or another process has locked the store"
            )
        try:
            needed = self._needed()
            if needed != self._written:
                self._local.hold(needed, until_s - time.monotonic())
                self._written = needed
        finally:
            self._writing.release()
