"""Calls of `ensure` that wait for a release, and the releases that are protected from collection.

Thread-safe. The thread `blobsync-syncer` tells each call what was found and what failed. A failure that
cannot heal by itself ends the call at once; else the last failure is its error when its time is over.
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
    InvalidPackError,
    LocalStoreError,
    ReleaseAbsentError,
    ReleaseCorruptError,
    StoreUnavailableError,
    SyncerClosedError,
)
from blobsync.local.store import LocalStore
from blobsync.log import Log
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import WRONG_BYTES, WRONG_BYTES_TRIES

_log = Log(__name__)

CLOSED = "this syncer was closed; make a new one"
_FOLDER = "folder"
Result = TypeVar("Result")


class Wait:
    """One call of `ensure`.

    Args:
        ref: The release.
        until_s: When its time is over, of the monotonic clock.
    """

    def __init__(self, ref: ReleaseRef, until_s: float) -> None:
        self.ref = ref
        self._began_s, self._until_s = time.monotonic(), until_s
        self._changed = threading.Condition()
        self._complete = False
        self._error: BaseException | None = None
        self._failures: dict[str, tuple[int, BaseException]] = {}
        """How often each thing failed, and its last error. The newest failure is at the end."""

    def found_complete(self) -> None:
        """A look found the release complete."""
        with self._changed:
            self._complete = True
            self._failures = {what: found for what, found in self._failures.items() if what == _FOLDER}
            self._changed.notify_all()

    def came(self, name: str) -> None:
        """An object of the release is here: its failures do not count any more."""
        with self._changed:
            self._failures.pop(name, None)

    def look_failed(self, error: BaseException, began_s: float) -> None:
        """A look at the release failed. One that began before the wait is the answer to an older question."""
        if began_s >= self._began_s:
            self._failed("look", error, tries=1)

    def fetch_failed(self, name: str, error: BaseException, began_s: float) -> None:
        """An object that the release lacks could not be fetched.

        After the first time its layout is read anew: it may name another pack by now.
        """
        moved = isinstance(error, BlobNotFoundError | InvalidPackError)
        if began_s >= self._began_s:
            self._failed(name, error, tries=2 if moved else 1)

    def folder_failed(self, error: BlobSyncError) -> int:
        """The folder of the release could not be made. Returns how often, so far."""
        return self._failed(_FOLDER, error, tries=1)

    def end(self, error: BaseException) -> None:
        """End it with this error, unless another one ended it."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def complete(self) -> None:
        """Wait for the next look that finds the release complete.

        Raises:
            BlobSyncError: what ended the wait, or the last failure when the time is over.
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

        Raises:
            BlobSyncError: as of `complete`, or what the call raised.
        """
        try:
            return call.result(self._left_s())
        except CancelledError:
            error: BaseException = SyncerClosedError(CLOSED)
        except FutureTimeoutError:
            error = self._late()
        finally:
            call.cancel()
        self.end(error)
        raise error

    def pause(self, seconds: float) -> None:
        """Let some time pass before the next try, unless the wait ends before that."""
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
        """The error of a call that is late: a failure that cannot heal by itself, else the newest one."""
        with self._changed:
            errors = [error for _, error in reversed(self._failures.values())]
        late = StoreUnavailableError(
            f"{self.ref} was not complete here in time; it goes on arriving if it is wanted, so ask again"
        )
        return min(errors, key=lambda error: getattr(error, "retryable", False), default=late)


class Waits:
    """The calls of `ensure` that are under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: dict[ReleaseRef, list[Wait]] = {}
        self._closed = ""

    def __contains__(self, ref: ReleaseRef) -> bool:
        with self._lock:
            return ref in self._waits

    def of(self, refs: Iterable[ReleaseRef]) -> list[Wait]:
        """The calls that wait for one of these releases."""
        with self._lock:
            return [wait for ref in refs for wait in self._waits.get(ref, ())]

    @contextmanager
    def open(self, ref: ReleaseRef, until_s: float) -> Iterator[Wait]:
        """Wait for a release. Errors within are told as those of the release.

        Raises:
            SyncerClosedError: the syncer was closed.
            ReleaseAbsentError, ReleaseCorruptError: in place of the errors of the object store.
        """
        wait = Wait(ref, until_s)
        with self._lock:
            if self._closed:
                raise SyncerClosedError(self._closed)
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

    def close(self, why: str = CLOSED) -> None:
        """End all calls that wait now, and refuse new ones."""
        with self._lock:
            self._closed = self._closed or why
            waits = [wait for waits in self._waits.values() for wait in waits]
        for wait in waits:
            wait.end(SyncerClosedError(self._closed))


class Holds:
    """Protects the wanted releases, and those in use, from collection: keeps this session's list up to date.

    Args:
        local: The store.
    """

    def __init__(self, local: LocalStore) -> None:
        self._local = local
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        self._pins: Counter[str] = Counter()
        self._written: frozenset[str] = frozenset()
        self._unsettled = False

    def want(self, refs: Iterable[ReleaseRef]) -> None:
        """Protect these releases, and those pinned; no others. If the disk fails: see `settle`."""
        with self._lock:
            self._wanted = frozenset(ref.digest for ref in refs)
            self._try_to_write()

    def settle(self) -> None:
        """Write what a disk that failed did not take. What was protected before is until then."""
        if self._unsettled:
            with self._lock:
                self._try_to_write()

    def pin(self, ref: ReleaseRef) -> None:
        """Protect a release, wanted or not, until `unpin` was called as often.

        Raises:
            LocalStoreError: the disk failed; it is not pinned.
        """
        with self._lock:
            self._pins[ref.digest] += 1
            try:
                self._write()
            except BaseException:
                if ref.digest not in self._written:
                    self._pins[ref.digest] -= 1
                    raise

    def unpin(self, ref: ReleaseRef) -> None:
        """Take back one `pin`. If the disk fails, the release stays protected until `settle`."""
        with self._lock:
            self._pins[ref.digest] -= 1
            self._try_to_write()

    def _try_to_write(self) -> None:
        try:
            self._write()
        except LocalStoreError as exc:  # the looks meet the same disk, and readiness tells of it
            _log.warning("holds_not_written", error=str(exc))

    def _write(self) -> None:
        """Nothing is written when nothing changes: on a full disk, what is protected can be used."""
        self._pins = +self._pins  # without those at 0
        needed = self._wanted | self._pins.keys()
        self._unsettled = needed != self._written
        if self._unsettled:
            self._local.hold(needed)
            self._written, self._unsettled = needed, False
