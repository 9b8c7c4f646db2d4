"""Whether the bucket still has all of a release, whole. Looks, and changes nothing.

Without `deep`: manifest and layout are read, of each pack the tables, of each object the size. That finds
what was deleted, cut or replaced by something else of another size. With `deep`, every byte is read and
verified as a reader would. What several releases share is looked at once by one `Auditor`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeVar

from blake3 import blake3

from blobsync.errors import (
    BlobNotFoundError,
    CorruptBlobError,
    InvalidLayoutError,
    InvalidManifestError,
    InvalidPackError,
)
from blobsync.release.blob import CHUNK_BYTES, Blob
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import Manifest, ReleaseRef
from blobsync.release.pack import FrameReader, PackTable, check_members, parse_table
from blobsync.retry import RetryPolicy, call_retrying
from blobsync.storage import keys
from blobsync.storage.ports import GoingOn, ObjectStore, go_on
from blobsync.storage.reading import read_table
from blobsync.storage.releases import fetch_layout, fetch_manifest

Result = TypeVar("Result")


class Fault(StrEnum):
    """What is wrong with an object."""

    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong.

    Attributes:
        key: Of the object, below the prefix.
        fault: What is wrong with it.
        reason: The same in words.
    """

    key: str
    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True)
class Audit:
    """How one release stands in the bucket.

    Attributes:
        ref: Which.
        objects: How many packs and large files, or plain objects, it has, as far as is known.
        size_bytes: Theirs.
        flaws: What is wrong, by key. Empty: nothing was found.
        loose: Below which prefix its files lie as plain objects; None: they do not.
    """

    ref: ReleaseRef
    objects: int
    size_bytes: int
    flaws: tuple[Flaw, ...]
    loose: str | None = None

    @property
    def is_absent(self) -> bool:
        """Whether there is no such release at all."""
        key = keys.manifest(self.ref.name, self.ref.digest)
        return any(flaw.key == key and flaw.fault is Fault.MISSING for flaw in self.flaws)


