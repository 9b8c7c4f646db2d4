"""Manifests and layouts of the releases that were complete here. Thread-safe."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from blobsync.bucket.releases import verified_manifest
from blobsync.errors import BlobMissingError, CorruptBlobError, InvalidLayoutError, InvalidManifestError
from blobsync.local.disk import FileIdentity, FileReader, identity, regular
from blobsync.local.objects import objects_of
from blobsync.local.store_context import StoreContext
from blobsync.release.layout import Layout, Pack, StoredObject
from blobsync.release.manifest import Blob, Manifest, ReleaseRef

RELEASE_FILES = (".json", ".layout", ".record")
"""Suffixes of the files that are kept of a release."""

_CACHED_ARTIFACTS = 20_000
"""Limit of artifacts in cached manifests: about 10 MiB."""
_RECORD_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """The objects of a kept release, in a small file next to its manifest, so that a look reads no manifest.

    To read and check a manifest of 20,000 files takes 80 ms and 14 MiB; a look with the record takes 0.6 ms
    and no memory. The record is written when the release was found complete with this layout. It is trusted
    like the store's index: this package wrote it, and it contains its own digest. If it is missing, damaged,
    or of another layout, the manifest is read instead.

    Two lines: SHA-256 of the second, in hexadecimal, and JSON:

        {"blobs":[["<sha256>",SIZE,["<chunk>",...]],...],"files":N,"layout":"<SHA-256 of the layout's file>",
         "manifest_bytes":N,"release":"<digest>","schema":1,"size_bytes":N}

    Attributes:
        size_bytes: Size of their distinct contents.
        blobs: The objects of the release that are not packs.
    """

    release: str
    layout: str
    manifest_bytes: int
    file_count: int
    size_bytes: int
    blobs: tuple[Blob, ...]

    def encode(self) -> bytes:
        """As it is stored."""
        document = {
            "blobs": [[blob.sha256, blob.size_bytes, blob.chunks] for blob in self.blobs],
            "files": self.file_count,
            "layout": self.layout,
            "manifest_bytes": self.manifest_bytes,
            "release": self.release,
            "schema": _RECORD_SCHEMA,
            "size_bytes": self.size_bytes,
        }
        body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        return f"{hashlib.sha256(body).hexdigest()}\n".encode() + body

    @classmethod
    def parse(cls, data: bytes, *, release: str, layout: str) -> KeptRecord | None:
        """Read a record; None: it is damaged, or not of that release and layout."""
        digest, _, body = data.partition(b"\n")
        if digest != hashlib.sha256(body).hexdigest().encode():
            return None
        document = json.loads(body)  # this package wrote it: the digest is right
        header = document["schema"], document["release"], document["layout"]
        if header != (_RECORD_SCHEMA, release, layout):
            return None
        blobs = tuple(Blob(sha256, size, tuple(chunks)) for sha256, size, chunks in document["blobs"])
        return cls(
            release, layout, document["manifest_bytes"], document["files"], document["size_bytes"], blobs
        )


class Release:
    """A release on this host: its manifest, and the packs that contain its small files.

    If it has a valid record (`recorded`), its manifest is read from the disk only when it is needed.
    Otherwise the manifest is in memory. Two are equal if release and layout are.
    """

    __slots__ = ("_manifest", "_read", "_record", "layout", "ref")

    def __init__(self, manifest: Manifest, layout: Layout) -> None:
        self.ref = manifest.ref
        self.layout = layout
        self._manifest: Manifest | None = manifest
        self._read: Callable[[], Manifest] | None = None
        self._record: KeptRecord | None = None

    @classmethod
    def recorded(
        cls, ref: ReleaseRef, layout: Layout, record: KeptRecord, read: Callable[[], Manifest]
    ) -> Release:
        """A kept release with its record. `read` returns its manifest, each time it is needed."""
        made = object.__new__(cls)
        made.ref, made.layout, made._manifest = ref, layout, None
        made._record, made._read = record, read
        return made

    @property
    def is_recorded(self) -> bool:
        """True if it was read with a valid record, which is written when all files were found in the objects.

        Then all its files are here if all its objects are. False for a release from the object store, and for
        a kept one whose record is lost or damaged.
        """
        return self._read is not None

    @property
    def manifest(self) -> Manifest:
        """The manifest.

        BlobMissingError if the release was kept, but its manifest is now damaged or missing.
        """
        if self._manifest is not None:
            return self._manifest
        assert self._read is not None  # noqa: S101 - one of the two is set
        return self._read()

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        """Packs and large blobs of the release, each once."""
        return (*self.layout.packs, *self.record.blobs)

    @property
    def record(self) -> KeptRecord:
        """The data of the manifest that a look needs."""
        if self._record is None:
            self._record = _record_of(self.manifest, self.layout)
        return self._record

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Release) and (self.ref, self.layout) == (other.ref, other.layout)

    def __hash__(self) -> int:
        return hash((self.ref, self.layout))

    def __repr__(self) -> str:
        return f"Release({self.ref}, {len(self.layout.packs)} packs)"


def _record_of(manifest: Manifest, layout: Layout) -> KeptRecord:
    blobs = tuple(item for item in objects_of(manifest, layout) if not isinstance(item, Pack))
    return KeptRecord(
        manifest.digest,
        hashlib.sha256(layout.encode()).hexdigest(),
        len(manifest.canonical),
        len(manifest.artifacts),
        manifest.size_bytes,
        blobs,
    )


class ReleaseFiles:
    """Kept releases. A damaged or unreadable file goes to quarantine.

    Without its manifest or layout, a release counts as not kept.
    """

    def __init__(self, base: StoreContext) -> None:
        self._base = base
        self._lock = threading.Lock()
        self._parsed: OrderedDict[tuple[Path, FileIdentity], Manifest] = OrderedDict()

    def keep(self, release: Release) -> None:
        """Write the files of a complete release that are missing or damaged: layout, manifest, record.

        If the release has a valid record, the manifest is not read. OSError passes through.
        """
        ref, layout = release.ref, release.layout
        if release.is_recorded:
            kept = self.kept(ref)
            if kept is not None and kept.is_recorded and kept == release:
                return
        manifest, data = release.manifest, layout.encode()
        if self.layout(ref) != layout:
            self._base.install_document(self._path(ref, ".layout"), data)
        if self.manifest(ref) is None:
            self._base.install_document(self._path(ref, ".json"), manifest.canonical)
            status = regular(self._path(ref, ".json"))
            if status is not None:
                self._remember(self._path(ref, ".json"), identity(status), manifest)
        if self._record(ref, data) is None:
            self._base.install_document(self._path(ref, ".record"), release.record.encode())

    def kept(self, ref: ReleaseRef) -> Release | None:
        """See `blobsync.LocalStore.kept`. OSError passes through."""
        layout = self.layout(ref)
        if layout is None:
            return None
        record = self._record(ref, layout.encode())
        if record is not None:
            return Release.recorded(ref, layout, record, partial(self._need, ref))
        manifest = self.manifest(ref)
        return None if manifest is None else Release(manifest, layout)

    def is_listed(self, ref: ReleaseRef) -> bool:
        """See `blobsync.LocalStore.is_listed`."""
        return self._path(ref, ".json").exists() and self._path(ref, ".layout").exists()

    def _need(self, ref: ReleaseRef) -> Manifest:
        with self._base.disk.errors(f"reading the manifest of {ref}"):
            manifest = self.manifest(ref)
        if manifest is None:
            raise BlobMissingError(f"the manifest of {ref} is not here any more; sync the release again")
        return manifest

    def _record(self, ref: ReleaseRef, layout: bytes) -> KeptRecord | None:
        """The record; None: there is none for this layout, or the manifest's file has another size."""
        read, manifest = self._read(self._path(ref, ".record")), regular(self._path(ref, ".json"))
        if read is None or manifest is None:
            return None
        record = KeptRecord.parse(read[0], release=ref.digest, layout=hashlib.sha256(layout).hexdigest())
        return record if record is not None and record.manifest_bytes == manifest.st_size else None

    def manifest(self, ref: ReleaseRef) -> Manifest | None:
        """The manifest of a kept release; None: it is missing or damaged."""
        path = self._path(ref, ".json")
        read = self._read(path)
        if read is None:
            return None
        data, identity = read
        with self._lock:
            known = self._parsed.get((path, identity))
        if known is not None and known.canonical == data:
            return known
        try:
            manifest = verified_manifest(data, ref.name, ref.digest)
        except (CorruptBlobError, InvalidManifestError) as exc:
            self._base.quarantine(path, f"{exc}; SHA-256 {hashlib.sha256(data).hexdigest()}")
            return None
        self._remember(path, identity, manifest)
        return manifest

    def _remember(self, path: Path, identity: FileIdentity, manifest: Manifest) -> None:
        with self._lock:
            self._parsed[path, identity] = manifest
            while sum(len(item.artifacts) for item in self._parsed.values()) > _CACHED_ARTIFACTS:
                self._parsed.popitem(last=False)

    def layout(self, ref: ReleaseRef) -> Layout | None:
        """The layout of a kept release; None: it is missing or damaged."""
        path = self._path(ref, ".layout")
        read = self._read(path)
        if read is None:
            return None
        try:
            return Layout.parse(read[0])
        except InvalidLayoutError as exc:
            self._base.quarantine(path, str(exc))
            return None

    def refs(self) -> list[ReleaseRef]:
        """All kept releases, sorted. Their files are not read."""
        files = (self._base.root / "releases").glob("*/*.json")
        refs = [
            ReleaseRef(path.parent.name, path.stem) for path in files if path.with_suffix(".layout").exists()
        ]
        return sorted(refs, key=lambda ref: (ref.name, ref.digest))

    def _path(self, ref: ReleaseRef, suffix: str) -> Path:
        return self._base.root / "releases" / ref.name / f"{ref.digest}{suffix}"

    def _read(self, path: Path) -> tuple[bytes, FileIdentity] | None:
        """Bytes and identity of a file; None: it is missing or unreadable."""
        if regular(path) is None:
            return None
        try:
            with self._base.reading(path) as fd:
                opened = identity(os.fstat(fd))
                return FileReader(fd).whole(0, opened.size_bytes), opened
        except BlobMissingError:  # it cannot be read, or has just been collected
            return None
