"""Brings bundles: small files that lie in the bucket one by one. Called on any thread; blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    CorruptBlobError,
    LocalStoreError,
    StoreAccessDeniedError,
    StoreUnavailableError,
    SyncerClosedError,
)
from blobsync.local.gathering import Gathering
from blobsync.local.store import LocalStore
from blobsync.release.loose import Bundle, LooseFile
from blobsync.storage.many import Whole, read_many
from blobsync.storage.ports import ObjectStore
from blobsync.sync.arrival import Arrival
from blobsync.sync.meter import Meter
from blobsync.sync.throttle import Throttle

_OF_ONE_OBJECT = (BlobNotFoundError, CorruptBlobError, StoreAccessDeniedError)
"""Errors that say nothing of the other objects."""


class LooseFetcher:
    """Fetches bundles. Thread-safe.

    Args:
        store: Where from.
        local: Where to.
        throttle: Waits, to keep below a bandwidth.
        meter: Counts.
        clock: Monotonic seconds.
        allowed_s: How long so many bytes may take.
    """

    def __init__(
        self,
        store: ObjectStore,
        local: LocalStore,
        throttle: Throttle,
        meter: Meter,
        clock: Callable[[], float],
        allowed_s: Callable[[int], float],
    ) -> None:
        self._store, self._local, self._throttle, self._meter = store, local, throttle, meter
        self._clock, self._allowed_s = clock, allowed_s
        self._claims = _Claims()

    def fetch(self, bundle: Bundle) -> Arrival:
        """Bring what of a bundle is not here. What is good of it stays, whatever becomes of the rest.

        Raises:
            BlobNotFoundError: an object is gone.
            CorruptBlobError: an object has other bytes than it had.
            BlobSyncError: as of `ObjectStore.read` and `Gathering`.
        """
        with self._claims.claimed(bundle.files) as mine:
            gathering = self._local.gather(bundle.only(mine))
            if gathering is None:
                return Arrival.ELSEWHERE
            with gathering:
                if gathering.bundle.files:
                    self._meter.begin(bundle.name, 0)
                    self._bring(gathering)
            if len(mine) < len(bundle.files):  # another bundle brings the rest
                return Arrival.ELSEWHERE
            return Arrival.FETCHED if gathering.bundle.files else Arrival.HERE

    def _bring(self, gathering: Gathering) -> None:
        wanted = gathering.bundle
        failures = self._receive(gathering, wanted)
        wrong = [file for file, error in failures if isinstance(error, CorruptBlobError)]
        if wrong:  # damage on the way heals by a second try; at the source not
            failures = [pair for pair in failures if not isinstance(pair[1], CorruptBlobError)]
            failures += self._receive(gathering, wanted.only(wrong))
        if gathering.count:
            gathering.install()
        if failures:
            raise _told(wanted, failures)

    def _receive(self, gathering: Gathering, wanted: Bundle) -> list[tuple[LooseFile, BlobSyncError]]:
        """Ask for all. What cannot be had; after an outage, the rest is not asked for."""
        failures: list[tuple[LooseFile, BlobSyncError]] = []
        objects = [Whole(wanted.key(file), file.size_bytes) for file in wanted.files]
        came = read_many(self._store, objects, self._going_on(wanted))
        for file, found in zip(wanted.files, came, strict=False):
            try:
                if isinstance(found, BlobSyncError):
                    raise found
                gathering.add(file, found)
            except (LocalStoreError, SyncerClosedError):
                raise
            except BlobSyncError as exc:
                failures.append((file, exc))
                if not isinstance(exc, _OF_ONE_OBJECT):
                    break
        return failures

    def _going_on(self, bundle: Bundle) -> Callable[[int], None]:
        until_s = self._clock() + self._allowed_s(bundle.size_bytes)
        came = 0

        def going_on(more: int) -> None:
            nonlocal until_s, came
            came += more
            self._meter.came(bundle.name, more)
            until_s += self._throttle.take(more)  # our own waiting is not the sender's fault
            if self._clock() > until_s:
                raise StoreUnavailableError(
                    f"{len(bundle.files)} objects below {bundle.prefix} came too slowly: {came} of "
                    f"{bundle.size_bytes} bytes; they are tried again"
                )

        return going_on


class _Claims:
    """Who brings which file: two releases may have it in two bundles. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    @contextmanager
    def claimed(self, files: Iterable[LooseFile]) -> Iterator[tuple[LooseFile, ...]]:
        """Those of the files that nobody else brings; nobody else does, while within."""
        with self._lock:
            mine = tuple(file for file in files if file.sha256 not in self._under_way)
            self._under_way.update(file.sha256 for file in mine)
        try:
            yield mine
        finally:
            with self._lock:
                self._under_way.difference_update(file.sha256 for file in mine)


def _told(bundle: Bundle, failures: list[tuple[LooseFile, BlobSyncError]]) -> BlobSyncError:
    """One error for all. What will not heal by itself is told first."""
    file, error = min(
        failures, key=lambda pair: (pair[1].retryable, isinstance(pair[1], StoreUnavailableError))
    )
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    if isinstance(error, BlobNotFoundError):
        return BlobNotFoundError(f"{error.where}, file {file.path} of release {bundle.release[:12]}{more},")
    if isinstance(error, CorruptBlobError):
        return CorruptBlobError(f"file {file.path}{more}: {error}")
    return error
