"""Checks whether the bucket has all objects of a release, undamaged. Changes nothing.

Without `deep`, it reads manifest and layout, the tables of each pack and the size of each object. That finds
objects that were deleted, cut, or replaced by others of another size. With `deep`, it reads and verifies
every byte. An `Auditor` checks an object that several releases share once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectStore, OnProgress, ignore_progress
from blobsync.bucket.releases import fetch_layout, fetch_manifest
from blobsync.bucket.verification import MemoryReader, Reader, StoreReader, read_table, verify_object
from blobsync.errors import BlobNotFoundError, CorruptBlobError
from blobsync.release.layout import Layout, Pack, StoredObject
from blobsync.release.manifest import Blob, Manifest, ReleaseRef
from blobsync.retry import WRONG_BYTES, RetryPolicy, call_retrying, read_again_if_wrong

Item = TypeVar("Item")
Result = TypeVar("Result")
_THREADS = 8


class Fault(StrEnum):
    """Kinds of flaws of an object."""

    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Flaw:
    """One object that is missing or damaged. `key` is without the store's prefix."""

    key: str
    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True)
class Audit:
    """The result for one release.

    `objects` and `size_bytes` are those of its packs and large files, as far as known. `flaws` is sorted by
    key, and empty if the release is complete.
    """

    ref: ReleaseRef
    objects: int
    size_bytes: int
    flaws: tuple[Flaw, ...]

    @property
    def is_absent(self) -> bool:
        """True if the bucket has no manifest of this release."""
        key = keys.manifest(self.ref.name, self.ref.digest)
        return any(flaw.key == key and flaw.fault is Fault.MISSING for flaw in self.flaws)


class Auditor:
    """Checks releases, and each object once. Called on one thread; makes requests on several.

    Args:
        deep: Read and verify every byte.
        on_progress: Called with the size of each piece that was checked.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        retry: RetryPolicy | None = None,
        deep: bool = False,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        self._store, self._deep, self._on_progress = store, deep, on_progress
        self._retry = retry or RetryPolicy()
        self._stopping = threading.Event()
        self._seen: dict[str, Flaw | None] = {}
        self._members: dict[str, Mapping[str, int]] = {}

    def audit(self, ref: ReleaseRef) -> Audit:
        """Check one release."""
        key = keys.manifest(ref.name, ref.digest)
        manifest = self._judged(key, lambda: fetch_manifest(self._store, ref.name, ref.digest))
        if isinstance(manifest, Flaw):
            return Audit(ref, 0, 0, (manifest,))
        flaws: list[Flaw] = []
        key = keys.layout(ref.name, ref.digest)
        layout = self._judged(key, lambda: fetch_layout(self._store, ref.name, ref.digest))
        if isinstance(layout, Flaw):
            flaws.append(layout)
            packs: tuple[Pack, ...] = ()
        else:
            packs = layout.packs
        blobs = [blob for blob in manifest.blobs.values() if not blob.is_packed]
        flaws += self._objects([*packs, *blobs])
        if not flaws and isinstance(layout, Layout):
            flaws += self._unpacked(manifest, layout)
        size = sum(pack.size_bytes for pack in packs) + sum(blob.size_bytes for blob in blobs)
        return Audit(ref, len(packs) + len(blobs), size, tuple(sorted(flaws, key=lambda flaw: flaw.key)))

    def _unpacked(self, manifest: Manifest, layout: Layout) -> Iterator[Flaw]:
        """Small files that no pack of the layout has. Checked only if all packs are sound."""
        known: dict[str, int] = {}
        for pack in layout.packs:
            known.update(self._members.get(pack.name, {}))
        lost = [blob for blob in manifest.blobs.values() if blob.is_packed]
        lost = [blob for blob in lost if known.get(blob.sha256) != blob.size_bytes]
        if lost:
            yield Flaw(
                keys.layout(manifest.name, manifest.digest),
                Fault.DAMAGED,
                f"its packs lack {len(lost)} small files, as blob {lost[0].sha256}",
            )

    def _objects(self, items: Iterable[StoredObject]) -> list[Flaw]:
        """Flaws of these objects. Each object is checked once, also if several releases have it."""

        def flaw_of(key: str) -> Flaw | None:
            return self._judged(key, lambda: self._read(key, new[key]))

        named = {keys.stored(item): item for item in items}
        new = {key: item for key, item in named.items() if key not in self._seen}
        sizes = self._side_by_side(lambda key: self._call(lambda: self._store.size(key)), new)
        for key, size in zip(new, sizes, strict=True):
            self._seen[key] = _of_size(key, size, new[key].size_bytes)
        sound = [key for key in new if self._seen[key] is None]
        # Deep checks run one after the other, since each takes memory.
        flaws = map(flaw_of, sound) if self._deep else self._side_by_side(flaw_of, sound)
        for key, flaw in zip(sound, flaws, strict=True):
            self._seen[key] = flaw
            if not self._deep:
                self._on_progress(new[key].size_bytes)
        return [flaw for key in named if (flaw := self._seen[key]) is not None]

    def _side_by_side(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Results in order. Runs on threads named `blobsync-audit`, which end with the call."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="blobsync-audit") as pool:
            try:
                return list(pool.map(call, items))
            except BaseException:
                self._stopping.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _read(self, key: str, item: StoredObject) -> None:
        if isinstance(item, Pack):
            read: Reader = StoreReader(self._store, key)
            if self._deep:  # in memory, since it is hashed as a whole and member by member
                read = MemoryReader(read.whole(0, item.size_bytes))
            self._verify(read, item)
            table = read_table(read.whole, item.size_bytes)
            self._members[item.name] = dict(zip(table.sha256s, table.sizes, strict=True))
        else:
            self._verify(StoreReader(self._store, key), item)

    def _verify(self, read: Reader, item: StoredObject) -> None:
        if not self._deep:
            return
        sha256 = verify_object(read, item.size_bytes, item, also_sha256=True, on_progress=self._on_progress)
        if isinstance(item, Blob) and sha256 not in {None, item.sha256}:
            raise CorruptBlobError(f"it has SHA-256 {sha256}")

    def _judged(self, key: str, read: Callable[[], Result]) -> Result | Flaw:
        def judge() -> Result | Flaw:
            try:
                return read_again_if_wrong(read)
            except BlobNotFoundError:
                return Flaw(key, Fault.MISSING, "there is no such object")
            except WRONG_BYTES as exc:
                return Flaw(key, Fault.DAMAGED, str(exc))

        return self._call(judge)

    def _call(self, call: Callable[[], Result]) -> Result:
        return call_retrying(call, self._retry, what="audit", stopping=self._stopping)


def _of_size(key: str, size: int | None, size_bytes: int) -> Flaw | None:
    if size is None:
        return Flaw(key, Fault.MISSING, "there is no such object")
    if size != size_bytes:
        return Flaw(key, Fault.DAMAGED, f"it has {size} bytes, not {size_bytes}")
    return None