class Auditor:
    """Looks at releases, and at each object once. One thread.

    Args:
        store: Where.
        retry: For each call.
        deep: Read and verify every byte.
        going_on: Told the size of what was looked at, piece by piece.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        retry: RetryPolicy | None = None,
        deep: bool = False,
        going_on: GoingOn = go_on,
    ) -> None:
        self._store, self._deep, self._going_on = store, deep, going_on
        self._retry = retry or RetryPolicy()
        self._seen: dict[str, Flaw | None] = {}
        self._members: dict[str, Mapping[str, int]] = {}

    def audit(self, ref: ReleaseRef) -> Audit:
        """Look at one release.

        Raises:
            StoreUnavailableError, StoreAccessDeniedError, BucketMissingError: nothing can be said then.
        """
        key = keys.manifest(ref.name, ref.digest)
        manifest = self._judged(key, lambda: fetch_manifest(self._store, ref.name, ref.digest))
        if isinstance(manifest, Flaw):
            return Audit(ref, 0, 0, (manifest,))
        flaws: list[Flaw] = []
        key = keys.layout(ref.name, ref.digest)
        layout = self._judged(key, lambda: fetch_layout(self._store, ref.name, ref.digest))
        if isinstance(layout, Layout) and layout.loose is not None:
            return self._loose(manifest, layout.loose)
        if isinstance(layout, Flaw):
            flaws.append(layout)
            packs: tuple[Pack, ...] = ()
        else:
            packs = layout.packs
        blobs = [blob for blob in manifest.blobs.values() if not blob.is_packed]
        flaws += [flaw for pack in packs if (flaw := self._pack(pack)) is not None]
        flaws += [flaw for blob in blobs if (flaw := self._blob(blob)) is not None]
        if not flaws and isinstance(layout, Layout):
            flaws += self._unpacked(manifest, layout)
        size = sum(pack.size_bytes for pack in packs) + sum(blob.size_bytes for blob in blobs)
        return Audit(ref, len(packs) + len(blobs), size, tuple(sorted(flaws, key=lambda flaw: flaw.key)))

    def _loose(self, manifest: Manifest, prefix: str) -> Audit:
        """A release of plain objects: each of them, by a listing."""
        sizes = self._call(lambda: {info.key: info.size_bytes for info in self._store.list(prefix)})
        flaws = []
        for item in manifest.artifacts:
            key = prefix + item.path
            flaw = _of_size(key, sizes.get(key), item.size_bytes) or self._checked(
                key, partial(self._read, item.blob, key)
            )
            if flaw is not None:
                flaws.append(flaw)
        size = sum(item.size_bytes for item in manifest.artifacts)
        return Audit(manifest.ref, len(manifest.artifacts), size, tuple(flaws), prefix)

    def _unpacked(self, manifest: Manifest, layout: Layout) -> Iterator[Flaw]:
        """Small files that no pack of the layout has. Asked only where all packs are well."""
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

    def _pack(self, pack: Pack) -> Flaw | None:
        key = keys.pack(pack.name)
        if key not in self._seen:
            self._seen[key] = self._sized(key, pack.size_bytes) or self._checked(
                key, partial(self._look, pack)
            )
        return self._seen[key]

    def _blob(self, blob: Blob) -> Flaw | None:
        key = keys.blob(blob.name)
        if key not in self._seen:
            self._seen[key] = self._sized(key, blob.size_bytes) or self._checked(
                key, partial(self._read, blob, key)
            )
        return self._seen[key]

    def _look(self, pack: Pack) -> None:
        key = keys.pack(pack.name)
        table = read_table(pack.size_bytes, partial(self._range, key))
        if self._deep:
            table = _verified_pack(pack, partial(self._range, key), self._going_on)
        else:
            self._going_on(pack.size_bytes)
        self._members[pack.name] = dict(zip(table.sha256s, table.sizes, strict=True))

    def _read(self, blob: Blob, key: str) -> None:
        if self._deep:
            _verify_blob(blob, partial(self._range, key), self._going_on)
        else:
            self._going_on(blob.size_bytes)

    def _sized(self, key: str, size_bytes: int) -> Flaw | None:
        return _of_size(key, self._call(lambda: self._store.size(key)), size_bytes)

    def _checked(self, key: str, look: Callable[[], None]) -> Flaw | None:
        found = self._judged(key, look)
        return found if isinstance(found, Flaw) else None

    def _judged(self, key: str, look: Callable[[], Result]) -> Result | Flaw:
        """What `look` gives, or what it shows to be wrong. Wrong bytes are read once more."""
        found = self._call(lambda: _told(key, look))
        if isinstance(found, Flaw) and found.fault is Fault.DAMAGED:
            found = self._call(lambda: _told(key, look))
        return found

    def _call(self, call: Callable[[], Result]) -> Result:
        return call_retrying(call, self._retry, what="audit")

    def _range(self, key: str, start: int, size_bytes: int) -> bytes:
        return b"".join(self._store.read(key, start=start, size_bytes=size_bytes))


def _of_size(key: str, found: int | None, size_bytes: int) -> Flaw | None:
    if found is None:
        return Flaw(key, Fault.MISSING, "there is no such object")
    if found != size_bytes:
        return Flaw(key, Fault.DAMAGED, f"it has {found} bytes, not {size_bytes}")
    return None


def _told(key: str, look: Callable[[], Result]) -> Result | Flaw:
    try:
        return look()
    except BlobNotFoundError:
        return Flaw(key, Fault.MISSING, "there is no such object")
    except (CorruptBlobError, InvalidManifestError, InvalidLayoutError, InvalidPackError) as exc:
        return Flaw(key, Fault.DAMAGED, str(exc))


def _verify_blob(blob: Blob, read: Callable[[int, int], bytes], going_on: GoingOn) -> None:
    """Hash a large file, a chunk at a time.

    Raises:
        CorruptBlobError: it has other bytes than its name says.
    """
    whole = hashlib.sha256()
    for number, start in enumerate(range(0, blob.size_bytes, CHUNK_BYTES)):
        data = read(start, min(CHUNK_BYTES, blob.size_bytes - start))
        whole.update(data)
        if blob.chunks and blake3(data).hexdigest() != blob.chunks[number]:
            raise CorruptBlobError(f"it has other bytes in the {CHUNK_BYTES} from {start} on")
        going_on(len(data))
    if whole.hexdigest() != blob.sha256:
        raise CorruptBlobError(f"it has SHA-256 {whole.hexdigest()}")


def _verified_pack(pack: Pack, read: Callable[[int, int], bytes], going_on: GoingOn) -> PackTable:
    """Hash a pack, and each of its members. At most 64 MiB are in memory.

    Raises:
        CorruptBlobError: it has other bytes than its name says.
        InvalidPackError: it was made wrong.
    """
    data = read(0, pack.size_bytes)
    if blake3(data).hexdigest() != pack.name:
        raise CorruptBlobError(f"it has BLAKE3 {blake3(data).hexdigest()}")
    table, reader, view = parse_table(len(data), data), FrameReader(), memoryview(data)
    for frame in table.frames:
        check_members(table, frame, reader.raw(frame, view[frame.start : frame.start + frame.stored_bytes]))
    going_on(pack.size_bytes)
    return table
