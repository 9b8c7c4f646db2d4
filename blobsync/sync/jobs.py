"""Runs the jobs of the table: a look finds what a release lacks on this host, a fetch gets one object.

Both block, and run on the threads of pools. A pack, or a blob without chunks, is one call of the pool. A
large blob is one call for each of its chunks, so several threads can fetch one blob, and other objects can be
fetched between two chunks.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import partial

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.releases import fetch_layout, fetch_manifest
from blobsync.errors import (
    BlobMissingError,
    BlobSyncError,
    BucketUnavailableError,
    InvalidLayoutError,
    InvalidManifestError,
    SyncerClosedError,
)
from blobsync.local.incoming import Incoming
from blobsync.local.objects import MissingObjects
from blobsync.local.releases import Release
from blobsync.local.store import LocalStore
from blobsync.progress import Arrivals, Throttle
from blobsync.release.layout import StoredObject
from blobsync.release.manifest import PACKED_BYTES, Blob, Manifest, ReleaseRef
from blobsync.retry import WRONG_BYTES, read_again_if_wrong
from blobsync.sync.damage import DamagedObjects
from blobsync.sync.pool import DaemonPool, Lane
from blobsync.sync.table import Fetch, FindMissing
from blobsync.sync.task_queue import URGENT

_GRACE_S = 60.0
_SLOWEST_BYTES_PER_S = 64 << 10
"""After the grace, a range that is slower than this is given up and tried again later."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Result of a look.

    It is complete, and kept, if nothing is missing. `asked_store`: the object store was asked, and answered.
    """

    known: Release
    missing: MissingObjects
    asked_store: bool


def inspect(store: ObjectStore, local: LocalStore, job: FindMissing) -> Inspection:
    """Find what a release lacks on this host. If nothing is missing, the release is kept.

    The caller must protect the release from collection before, so that its objects stay.
    """
    release = job.known if job.known is not None else local.kept(job.ref)
    if release is not None and not job.fresh_layout:
        try:
            return _inspection(local, release, asked_store=False)
        except InvalidLayoutError:  # its packs are all here, but a file is in none of them
            pass
        except BlobMissingError:  # its manifest was damaged
            release = None
    manifest = _manifest(store, job.ref, release)
    layout = fetch_layout(store, job.ref.name, job.ref.digest)
    return _inspection(local, Release(manifest, layout), asked_store=True)


def _manifest(store: ObjectStore, ref: ReleaseRef, release: Release | None) -> Manifest:
    with contextlib.suppress(BlobMissingError):
        if release is not None:
            return release.manifest
    return fetch_manifest(store, ref.name, ref.digest)


def _inspection(local: LocalStore, release: Release, *, asked_store: bool) -> Inspection:
    missing = local.keep(release)
    if missing.artifacts and not missing.objects:
        raise InvalidManifestError(
            f"{release.ref} names {missing.artifacts[0].path} with another size than the same content "
            f"has elsewhere; publish it again"
        )
    if not missing and not release.is_recorded:
        release = local.kept(release.ref) or release  # this one does not keep the manifest in memory
    return Inspection(release, missing, asked_store)


class Arrival(Enum):
    """How a fetch ended."""

    FETCHED = "fetched"
    HERE = "here"
    ELSEWHERE = "elsewhere"
    """Another thread or process of this host receives the object now. Ask again soon."""


Ended = Callable[[Arrival | BaseException], None]
"""Called once when a fetch has ended, on any thread, with its result or the error."""


class Transfers:
    """Fetches objects. Thread-safe."""

    def __init__(
        self,
        store: ObjectStore,
        local: LocalStore,
        pool: DaemonPool,
        throttle: Throttle,
        damage: DamagedObjects,
    ) -> None:
        self._store, self._local, self.pool, self._throttle = store, local, pool, throttle
        self.damage = damage
        self.arrivals = Arrivals()

    def fetch(self, job: Fetch, ended: Ended) -> None:
        """Fetch one object. Wrong bytes are fetched a second time before they are an error.

        `ended` is called with the result, or with an error of `ObjectStore.copy`, `LocalStore.receive`,
        `Incoming.install`, or a SyncerClosedError. SyncerClosedError is raised if the pool was closed.
        """
        key = keys.stored(job.item)

        def begin() -> None:
            try:
                if job.order != URGENT:
                    self.damage.refuse_unchanged(key)
            except BlobSyncError as exc:
                ended(exc)
            else:
                self._begin(job, finish)

        def finish(result: Arrival | BaseException) -> None:
            self._note_damage(key, result)
            if result not in {Arrival.HERE, Arrival.ELSEWHERE}:
                self.arrivals.end(job.item.name, good=result is Arrival.FETCHED)
            ended(result)

        def not_begun(call: Future[None]) -> None:
            error = SyncerClosedError() if call.cancelled() else call.exception()
            if error is not None:
                finish(error)

        is_large = job.item.size_bytes > PACKED_BYTES and isinstance(job.item, Blob)
        call = self.pool.submit(begin, lane=Lane.LARGE if is_large else Lane.SMALL, rank=(job.order, 1))
        call.add_done_callback(not_begun)

    def _note_damage(self, key: str, result: Arrival | BaseException) -> None:
        if isinstance(result, WRONG_BYTES):
            self.damage.note(key, str(result))
        elif result in {Arrival.HERE, Arrival.FETCHED}:
            self.damage.forget(key)

    def _begin(self, job: Fetch, ended: Ended) -> None:
        """Run on a thread of the pool. A blob with chunks ends with its last chunk, others with this call."""
        item, result = job.item, None
        try:
            if not (isinstance(item, Blob) and item.chunks):
                result = read_again_if_wrong(lambda: self._bring(item))
            elif (incoming := self._local.receive(item)) is None:
                result = self._here_or_elsewhere(item)
            else:
                _Chunks(self, job, incoming, ended).start()
        except BaseException as exc:  # noqa: BLE001 - given to `ended`
            ended(exc)
        else:
            if result is not None:
                ended(result)

    def _here_or_elsewhere(self, item: StoredObject) -> Arrival:
        return Arrival.HERE if self._local.has(item) else Arrival.ELSEWHERE

    def _bring(self, item: StoredObject) -> Arrival:
        """Fetch an object without chunks. Wrong bytes may be in the part that an earlier process fetched."""
        incoming = self._local.receive(item)
        if incoming is None:
            return self._here_or_elsewhere(item)
        with incoming:
            for start, size in self.missing(incoming):
                self.copy(incoming, start, size)
            incoming.install()
        return Arrival.FETCHED

    def missing(self, incoming: Incoming) -> list[tuple[int, int]]:
        """Ranges to fetch. The rest is counted as arrived."""
        missing = incoming.missing()
        self.arrivals.begin(incoming.item.name, incoming.item.size_bytes - sum(size for _, size in missing))
        return missing

    def copy(self, incoming: Incoming, start: int, size: int) -> None:
        """Copy a range of an object into its file, within the time limit. A chunk is verified, too."""
        item, came = incoming.item, 0
        key = keys.stored(item)
        until_s = time.monotonic() + _GRACE_S + size / _SLOWEST_BYTES_PER_S

        def on_progress(more: int) -> None:
            nonlocal came, until_s
            came += more
            self.arrivals.came(item.name, more)
            until_s += self._throttle.take(more)  # waiting here does not count as slowness of the server
            if time.monotonic() > until_s:
                raise BucketUnavailableError(
                    f"{key} is too slow: {came} of {size} bytes from {start} on arrived; it is tried again"
                )

        try:
            self._store.copy(key, incoming.fd, start=start, size_bytes=size, on_progress=on_progress)
            incoming.took(start, size)
        except BaseException:
            self.arrivals.came(item.name, -came)
            raise


class _Chunks:
    """The chunks of one blob. A few are submitted at a time, so that memory does not grow with the blob."""

    def __init__(self, transfers: Transfers, job: Fetch, incoming: Incoming, ended: Ended) -> None:
        self._transfers, self._order, self._incoming, self._ended = transfers, job.order, incoming, ended
        self._todo: Iterator[tuple[int, int]] = iter(())
        self._errors: list[BaseException] = []
        self._submitted = 1  # `start` counts as one until it has returned
        self._lock = threading.Lock()

    def start(self) -> None:
        """Submit the first chunks. Each chunk that ends submits the next. The last one installs the blob."""
        try:
            self._todo = iter(self._transfers.missing(self._incoming))
        except BaseException as exc:  # noqa: BLE001 - given to `ended`
            self._end(exc)
            return
        for _ in range(self._transfers.pool.size):
            self._submit_next()
        self._end(None)

    def _submit_next(self) -> None:
        with self._lock:
            piece = None if self._errors else next(self._todo, None)
            if piece is None:
                return
            self._submitted += 1
        try:
            # Rank 0: the chunks of a started blob are fetched before the next blob is started.
            call = self._transfers.pool.submit(
                partial(self._copy, *piece), lane=Lane.LARGE, rank=(self._order, 0)
            )
        except SyncerClosedError as exc:
            self._end(exc)
        else:
            call.add_done_callback(self._copied)

    def _copy(self, start: int, size: int) -> None:
        if not self._errors:
            read_again_if_wrong(lambda: self._transfers.copy(self._incoming, start, size))

    def _copied(self, call: Future[None]) -> None:
        error = SyncerClosedError() if call.cancelled() else call.exception()
        if error is None:
            self._submit_next()
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self._submitted -= 1
            if error is not None:
                self._errors.append(error)
            if self._submitted:
                return
        try:
            self._install()
        except BaseException as exc:  # noqa: BLE001 - given to `ended`
            self._ended(exc)
        else:
            self._ended(Arrival.FETCHED)

    def _install(self) -> None:
        with self._incoming:  # raises errors of the disk as LocalStoreError
            if self._errors:
                raise self._errors[0]
            self._incoming.install()
