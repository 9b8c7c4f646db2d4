"""Brings manifests and blobs from the object store into the local store. Called on any thread; blocks.

One blob is fetched once, however many ask for it at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass

from blobsync.errors import StoreUnavailableError, SyncerClosedError
from blobsync.local.store import LocalStore
from blobsync.release.manifest import Manifest, ReleaseRef
from blobsync.storage import keys
from blobsync.storage.ports import ObjectStore
from blobsync.storage.releases import fetch_manifest

TRANSFER_GRACE_S = 60.0
SLOWEST_BYTES_PER_S = 64 << 10
"""A blob that comes more slowly, after the grace, is given up and tried again: others need its thread."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look found."""

    manifest: Manifest
    missing: frozenset[str]
    asked_store: bool


class Fetcher:
    """The blocking half of a syncer. Thread-safe.

    Args:
        store: Where from.
        local: Where to.
        clock: Monotonic seconds.
    """

    def __init__(
        self, store: ObjectStore, local: LocalStore, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._local = local
        self._clock = clock
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._under_way: dict[str, threading.Lock] = {}
        self._partial: dict[str, int] = {}
        self._wanted: frozenset[str] = frozenset()
        self._pinned: set[ReleaseRef] = set()

    @property
    def stopping(self) -> threading.Event:
        """Set when everything is to end soon."""
        return self._stopping

    def stop(self) -> None:
        """Let transfers and checks under way raise `SyncerClosedError` soon."""
        self._stopping.set()

    def partial_bytes(self) -> int:
        """Bytes of blobs that have begun to arrive and are not complete."""
        return sum(list(self._partial.values()))

    def look(self, ref: ReleaseRef, known: Manifest | None) -> Looked:
        """Find out what a release lacks here. When nothing, its manifest is kept, and it is complete.

        It was protected from collection before, by `keep_only` or `pin`, so what is found stays.

        Raises:
            BlobSyncError: as of `fetch_manifest` and `LocalStore`.
        """
        manifest = known if known is not None else self._local.manifest(ref)
        asked = manifest is None
        if manifest is None:
            manifest = fetch_manifest(self._store, ref.name, ref.digest)
        missing = frozenset(item.sha256 for item in self._local.missing(manifest))
        if not missing:
            self._local.install_manifest(manifest)
        return Looked(manifest, missing, asked)

    def fetch(self, sha256: str, size_bytes: int) -> bool:
        """Bring one blob, verified. Whether the store had to be asked.

        Raises:
            BlobNotFoundError, StoreUnavailableError, StoreAccessDeniedError, BucketMissingError: as of the
            store.
            CorruptBlobError: other bytes than the digest names came.
            LocalStoreError: the disk failed.
            SyncerClosedError: told to stop.
        """
        with self._once(sha256):
            if self._local.has_blob(sha256):
                return False
            try:
                self._local.install(sha256, size_bytes, self._chunks(sha256, size_bytes))
            finally:
                self._partial.pop(sha256, None)
        return True

    def scrub(self, manifests: list[Manifest]) -> list[tuple[Manifest, frozenset[str]]]:
        """Hash everything of these releases anew, and say what each lacks since then.

        Raises:
            LocalStoreError: the disk failed.
            SyncerClosedError: told to stop.
        """
        return [
            (manifest, frozenset(item.sha256 for item in self._local.verify(manifest, going_on=self._go_on)))
            for manifest in manifests
        ]

    def keep_only(self, refs: Set[ReleaseRef]) -> None:
        """Protect these releases from collection, and those pinned; no others."""
        with self._lock:
            self._wanted = frozenset(ref.digest for ref in refs)
            self._write_holds()

    def pin(self, ref: ReleaseRef) -> bool:
        """Protect a release from collection until `unpin`, wanted or not. False: it was already."""
        with self._lock:
            if ref in self._pinned:
                return False
            self._pinned.add(ref)
            self._write_holds()
            return True

    def unpin(self, ref: ReleaseRef) -> None:
        """Take back `pin`."""
        with self._lock:
            self._pinned.discard(ref)
            self._write_holds()

    def _write_holds(self) -> None:
        self._local.hold(self._wanted | {ref.digest for ref in self._pinned})

    def _chunks(self, sha256: str, size_bytes: int) -> Iterator[bytes]:
        until = self._clock() + TRANSFER_GRACE_S + size_bytes / SLOWEST_BYTES_PER_S
        got = 0
        for chunk in self._store.read(keys.blob(sha256)):
            self._go_on()
            got += len(chunk)
            self._partial[sha256] = got
            if self._clock() > until:
                raise StoreUnavailableError(
                    f"blob {sha256} came too slowly: {got} of {size_bytes} bytes; it is tried again"
                )
            yield chunk

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise SyncerClosedError("this syncer was closed while it worked; make a new one to go on")

    @contextmanager
    def _once(self, sha256: str) -> Iterator[None]:
        """One thread at a time for each blob; the others then find it here."""
        with self._lock:
            lock = self._under_way.setdefault(sha256, threading.Lock())
        with lock:
            try:
                yield
            finally:
                with self._lock:
                    self._under_way.pop(sha256, None)
